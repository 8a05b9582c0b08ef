// The next certificate of a node, where the CA is here, on another node, or out of reach.
import path from 'node:path'
import t from 'tap'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import { nextCredentials } from '#lib/cluster/node/renewal.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { answerRenewal } from '#lib/cluster/trust/enrolment.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { thumbprintOf } from '#lib/cluster/trust/token-claims.js'
import { SparkError } from '#lib/core/errors.js'

t.test('certificates are renewed', async t => {
  const folder = t.testdir({})
  const authority = await ClusterAuthority.create('lab', path.join(folder, 'seed'))
  const [seed, other] = [
    await NodeIdentity.open(path.join(folder, 'seed')),
    await NodeIdentity.open(path.join(folder, 'other')),
  ]
  const first = await authority.certify(seed)
  const next = await nextCredentials(seed, first, authority, [])
  t.match(next, { nodeId: seed.nodeId, ca: first.ca })
  t.not(next!.serial, first.serial)

  const own = await authority.certify(other)
  const { nodeId, serial, clusterId } = own
  const peer = { nodeId, serial, clusterId, thumbprint: thumbprintOf(own.certificate) }
  const asked: string[] = []
  const link = (name: string, answer: (request: unknown) => Promise<unknown>) => ({
    peer,
    call(method: string, request: unknown) {
      asked.push(`${name} ${method}`)
      return answer(request)
    },
  })
  const without = link('second', () => Promise.reject(new Error('it knows no such question')))
  const withCa = link('seed', request => answerRenewal(authority, peer, request))
  const renewed = await nextCredentials(other, own, undefined, [without, withCa])
  t.match(renewed, { nodeId, clusterId })
  t.not(renewed!.serial, serial)
  t.strictSame(asked, ['second renew', 'seed renew'])
  t.equal(await nextCredentials(other, own, undefined, [without]), undefined)
})

t.test('a listener shows its next certificate, and its links stay', async t => {
  const authority = await ClusterAuthority.create('lab', path.join(t.testdir(), 'ca'))
  const [one, two] = await Promise.all(
    ['one', 'two'].map(name => NodeIdentity.open(path.join(authority.folder, name))),
  )
  const old = await authority.certify(one!)
  const own = await authority.certify(two!)
  const listener = await tlsTransport().listen(old, authority.revocations, { maxConnectionsPerAddress: 2 })
  t.teardown(() => listener.close())
  const first = await tlsTransport().connect(listener.address, own, old.nodeId)
  t.equal(first.peer.serial, old.serial)
  const next = await authority.certify(one!)
  listener.renew(next)
  const second = await tlsTransport().connect(listener.address, own, old.nodeId)
  t.equal(second.peer.serial, next.serial)
  t.equal(second.peer.thumbprint, thumbprintOf(next.certificate))
  t.ok((await first.ping()) > 0)
  await t.rejects(tlsTransport().connect(listener.address, own, old.nodeId), { code: /ERR_IO/ })
  t.strictSame(listener.refused, { 'too many': 1 })
  await t.rejects(tlsTransport().listen(old, authority.revocations, { address: listener.address }), {
    code: 'ERR_IO',
  })

  const [taken] = await Promise.all([listener[Symbol.asyncIterator]().next()])
  const link = taken.value!
  let left = 2
  link.limitCalls(async () => {
    if (left-- === 0) throw new SparkError('ERR_BUSY', 'it asks too often')
  })
  link.handle('name', () => 'one')
  for (let i = 0; i < 2; i++) t.equal(await first.call('name', null), 'one')
  await t.rejects(first.call('name', null), { message: /it asks too often/ })
})
