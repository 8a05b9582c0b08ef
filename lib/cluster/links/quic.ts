// quic.ts: links over QUIC, for networks that lose packets. QUIC knows its peers by Ed25519 keys of its own; each node
// signs, with the key of its certificate, the peer ids of both ends, so that a key counts for the node that it belongs to.
import { lookup } from 'node:dns/promises'
import { Duplex } from 'node:stream'
import { SparkError } from '../../core/errors.js'
import { framedTransport } from './framed-transport.js'
import { expectNoLocalAddress } from './options.js'
import type { Address, Pipe } from './pipe.js'
import { openQuinn, type QuinnConnection, type QuinnStream, remoteAddressOf, remotePeerId } from './quinn.js'
import { pieceBytes } from './record.js'
import type { DialTarget, PipeServer, PipeService, StreamTransport } from './transport.js'

const readBytes = 262_144

/** A stream of QUIC as one of Node.js; the end of one is the end of its connection. */
class QuicDuplex extends Duplex {
  readonly #stream: QuinnStream
  readonly #connection: QuinnConnection

  constructor(stream: QuinnStream, connection: QuinnConnection) {
    super({ allowHalfOpen: true, readableHighWaterMark: pieceBytes, writableHighWaterMark: pieceBytes })
    this.#stream = stream
    this.#connection = connection
    connection.closed().then(
      () => this.destroy(),
      error => this.destroy(error),
    )
  }

  override _read(): void {
    this.#stream.read(readBytes).then(
      bytes => this.push(bytes),
      error => this.destroy(error),
    )
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, taken: (error?: Error | null) => void): void {
    this.#stream.write(bytes).then(() => taken(), taken)
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#stream.finishWrite().then(
      () => done(),
      () => done(),
    )
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#connection.abort()
    done(error)
  }
}

function pipeOf(duplex: Duplex, connection: QuinnConnection, peerIds: [string, string]): Pipe {
  return {
    duplex,
    peer: undefined,
    channel: Buffer.from(peerIds.join('\0')),
    localAddress: '',
    remoteAddress: remoteAddressOf(connection),
    pathStats() {
      const { pathSentPackets, pathLostPackets } = connection.stats()
      return { sentPackets: pathSentPackets, lostPackets: pathLostPackets }
    },
  }
}

async function dial(from: string, { address, localAddress, signal }: DialTarget): Promise<Pipe> {
  expectNoLocalAddress('quic', localAddress)
  const quinn = openQuinn(from)
  const { address: host } = await lookup(address.host)
  const connection = await abortable(quinn.connect(host, address.port), signal)
  const duplex = new QuicDuplex(await connection.outboundStream(), connection)
  return pipeOf(duplex, connection, [quinn.peerId, remotePeerId(connection)])
}

/** The outcome of a promise that knows no signal, unless the signal is faster; a late connection is ended. */
async function abortable(
  connecting: Promise<QuinnConnection>,
  signal: AbortSignal,
): Promise<QuinnConnection> {
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
  connecting.then(
    connection => signal.aborted && connection.abort(),
    () => {},
  )
  return Promise.race([connecting, aborted])
}

async function serve(from: string, address: Address, service: PipeService): Promise<PipeServer> {
  const quinn = openQuinn(from)
  const { address: host } = await lookup(address.host)
  const server = listen(() => quinn.listen(host, address.port), address)
  const connections = new Set<QuinnConnection>()
  let isClosed = false
  const take = async (connection: QuinnConnection): Promise<void> => {
    const leave = await service.gate.enter(remoteAddressOf(connection))
    if (!leave) return connection.abort()
    connections.add(connection)
    connection
      .closed()
      .finally(() => {
        connections.delete(connection)
        leave()
      })
      .catch(() => {})
    // Whoever makes no stream would have its place until it goes away.
    const late = setTimeout(() => connection.abort(), service.handshakeMs)
    const stream = await connection.inboundStream().finally(() => clearTimeout(late))
    const duplex = new QuicDuplex(stream, connection)
    service.accepted(pipeOf(duplex, connection, [remotePeerId(connection), quinn.peerId]))
  }
  const refused = ({ message }: Error): void =>
    service.refusals.add({ kind: 'handshake', reason: message, address: '' })
  const accept = async (): Promise<void> => {
    while (!isClosed) {
      try {
        take(await server.inboundConnection()).catch(refused)
      } catch (error) {
        if (!isClosed) refused(error as Error)
      }
    }
  }
  void accept()
  return {
    address: { host: address.host, port: server.port() },
    async close() {
      isClosed = true
      for (const connection of connections) connection.abort()
      await server.abort()
    },
  }
}

function listen<T>(open: () => T, { host, port }: Address): T {
  try {
    return open()
  } catch (cause) {
    throw new SparkError('ERR_IO', `no quic listener at ${host}:${port}: ${(cause as Error).message}`, {
      cause,
    })
  }
}

/**
 * The `quic` transport; needs the platform's package of `@chainsafe/libp2p-quic`.
 * @param from - path or URL of a file beside that package; default: this library
 */
export const quicTransport = (from = import.meta.url): StreamTransport =>
  framedTransport({
    name: 'quic',
    dial: target => dial(from, target),
    serve: (address, service) => serve(from, address, service),
  })
