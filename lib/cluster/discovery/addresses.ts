// addresses.ts: addresses of nodes, as people write them and as packets tell them.
import { isIP } from 'node:net'
import { SparkError } from '../../core/errors.js'
import type { Address } from '../links/pipe.js'
import type { Seen } from './browser.js'

/** Where a node may be reached: where its packets came from, then what it listed, and last link-local addresses. */
export function addressesOf(seen: readonly Seen[]): Address[] {
  const hosts = [...seen.map(({ from }) => from), ...seen.flatMap(({ addresses }) => addresses)]
  const linkLocal = hosts.filter(host => host.startsWith('fe80:'))
  const usable = [
    ...hosts.filter(host => !linkLocal.includes(host)),
    ...linkLocal.filter(host => host.includes('%')),
  ]
  const port = seen.at(-1)!.port
  return [...new Set(usable)].slice(0, 16).map(host => ({ host, port }))
}

/**
 * Reads `host:port`; IPv6 addresses are in brackets.
 * @throws SparkError ERR_ARGUMENT
 */
export function parseAddress(text: string): Address {
  const match = typeof text === 'string' ? /^(?:\[([^[\]]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(text) : null
  const host = match?.[1] ?? match?.[2] ?? ''
  const port = Number(match?.[3])
  const isAddress = match?.[1] === undefined || isIP(match[1].replace(/%.*$/, '')) === 6
  if (host === '' || !isAddress || !(port >= 1 && port <= 65535))
    throw new SparkError(
      'ERR_ARGUMENT',
      `an address of a node must be like 10.0.0.7:7433 or [fe80::1%eth0]:7433, got ${JSON.stringify(text)}`,
    )
  return { host, port }
}
