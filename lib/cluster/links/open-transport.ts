// open-transport.ts: transports by name.
import { expectKnownOptions, expectOneOf } from '../../core/checks.js'
import type { StreamTransport, TransportName } from './transport.js'

/** Names of the transports, the default first. */
export const transportNames: readonly TransportName[] = ['tls', 'grpc', 'quic', 'tcp']

/** Options of {@link openTransport}. */
export interface TransportOptions {
  /** Interfaces and networks on which `tcp` may be used. Default: loopback only. */
  fabric?: readonly string[]
  /** Path or URL of a file beside the package that `quic` needs. Default: this library. */
  quicFrom?: string
}

/**
 * A transport. `tls` is the default; `grpc` and `quic` need packages, which are loaded when they connect or listen.
 * @throws SparkError ERR_ARGUMENT
 */
export async function openTransport(
  name: TransportName = 'tls',
  options: TransportOptions = {},
): Promise<StreamTransport> {
  expectOneOf('transport', name, transportNames)
  expectKnownOptions('options', options, ['fabric', 'quicFrom'])
  if (name === 'grpc') return (await import('./grpc.js')).grpcTransport()
  if (name === 'quic') return (await import('./quic.js')).quicTransport(options.quicFrom)
  if (name === 'tcp') return (await import('./tcp.js')).tcpTransport(options.fabric)
  return (await import('./tls.js')).tlsTransport()
}
