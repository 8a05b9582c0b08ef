// state-server.ts: the state of a cluster over HTTP, for dashboards and `dgx-spark links`: /api/state with an ETag, and /events, a
// stream of server-sent events that goes on where it was. This machine only, read only.
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { SparkError } from '../../core/errors.js'
import type { ClusterEvent, ClusterEvents, ClusterState } from './cluster-state.js'
import type { WitnessedNote } from './witnesses.js'

/** Streams of events at once. */
const maxStreams = 64
/** Bytes that wait for a slow reader before its stream ends; it may come back and go on. */
const maxWaitingBytes = 1 << 20
/** How often a stream says that it lives. */
const heartbeatMs = 15_000
const json = { 'Content-Type': 'application/json; charset=utf-8' }
const localHosts = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/i

/** What a {@link StateServer} tells. */
export interface StateSource {
  readonly state: () => ClusterState
  readonly events: ClusterEvents
  /** What other nodes hold of the audit log of this one. */
  readonly witnessed: () => Promise<readonly WitnessedNote[]>
}

/** Serves the state of a node. */
export class StateServer {
  readonly #server: Server
  readonly #streams = new Set<ServerResponse>()
  readonly #source: StateSource

  private constructor(source: StateSource) {
    this.#source = source
    this.#server = createServer((request, response) => this.#answer(request, response))
    this.#server.requestTimeout = 10_000
    this.#server.maxHeadersCount = 100
  }

  /** Listens on 127.0.0.1. @throws SparkError ERR_IO when the port is taken */
  static async open(source: StateSource, port = 0): Promise<StateServer> {
    const opened = new StateServer(source)
    await new Promise<void>((resolve, reject) => {
      opened.#server.once('error', cause =>
        reject(
          new SparkError(
            'ERR_IO',
            `port ${port} of 127.0.0.1 could not be had: ${cause.message}; give another one`,
            { cause },
          ),
        ),
      )
      opened.#server.listen(port, '127.0.0.1', resolve)
    })
    return opened
  }

  /** The port. */
  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async close(): Promise<void> {
    for (const stream of this.#streams) stream.destroy()
    const closed = new Promise<void>(resolve => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    await closed
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    response.setHeader('X-Content-Type-Options', 'nosniff')
    response.setHeader('Cache-Control', 'no-cache')
    const path = (request.url ?? '').split('?')[0]
    // A page whose name resolves to this machine must not read on.
    if (!localHosts.test(request.headers.host ?? '')) refuse(response, 403, 'ask by the name localhost')
    else if (request.method !== 'GET') refuse(response, 405, 'only GET is answered')
    else if (path === '/api/state') this.#sendState(request, response)
    else if (path === '/api/witnessed') void this.#sendWitnessed(response)
    else if (path !== '/events') refuse(response, 404, 'there are /api/state, /api/witnessed and /events')
    else if (this.#streams.size < maxStreams) this.#stream(request, response)
    else refuse(response, 503, `${maxStreams} streams are open`)
  }

  #sendState(request: IncomingMessage, response: ServerResponse): void {
    const body = JSON.stringify(this.#source.state())
    const tag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`
    response.setHeader('ETag', tag)
    if (request.headers['if-none-match'] === tag) {
      response.writeHead(304).end()
      return
    }
    response.writeHead(200, json).end(body)
  }

  async #sendWitnessed(response: ServerResponse): Promise<void> {
    const notes = await this.#source.witnessed().catch(() => [])
    response.writeHead(200, json).end(JSON.stringify(notes))
  }

  /** Events behind the last one that the reader saw; the whole state first where it saw none, or too old a one. */
  #stream(request: IncomingMessage, response: ServerResponse): void {
    const { events } = this.#source
    this.#streams.add(response)
    response.writeHead(200, { 'Content-Type': 'text/event-stream; charset=utf-8' })
    const send = (text: string): void => {
      if (response.writableLength > maxWaitingBytes) response.destroy()
      else response.write(text)
    }
    const last = Number.parseInt(`${request.headers['last-event-id'] ?? ''}`, 10)
    const missed = Number.isNaN(last) ? undefined : events.since(last)
    if (missed) for (const event of missed) send(eventText(event))
    else {
      const state = this.#source.state()
      send(`event: state\nid: ${events.version}\ndata: ${JSON.stringify(state)}\n\n`)
    }
    const unlisten = events.listen(event => send(eventText(event)))
    const timer = setInterval(() => send(': still here\n\n'), heartbeatMs).unref()
    response.on('error', () => {})
    response.once('close', () => {
      unlisten()
      clearInterval(timer)
      this.#streams.delete(response)
    })
  }
}

const eventText = (event: ClusterEvent): string =>
  `event: change\nid: ${event.version}\ndata: ${JSON.stringify(event)}\n\n`

const refuse = (response: ServerResponse, status: number, error: string): void => {
  response.writeHead(status, json).end(JSON.stringify({ error }))
}
