// guarded-server.ts: a TLS listener behind a gate that counts connections; what it refuses is counted and recorded by name.
import { once } from 'node:events'
import { createServer as createNetServer, type Server as NetServer, type Socket } from 'node:net'
import { createServer, type Server, type TLSSocket, type TlsOptions } from 'node:tls'
import { ioError } from '../../io/atomic-write.js'
import type { ConnectionGate } from './connection-gate.js'
import { chainRefusal, handshakeRefusal, type Refusals } from './refusals.js'

/** How a listener treats connections. */
export interface GuardOptions {
  readonly gate: ConnectionGate
  readonly refusals: Refusals
  /** Gets a connection whose handshake and chain of certificates are good. */
  onSecure(socket: TLSSocket): void
}

/**
 * A TLS listener. What it refuses is counted and recorded, and costs as little as it can: too many connections of an address
 * end before their handshake.
 */
export class GuardedServer {
  readonly #net: NetServer
  readonly #tls: Server
  readonly #sockets = new Set<Socket>()

  constructor(secure: TlsOptions, options: GuardOptions) {
    // A chain that does not hold is refused below, where address and reason are known; Node.js would only close.
    this.#tls = createServer({ ...secure, rejectUnauthorized: false })
    this.#net = createNetServer({ noDelay: true, pauseOnConnect: true }, socket => {
      this.#admit(socket, options).catch(() => socket.destroy())
    })
    this.#tls.on('tlsClientError', ({ code = '', message }: NodeJS.ErrnoException, socket) => {
      options.refusals.add({ ...handshakeRefusal(code, message), address: socket.remoteAddress ?? '' })
      socket.destroy()
    })
    this.#tls.on('secureConnection', socket => {
      socket.on('error', () => socket.destroy())
      const refusal = secure.requestCert ? chainRefusal(socket) : null
      if (!refusal) return options.onSecure(socket)
      options.refusals.add({ ...refusal, address: socket.remoteAddress ?? '' })
      socket.destroy()
    })
  }

  /** Listens. @throws SparkError ERR_IO when the port is taken */
  async listen(port: number, host: string): Promise<number> {
    this.#net.listen(port, host)
    try {
      await once(this.#net, 'listening')
    } catch (error) {
      throw ioError('read', `port ${port} of ${host}`, error)
    }
    return (this.#net.address() as { port: number }).port
  }

  /** New connections get other certificates. */
  setSecure(secure: TlsOptions): void {
    this.#tls.setSecureContext(secure)
  }

  /** Takes no new connections until it listens again; those that are open stay. */
  stop(): void {
    if (this.#net.listening) this.#net.close()
  }

  /** Ends the listener and its connections. @param lingerMs - how long a peer may take to read what was written. Default: 0 */
  async close(lingerMs = 0): Promise<void> {
    const timer = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy()
    }, lingerMs)
    for (const socket of this.#sockets) {
      if (lingerMs > 0) socket.destroySoon()
      else socket.destroy()
    }
    if (this.#net.listening) {
      this.#net.close()
      await once(this.#net, 'close')
    }
    clearTimeout(timer)
  }

  async #admit(socket: Socket, { gate }: GuardOptions): Promise<void> {
    socket.on('error', () => socket.destroy())
    const leave = await gate.enter(socket.remoteAddress ?? '')
    if (!leave) {
      socket.destroy()
      return
    }
    this.#sockets.add(socket)
    const closed = (): void => {
      this.#sockets.delete(socket)
      leave()
    }
    if (socket.destroyed) return closed()
    socket.once('close', closed)
    this.#tls.emit('connection', socket)
  }
}
