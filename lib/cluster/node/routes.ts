// routes.ts: the numbers of links between any two nodes, which nodes tell each other.
import { SparkError } from '../../core/errors.js'
import type { Fabric } from '../links/fabric.js'
import type { LinkReport } from '../links/measure.js'
import { isUuid } from '../trust/node-identity.js'

/** Numbers of the link from one node to another; what was not measured is missing. */
export interface Route {
  /** Uuid of the node that measured. */
  readonly from: string
  /** Uuid of the other node. */
  readonly to: string
  /** Median of a round trip, ms. */
  readonly rttMs?: number
  /** A rate that three of four transfers reached, bytes/s. */
  readonly bytesPerSecond?: number
  /** Whether the node that measured has declared its network as fabric. */
  readonly fabric?: true
}

/** Routes that a node tells at most. */
const maxRoutes = 256

/** The links of a node as routes. */
export const routesOf = (from: string, reports: readonly LinkReport[], fabric: Fabric): Route[] =>
  reports.slice(0, maxRoutes).map(({ nodeId, rtt, bandwidth, addresses: { local, remote } }) => ({
    ...{ from, to: nodeId },
    ...(rtt && { rttMs: rtt.p50Ms }),
    ...(bandwidth && { bytesPerSecond: bandwidth.p25 }),
    ...(fabric.includes(local) && fabric.includes(remote) && { fabric: true as const }),
  }))

/**
 * Routes as a node tells them.
 * @throws SparkError ERR_FORMAT for what is no list of routes that begin at the node
 */
export function checkRoutes(from: string, value: unknown): Route[] {
  const list = Array.isArray(value) && value.length <= maxRoutes ? (value as Route[]) : undefined
  const isNumber = (number: unknown): boolean =>
    number === undefined || (Number.isFinite(number) && (number as number) > 0)
  const isRoute = (route: Route | null): boolean =>
    route?.from === from && isUuid(route.to) && isNumber(route.rttMs) && isNumber(route.bytesPerSecond)
  if (!list?.every(isRoute)) throw new SparkError('ERR_FORMAT', `node ${from} sent no list of its links`)
  return list.map(({ to, rttMs, bytesPerSecond, fabric }) => ({
    ...{ from, to },
    ...(rttMs !== undefined && { rttMs }),
    ...(bytesPerSecond !== undefined && { bytesPerSecond }),
    ...(fabric === true && { fabric }),
  }))
}
