// framed-transport.ts: a transport over connections of any kind.
import type { PeerPolicy } from '../trust/credentials.js'
import { Connection } from './connection.js'
import { Listening } from './listening.js'
import { expectAddress, linkLimits } from './options.js'
import type { PipeMaker, StreamTransport } from './transport.js'

const listenerNames = ['address', 'maxLinks', 'maxConnectionsPer10s', 'maxConnectionsPerAddress', 'refusals']

const acceptsAll: PeerPolicy = { accepts: () => null }

/** A transport over the connections of `maker`. */
export function framedTransport(maker: PipeMaker): StreamTransport {
  return {
    name: maker.name,
    async listen(credentials, policy, options = {}) {
      const { address = { host: '127.0.0.1', port: 0 } } = options
      expectAddress('options.address', address, 0)
      const limits = linkLimits(options, listenerNames)
      options.signal?.throwIfAborted()
      const listening = new Listening(maker.name, credentials, policy, limits, options)
      await listening.open(service => maker.serve(address, service))
      return listening
    },
    async connect(address, credentials, expectedNodeId, options = {}) {
      expectAddress('address', address, 1)
      const limits = linkLimits(options, ['policy', 'localAddress'])
      const { policy = acceptsAll, localAddress, signal } = options
      const target = { address, policy, expectedNodeId, localAddress }
      const credentialsOf = typeof credentials === 'function' ? credentials : () => credentials
      const connection = new Connection(maker, target, credentialsOf, limits, signal)
      return connection.open()
    },
  }
}
