// tls-pipes.ts: connections by mutual TLS 1.3, from which tls and grpc are made.
import type { ConnectionOptions, TLSSocket, TlsOptions } from 'node:tls'
import { connect } from 'node:tls'
import type { Peer } from '../trust/credentials.js'
import { GuardedServer } from '../trust/guarded-server.js'
import { type NodeTls, tlsOptions } from '../trust/tls.js'
import { type Address, type Pipe, plainAddress } from './pipe.js'
import type { DialTarget, PipeServer, PipeService } from './transport.js'

/** Bytes that prove nothing: TLS itself binds its peers to the connection. */
export const noChannel = new Uint8Array()

/** A connection of known peers as a pipe. */
export const pipeOf = (socket: TLSSocket, peer: Peer): Pipe => ({
  duplex: socket,
  peer,
  channel: noChannel,
  localAddress: plainAddress(socket.localAddress),
  remoteAddress: plainAddress(socket.remoteAddress),
})

/**
 * Connects to a node and checks its certificate.
 * @throws SparkError ERR_DENIED, or the error of the system
 */
export async function dialTls(target: DialTarget, more: ConnectionOptions = {}): Promise<TLSSocket> {
  const { address, credentials, policy, expectedNodeId, localAddress, signal } = target
  const secure = tlsOptions(credentials, policy).client(expectedNodeId)
  const socket = connect({ ...address, ...secure, ...more, ...(localAddress && { localAddress }) })
  socket.setNoDelay(true)
  return new Promise((resolve, reject) => {
    const failed = (error: unknown): void => {
      signal.removeEventListener('abort', aborted)
      socket.destroy()
      reject(error)
    }
    const aborted = (): void => failed(signal.reason)
    const ended = (): void => failed(new Error('the listener ended the connection'))
    signal.addEventListener('abort', aborted)
    socket.on('error', failed)
    socket.once('close', ended)
    socket.once('secureConnect', () => {
      signal.removeEventListener('abort', aborted)
      socket.off('error', failed)
      socket.off('close', ended)
      socket.on('error', () => {})
      resolve(socket)
    })
  })
}

/** Takes connections of nodes with certificates of the cluster that the policy accepts. */
export async function serveTls(
  address: Address,
  service: PipeService,
  taken: (socket: TLSSocket, peer: Peer) => void,
  more: { ALPNProtocols?: string[] } = {},
): Promise<PipeServer> {
  const { credentials, policy, gate, refusals, handshakeMs } = service
  let secure: NodeTls = tlsOptions(credentials, policy)
  const options = (): TlsOptions => ({ ...secure.server, ...more, handshakeTimeout: handshakeMs })
  const onSecure = (socket: TLSSocket): void => {
    let peer: Peer
    try {
      peer = secure.admit(socket)
    } catch (error) {
      refusals.add({
        kind: 'peer',
        reason: (error as Error).message,
        address: plainAddress(socket.remoteAddress),
      })
      return
    }
    taken(socket, peer)
  }
  const server = new GuardedServer(options(), { gate, refusals, onSecure })
  const port = await server.listen(address.port, address.host)
  return {
    address: { host: address.host, port },
    renew(next) {
      secure = tlsOptions(next, policy)
      server.setSecure(options())
    },
    close: () => server.close(500),
  }
}
