// tcp.ts: links without encryption, for one machine and for networks that were declared as fabric. Both nodes prove who
// they are when the link begins; whoever can change packets on the way can change frames.
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, isIP, type Socket } from 'node:net'
import { ioError } from '../../io/atomic-write.js'
import { Fabric } from './fabric.js'
import { framedTransport } from './framed-transport.js'
import { type Pipe, plainAddress } from './pipe.js'
import type { StreamTransport } from './transport.js'

const pipeOf = (socket: Socket): Pipe => ({
  duplex: socket,
  peer: undefined,
  channel: new Uint8Array(),
  localAddress: plainAddress(socket.localAddress),
  remoteAddress: plainAddress(socket.remoteAddress),
})

/**
 * The `tcp` transport.
 * @param fabric - interfaces and networks on which it may be used; default: none but loopback
 * @throws SparkError ERR_ARGUMENT; connect and listen throw ERR_DENIED for other addresses
 */
export function tcpTransport(fabric: readonly string[] = []): StreamTransport {
  const trusted = new Fabric(fabric)
  return framedTransport({
    name: 'tcp',
    async dial({ address, localAddress, signal }) {
      if (isIP(address.host) !== 0) trusted.expect(address.host)
      const socket = connect({ ...address, noDelay: true, ...(localAddress && { localAddress }) })
      socket.on('error', () => {})
      try {
        await once(socket, 'connect', { signal })
        trusted.expect(socket.remoteAddress ?? '')
      } catch (error) {
        socket.destroy()
        throw error
      }
      return pipeOf(socket)
    },
    async serve(address, service) {
      trusted.expect(address.host === 'localhost' ? '127.0.0.1' : address.host)
      const sockets = new Set<Socket>()
      const server = createServer({ noDelay: true }, async socket => {
        sockets.add(socket)
        socket.on('close', () => sockets.delete(socket))
        socket.on('error', () => {})
        const remote = plainAddress(socket.remoteAddress)
        if (!trusted.includes(remote)) {
          service.refusals.add({ kind: 'peer', reason: 'its address is of no fabric', address: remote })
          socket.destroy()
          return
        }
        const leave = await service.gate.enter(remote)
        if (!leave) {
          socket.destroy()
          return
        }
        if (socket.destroyed) leave()
        else socket.once('close', leave)
        service.accepted(pipeOf(socket))
      })
      server.listen(address)
      try {
        await once(server, 'listening')
      } catch (error) {
        throw ioError('read', `port ${address.port} of ${address.host}`, error)
      }
      server.on('error', () => {})
      return {
        address: { host: address.host, port: (server.address() as AddressInfo).port },
        async close() {
          const closed = once(server, 'close')
          server.close()
          for (const socket of sockets) socket.destroySoon()
          await closed
        },
      }
    },
  })
}
