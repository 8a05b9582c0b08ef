// grpc.ts: links as one bidirectional stream of gRPC, for networks that let only HTTP/2 through. Its messages are bytes
// of the link; nothing is described in .proto. gRPC's own listener has no TLS floor, so the listener is ours (TLS 1.3),
// and gRPC gets its connections.
import { once } from 'node:events'
import { Duplex } from 'node:stream'
import { createSecureContext, type TLSSocket } from 'node:tls'
import type { Client, ServerDuplexStream } from '@grpc/grpc-js'
import { SparkError } from '../../core/errors.js'
import { type Peer, peerOf } from '../trust/credentials.js'
import { tlsOptions } from '../trust/tls.js'
import { framedTransport } from './framed-transport.js'
import { expectNoLocalAddress } from './options.js'
import { type Address, formatAddress, type Pipe, plainAddress } from './pipe.js'
import { pieceBytes } from './record.js'
import { noChannel, pipeOf, serveTls } from './tls-pipes.js'
import type { DialTarget, PipeServer, PipeService, StreamTransport } from './transport.js'

const path = '/dgxspark.cluster.Link/Open'
const asItIs = (bytes: Buffer): Buffer => bytes

const channelOptions = {
  'grpc.max_send_message_length': -1,
  'grpc.max_receive_message_length': pieceBytes * 2,
  'grpc-node.flow_control_window': 16 << 20,
  'grpc.enable_retries': 0,
  'grpc.use_local_subchannel_pool': 1,
}

async function loadGrpc(): Promise<typeof import('@grpc/grpc-js')> {
  try {
    return await import('@grpc/grpc-js')
  } catch (cause) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      'the transport grpc needs the package @grpc/grpc-js: npm install @grpc/grpc-js',
      { cause },
    )
  }
}

/** A gRPC call as a stream of bytes: its own stream is one of messages. */
class CallStream extends Duplex {
  readonly #call: Duplex
  readonly #release: () => void

  constructor(call: Duplex, release: () => void) {
    super({ allowHalfOpen: true, readableHighWaterMark: pieceBytes, writableHighWaterMark: pieceBytes })
    this.#call = call
    this.#release = release
    call.on('data', (bytes: Buffer) => {
      if (!this.push(bytes)) call.pause()
    })
    call.on('end', () => this.push(null))
    call.on('error', error => this.destroy(error))
    call.on('close', () => this.destroy())
    call.on('cancelled', () => this.destroy(new Error('the call was cancelled')))
  }

  override _read(): void {
    this.#call.resume()
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, taken: (error?: Error | null) => void): void {
    if (this.#call.write(bytes)) taken()
    else {
      const settle = (): void => {
        this.#call.off('drain', settle)
        this.off('close', settle)
        taken()
      }
      this.#call.on('drain', settle)
      this.on('close', settle)
    }
  }

  override _final(done: () => void): void {
    this.#call.end()
    done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if ('cancel' in this.#call) (this.#call as Duplex & { cancel(): void }).cancel()
    else this.#call.destroy()
    this.#release()
    done(error)
  }
}

/** Any name will do: the check is by the certificate's URI, and an IP address is no TLS server name. */
const serverName = 'node.dgx-spark'

async function dial({
  address,
  credentials,
  policy,
  expectedNodeId,
  localAddress,
  signal,
}: DialTarget): Promise<Pipe> {
  expectNoLocalAddress('grpc', localAddress)
  const grpc = await loadGrpc()
  const { checkServerIdentity, ...secure } = tlsOptions(credentials, policy).client(expectedNodeId)
  let peer: Peer | null = null
  let denied: Error | undefined
  const channel = grpc.credentials.createFromSecureContext(createSecureContext(secure), {
    checkServerIdentity(host, certificate) {
      const described = certificate as Parameters<NonNullable<typeof checkServerIdentity>>[1]
      denied = checkServerIdentity!(host, described)
      peer = peerOf(described)
      return denied
    },
  })
  const options = { ...channelOptions, 'grpc.ssl_target_name_override': serverName }
  const client: Client = new grpc.Client(formatAddress(address), channel, options)
  const call = client.makeBidiStreamRequest(path, asItIs, asItIs, new grpc.Metadata())
  call.on('error', () => {})
  try {
    // The listener sends its metadata when it takes the call.
    await once(call, 'metadata', { signal })
  } catch (error) {
    call.cancel()
    client.close()
    throw denied ?? error
  }
  const duplex = new CallStream(call as unknown as Duplex, () => client.close())
  const remoteAddress = plainAddress(call.getPeer().replace(/:\d+$/, ''))
  return { duplex, peer: peer!, channel: noChannel, localAddress: '', remoteAddress }
}

async function serve(address: Address, service: PipeService): Promise<PipeServer> {
  const grpc = await loadGrpc()
  const server = new grpc.Server(channelOptions)
  const connections = new Map<string, { socket: TLSSocket; peer: Peer }>()
  server.register(
    path,
    (call: ServerDuplexStream<Buffer, Buffer>) => {
      const from = connections.get(call.getPeer())
      if (!from) {
        call.destroy()
        return
      }
      call.sendMetadata(new grpc.Metadata())
      const duplex = new CallStream(call as unknown as Duplex, () => from.socket.destroySoon())
      service.accepted({ ...pipeOf(from.socket, from.peer), duplex })
    },
    asItIs,
    asItIs,
    'bidi',
  )
  const injector = server.createConnectionInjector(grpc.ServerCredentials.createInsecure())
  const taken = (socket: TLSSocket, peer: Peer): void => {
    const name = `${socket.remoteAddress}:${socket.remotePort}`
    connections.set(name, { socket, peer })
    socket.on('close', () => connections.delete(name))
    injector.injectConnection(socket)
  }
  const listener = await serveTls(address, service, taken, { ALPNProtocols: ['h2'] })
  return {
    ...listener,
    async close() {
      server.forceShutdown()
      await listener.close()
    },
  }
}

/** The `grpc` transport; needs the package `@grpc/grpc-js`. */
export const grpcTransport = (): StreamTransport => framedTransport({ name: 'grpc', dial, serve })
