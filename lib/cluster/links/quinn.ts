// quinn.ts: the QUIC of `@chainsafe/libp2p-quic` (quinn, rustls), whose platform packages can be used without libp2p. It
// is a part of another project, so this is the only file that knows it. Version 1.1.8 for Node.js 20, 2.1.1 above.
import { generateKeyPairSync } from 'node:crypto'
import { createRequire } from 'node:module'
import { SparkError } from '../../core/errors.js'

/** One stream of a connection. */
export interface QuinnStream {
  /** Up to `bytes` bytes; null at the end. */
  read(bytes: number): Promise<Uint8Array | null>
  write(bytes: Uint8Array): Promise<void>
  finishWrite(): Promise<void>
  resetWrite(): Promise<void>
  stopRead(): Promise<void>
}

/** A connection of two keys. */
export interface QuinnConnection {
  outboundStream(): Promise<QuinnStream>
  inboundStream(): Promise<QuinnStream>
  /** `/ip4/…/udp/…/quic-v1/p2p/<peer id>` */
  remoteMultiaddr(): string
  stats(): { readonly pathLostPackets: number; readonly pathSentPackets: number }
  closed(): Promise<void>
  abort(): void
}

interface QuinnServer {
  port(): number
  inboundConnection(): Promise<QuinnConnection>
  abort(): Promise<void>
}

interface QuinnBinding {
  QuinnConfig: new (config: Record<string, unknown>) => unknown
  Client: new (
    config: unknown,
    family: 0 | 1,
  ) => { outboundConnection(host: string, port: number): Promise<QuinnConnection> }
  Server: new (config: unknown, host: string, port: number) => QuinnServer
}

/** An endpoint with a key of its own. */
export interface Quinn {
  /** The peer id of this endpoint's key. */
  readonly peerId: string
  connect(host: string, port: number): Promise<QuinnConnection>
  listen(host: string, port: number): QuinnServer
}

const limits = {
  handshakeTimeout: 5000,
  maxIdleTimeout: 10_000,
  keepAliveInterval: 3000,
  maxConcurrentStreamLimit: 4,
  maxStreamData: 16 << 20,
  maxConnectionData: 24 << 20,
  receiveBufferSize: 4 << 20,
  sendBufferSize: 4 << 20,
}

/** The platform's package. */
function packageName(): string {
  const { platform, arch, report } = process
  const { header } = (report?.getReport() ?? {}) as unknown as { header?: { glibcVersionRuntime?: string } }
  const suffix =
    platform === 'linux'
      ? header?.glibcVersionRuntime
        ? '-gnu'
        : '-musl'
      : platform === 'win32'
        ? '-msvc'
        : ''
  return `@chainsafe/libp2p-quic-${platform}-${arch}${suffix}`
}

/**
 * Loads the binding and makes an endpoint with a new Ed25519 key.
 * @param from - path or URL of a file beside the package
 * @throws SparkError ERR_UNSUPPORTED without the package
 */
export function openQuinn(from: string): Quinn {
  const name = packageName()
  let binding: QuinnBinding
  try {
    binding = createRequire(from)(name)
  } catch (cause) {
    const version = Number.parseInt(process.versions.node, 10) < 22 ? '1.1.8' : '2.1.1'
    const hint = `the transport quic needs the package ${name}: npm install ${name}@${version}`
    throw new SparkError('ERR_UNSUPPORTED', hint, { cause })
  }
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32)
  const seed = privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-32)
  // libp2p's protobuf of a private key: type 1 is Ed25519, then seed and public key.
  const privateKeyProto = Buffer.concat([Buffer.from([0x08, 0x01, 0x12, 0x40]), seed, raw])
  const config = new binding.QuinnConfig({ ...limits, privateKeyProto })
  return {
    peerId: peerIdOf(raw),
    connect: (host, port) =>
      new binding.Client(config, host.includes(':') ? 1 : 0).outboundConnection(host, port),
    listen: (host, port) => new binding.Server(config, host, port),
  }
}

/** The peer id of a connection's other end. */
export const remotePeerId = (connection: QuinnConnection): string =>
  /\/p2p\/([1-9A-HJ-NP-Za-km-z]{32,64})/.exec(connection.remoteMultiaddr())?.[1] ?? ''

/** The address of a connection's other end. */
export const remoteAddressOf = (connection: QuinnConnection): string =>
  /^\/ip[46]\/([^/]+)\//.exec(connection.remoteMultiaddr())?.[1] ?? ''

/** libp2p's name of a public key: base58 of its protobuf behind the code of an identity hash. */
function peerIdOf(raw: Uint8Array): string {
  return base58(Buffer.concat([Buffer.from([0x00, 0x24, 0x08, 0x01, 0x12, 0x20]), raw]))
}

const alphabet = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'

function base58(bytes: Uint8Array): string {
  let value = BigInt(`0x${Buffer.from(bytes).toString('hex')}`)
  let text = ''
  for (; value > 0n; value /= 58n) text = alphabet[Number(value % 58n)] + text
  const zeros = bytes.findIndex(byte => byte !== 0)
  return '1'.repeat(zeros) + text
}
