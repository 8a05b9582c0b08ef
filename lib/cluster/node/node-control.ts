// node-control.ts: where a node keeps decisions: in its own process, in servers of NATS that are given, or in one that it starts.
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { ControlPlane } from '../control/control-plane.js'
import { EmbeddedControlPlane } from '../control/embedded.js'
import type { ClusterAuthority } from '../trust/authority.js'
import type { NodeCredentials } from '../trust/credentials.js'
import type { Revocations } from '../trust/revocations.js'
import { anyHost, type ClusterNodeOptions, defaultPort } from './node-options.js'

/** Milliseconds between two tries to start a server again. */
const restartMs = 500

/** A server that answers nothing for so long is started again, ms. */
const silenceMs = 15_000
/** How often it is asked meanwhile. */
const questions = 5

/** A nats-server of a node takes clients at the port of its links and so many more. */
const natsPortOffset = 3

/** What a {@link NodeControl} is opened with. */
export interface NodeControlOptions extends Pick<ClusterNodeOptions, 'control' | 'nats' | 'host' | 'port'> {
  /** Of the node. */
  readonly folder: string
  readonly credentials: NodeCredentials
  readonly authority: ClusterAuthority | undefined
  readonly revocations: Revocations
  /** For tests: after how long a server that answers nothing is started again, ms. */
  readonly silenceMs?: number
}

type NatsServer = import('../control/nats-server.js').NatsServer
type NatsControlPlane = import('../control/nats.js').NatsControlPlane

/** The control plane of a node, and the server below it where the node runs one. */
export class NodeControl {
  /** What it is used by. */
  readonly plane: ControlPlane
  readonly #nats: NatsControlPlane | undefined
  #server: NatsServer | undefined
  #options: NodeControlOptions
  /** Settles when the server has heard of the last change. */
  #turn: Promise<void> = Promise.resolve()
  readonly #ending = new AbortController()
  readonly #watching: Promise<unknown>

  private constructor(
    options: NodeControlOptions,
    plane: ControlPlane,
    nats?: NatsControlPlane,
    server?: NatsServer,
  ) {
    this.plane = plane
    this.#options = options
    this.#nats = nats
    this.#server = server
    this.#watching = Promise.all([this.#watch(), this.#guard()])
  }

  /**
   * Opens it.
   * @throws SparkError ERR_BUSY when another process has the folder; ERR_UNSUPPORTED where nats-server or a package is missing;
   * ERR_IO where no server answers, and for `control: 'nats'` on a node without the CA; ERR_DENIED
   */
  static async open(options: NodeControlOptions): Promise<NodeControl> {
    const { control, nats, folder, credentials, revocations: policy } = options
    if (!nats && control !== 'nats')
      return new NodeControl(options, await EmbeddedControlPlane.open(path.join(folder, 'control')))
    const server = nats ? undefined : await startServer(options)
    try {
      const { NatsControlPlane } = await import('../control/nats.js')
      const servers = nats ?? [server!.address]
      const plane = await NatsControlPlane.connect({ servers, credentials, policy, members: servers.length })
      return new NodeControl(options, plane, plane, server)
    } catch (error) {
      await server?.stop()
      throw error
    }
  }

  /** Nodes have joined or were revoked: the server that runs here hears of it. */
  update(): Promise<void> {
    return this.#inTurn(async () => {
      const { credentials } = this.#options
      await this.#server?.update({ credentials, nodes: await nodesOf(this.#options) })
    })
  }

  /** Goes on with the next certificate of this node: the server shows it, and the connection is made anew. */
  async renew(credentials: NodeCredentials): Promise<void> {
    this.#options = { ...this.#options, credentials }
    await this.update()
    await this.#nats?.renew(credentials)
  }

  /** One change after the other: what was known last is written last. */
  #inTurn(act: () => Promise<void>): Promise<void> {
    this.#turn = this.#turn.then(act).catch(error => debug(`nats-server: ${(error as Error).message}`))
    return this.#turn
  }

  /** Ends it. */
  async close(): Promise<void> {
    this.#ending.abort()
    await this.plane.close()
    await this.#server?.stop()
    await this.#watching
  }

  /** Starts the server again whenever it has ended: it was killed, or gave up with a full disk. */
  async #watch(): Promise<void> {
    const { signal } = this.#ending
    while (this.#server) {
      const ended = this.#server
      const log = await ended.ended
      debug(`nats-server has ended: ${log}`)
      while (this.#server === ended) {
        if (signal.aborted) return
        await this.#inTurn(async () => {
          this.#server = await startServer(this.#options)
        })
        if (this.#server === ended) await sleep(restartMs, undefined, { signal }).catch(() => {})
      }
      if (signal.aborted) await this.#server.stop()
    }
  }

  /** Ends a server that answers nothing, for {@link #watch} to start it again: with a full disk nats-server 2.9 may wait for itself. */
  async #guard(): Promise<void> {
    const { signal } = this.#ending
    const { silenceMs: limitMs = silenceMs } = this.#options
    let heard = performance.now()
    while (this.#nats && this.#server && !signal.aborted) {
      const server = this.#server
      await sleep(limitMs / questions, undefined, { signal }).catch(() => {})
      if (await this.#nats.answers()) heard = performance.now()
      if (performance.now() - heard < limitMs || signal.aborted) continue
      debug(`nats-server has not answered for ${limitMs} ms`)
      await server.kill()
      heard = performance.now()
    }
  }
}

const listenOf = ({ host = anyHost(), port = defaultPort }: NodeControlOptions) => ({
  host,
  port: port + natsPortOffset,
})

async function startServer(options: NodeControlOptions): Promise<NatsServer> {
  const { folder, credentials, authority } = options
  if (!authority) {
    const remedy = `give its address with --nats host:${listenOf(options).port}`
    throw new SparkError('ERR_IO', `the nats-server of a cluster runs on the node with the CA: ${remedy}`)
  }
  const { NatsServer } = await import('../control/nats-server.js')
  return NatsServer.start({
    ...{ credentials, folder: path.join(folder, 'nats') },
    ...{ listen: listenOf(options), nodes: await nodesOf(options) },
  })
}

/** Nodes that have certificates and were not revoked. */
async function nodesOf({ authority, revocations }: NodeControlOptions): Promise<string[]> {
  const issued = (await authority?.issued()) ?? []
  return [...new Set(issued.map(({ nodeId }) => nodeId))].filter(id => !revocations.isNodeRevoked(id))
}
