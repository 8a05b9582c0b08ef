// tls.ts: links over mutual TLS 1.3, the default: 0.7 to 1.5 GB/s on one core, and nothing to install.

import { peerOf } from '../trust/credentials.js'
import { framedTransport } from './framed-transport.js'
import { dialTls, pipeOf, serveTls } from './tls-pipes.js'
import type { StreamTransport } from './transport.js'

/** The `tls` transport. */
export const tlsTransport = (): StreamTransport =>
  framedTransport({
    name: 'tls',
    async dial(target) {
      const socket = await dialTls(target)
      return pipeOf(socket, peerOf(socket.getPeerCertificate())!)
    },
    serve: (address, service) =>
      serveTls(address, service, (socket, peer) => service.accepted(pipeOf(socket, peer))),
  })
