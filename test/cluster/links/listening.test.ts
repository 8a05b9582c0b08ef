// Listeners: peers that say nothing or lie, ports that are taken, signals, certificates that are renewed.
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect as connectTcp } from 'node:net'
import path from 'node:path'
import type { Duplex } from 'node:stream'
import { connect } from 'node:tls'
import t, { type Test } from 'tap'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { openTransport } from '#lib/cluster/links/open-transport.js'
import { openQuinn } from '#lib/cluster/links/quinn.js'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import type { ListenOptions, StreamTransport } from '#lib/cluster/links/transport.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { tlsOptions } from '#lib/cluster/trust/tls.js'
import { lab, openDoor } from '../../fixtures/cluster/lab.js'
import { quicFrom, transports } from '../../fixtures/cluster/transports.js'

const [a, b] = await lab(t, 2)
const [foreign] = await lab(t, 1)

async function listen(t: Test, transport: StreamTransport, options: ListenOptions = {}) {
  const listener = await transport.listen(b, openDoor, options)
  t.teardown(() => listener.close())
  return listener
}

t.test('a listener that is not spoken to, or not well', async t => {
  const listener = await listen(t, tlsTransport(), { handshakeMs: 150, maxConnectionsPer10s: 8 })
  const { port } = listener.address
  const secure = tlsOptions(a, openDoor).client(b.nodeId)
  const wanted = async (socket: Duplex): Promise<void> => {
    socket.on('error', () => {})
    socket.resume()
    await new Promise(resolve => socket.on('close', resolve))
  }
  await wanted(connect({ ...secure, host: '127.0.0.1', port })) // says nothing
  const garbage = connect({ ...secure, host: '127.0.0.1', port })
  garbage.write(randomBytes(64))
  await wanted(garbage)
  const { cert: _cert, key: _key, ...nameless } = secure
  await wanted(connect({ ...nameless, host: '127.0.0.1', port }))
  const old = { ...secure, minVersion: 'TLSv1.2' as const, maxVersion: 'TLSv1.2' as const }
  await wanted(connect({ ...old, host: '127.0.0.1', port }))
  await t.rejects(tlsTransport().connect(listener.address, foreign, b.nodeId), { code: /ERR_IO|ERR_DENIED/ })
  const trusting = { rejectUnauthorized: false, checkServerIdentity: () => undefined }
  await wanted(connect({ ...tlsOptions(foreign, openDoor).client(), ...trusting, host: '127.0.0.1', port }))
  t.match(listener.refused, {
    ...{ timeout: 1, frame: 1, 'no certificate': 1, 'tls version': 1, 'foreign certificate': 1 },
  })
  const flood = Array.from({ length: 20 }, () => wanted(connectTcp({ host: '127.0.0.1', port })))
  await Promise.all(flood)
  t.ok(listener.refused['too many']! >= 10)
})

for (const { name, open, skip } of transports)
  t.test(`${name}: listeners and connections that cannot be`, { skip }, async t => {
    const transport = open()
    const listener = await listen(t, transport)
    const taken = { address: listener.address }
    await t.rejects(transport.listen(b, openDoor, taken), { code: 'ERR_IO' }, 'a port that is taken')
    const stop = new AbortController()
    const late = { ...taken, signal: stop.signal }
    await listener.close()
    const closed = t.rejects(transport.listen(b, openDoor, late), 'aborted while it begins')
    stop.abort()
    await closed
    await t.rejects(transport.listen(b, openDoor, late), { name: 'AbortError' }, 'aborted before')
    await (await transport.listen(b, openDoor, taken)).close()
    if (name !== 'grpc' && name !== 'quic') return
    const from = { localAddress: '127.0.0.1' }
    await t.rejects(transport.connect(listener.address, a, b.nodeId, from), { code: 'ERR_UNSUPPORTED' })
  })

t.test('grpc: a listener that is renewed shows its next certificate', async t => {
  const listener = await listen(t, await openTransport('grpc'))
  const shown = async (): Promise<string> => {
    const { port } = listener.address
    const socket = connect({
      ...tlsOptions(a, openDoor).client(),
      ALPNProtocols: ['h2'],
      host: '127.0.0.1',
      port,
    })
    await once(socket, 'secureConnect')
    const { serialNumber } = socket.getPeerCertificate()
    socket.destroy()
    return serialNumber
  }
  const before = await shown()
  listener.renew(a)
  t.not(await shown(), before)
})

t.test('new keys come with the certificates of the moment', async t => {
  const folder = t.testdir({})
  const authority = await ClusterAuthority.create('lab', path.join(folder, 'ca'))
  const [mine, theirs] = await Promise.all(
    ['mine', 'theirs'].map(name => NodeIdentity.open(path.join(folder, name))),
  )
  let own = await authority.certify(mine!)
  const listener = await tlsTransport().listen(await authority.certify(theirs!), openDoor)
  t.teardown(() => listener.close())
  const arriving = listener[Symbol.asyncIterator]().next()
  const options = { rekeyBytes: 100_000 }
  const left = await tlsTransport().connect(listener.address, () => own, undefined, options)
  const right = (await arriving).value as FrameStream
  const before = right.peer.serial
  own = await authority.certify(mine!)
  await left.send({ type: 0, id: 0, payload: Buffer.alloc(150_000) })
  await right.receive()
  for (let i = 0; i < 500 && right.counts.connections < 2; i++)
    await new Promise(resolve => setTimeout(resolve, 10))
  t.not(own.serial, before)
  t.equal(right.peer.serial, own.serial)
})

t.test(
  'quic: a peer that makes no stream loses its connection',
  { skip: !quicFrom && 'no QUIC here' },
  async t => {
    const listener = await listen(t, await openTransport('quic', { quicFrom: quicFrom! }), {
      handshakeMs: 100,
    })
    const connection = await openQuinn(quicFrom!).connect('127.0.0.1', listener.address.port)
    await connection.closed().catch(() => {})
    for (let i = 0; i < 500 && !listener.refused.handshake; i++)
      await new Promise(resolve => setTimeout(resolve, 10))
    t.equal(listener.refused.handshake, 1)
  },
)
