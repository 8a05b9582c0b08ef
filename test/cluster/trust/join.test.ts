// Joining: codes, who is refused, a minute of trust in the network, renewal, and floods of joins.
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect as connectPlain } from 'node:net'
import path from 'node:path'
import { connect } from 'node:tls'
import t from 'tap'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { answerRenewal, Enrolment } from '#lib/cluster/trust/enrolment.js'
import { receiveFrame, sendFrame } from '#lib/cluster/trust/frames.js'
import { codeText, parseCode } from '#lib/cluster/trust/invitations.js'
import { joinCluster, renewCertificate } from '#lib/cluster/trust/join.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { addressKey, RateLimits } from '#lib/cluster/trust/rate-limits.js'
import { type Refusal, Refusals } from '#lib/cluster/trust/refusals.js'

const names = { dns: ['localhost'], ips: ['127.0.0.1'] }
const many = new RateLimits({ address: { count: 1_000_000, seconds: 1 } })
type TapTest = Pick<typeof t, 'testdir' | 'teardown'>
const host = '127.0.0.1'

async function openCluster(t: TapTest, options: { limits?: RateLimits; timeoutMs?: number } = {}) {
  const folder = t.testdir()
  const authority = await ClusterAuthority.create('lab', path.join(folder, 'ca'))
  const credentials = await authority.certify(await NodeIdentity.open(path.join(folder, 'ca')), names)
  const refused: Refusal[] = []
  const joined: string[] = []
  const enrolment = await Enrolment.open({
    authority,
    credentials,
    host,
    limits: many,
    ...options,
    refusals: new Refusals(refusal => refused.push(refusal)),
    onJoined: ({ nodeId }) => void joined.push(nodeId),
  })
  t.teardown(() => enrolment.close())
  const identity = (name: string) => NodeIdentity.open(path.join(folder, name))
  return { folder, authority, enrolment, refused, joined, identity }
}

t.test('a code is read as people type it, and mistyped ones are refused', async t => {
  const code = { secret: randomBytes(16), fingerprint: randomBytes(16).toString('hex') }
  const text = codeText(code)
  t.match(text, /^([0-9A-HJKMNP-TV-Z]{4}-){12}[0-9A-HJKMNP-TV-Z]{4}$/)
  for (const typed of [text, text.toLowerCase(), text.replaceAll('-', ' '), text.replaceAll('0', 'o')])
    t.same(parseCode(typed), code)
  for (const bad of ['', text.slice(1), `${text}0`, text.replace(/^./, 'U'), 'Z'.repeat(52), null as never])
    t.throws(() => parseCode(bad), { code: 'ERR_FORMAT' })
})

t.test('a node joins with a code, once; the port is open while a code is out', async t => {
  const { authority, enrolment, joined, refused, identity } = await openCluster(t)
  t.equal(enrolment.port, null)
  const { code, until } = await enrolment.invite(5)
  t.ok(until.getTime() > Date.now() + 290_000)
  const port = enrolment.port!
  const one = await identity('one')
  const credentials = await joinCluster({ host, port, code, identity: one, names })
  t.match(credentials, { clusterId: authority.clusterId, clusterName: 'lab', nodeId: one.nodeId })
  t.same(joined, [one.nodeId])
  await enrolment.invite(5)
  const again = joinCluster({ host, port: enrolment.port!, code, identity: await identity('two') })
  await t.rejects(again, { code: 'ERR_DENIED', message: /code is unknown, was used or has expired/ })
  t.match(refused, [{ kind: 'code', address: host }])
  t.same(enrolment.refusals.counts, { code: 1 })
  await t.rejects(enrolment.invite(0), { code: 'ERR_ARGUMENT' })
})

t.test('the code names its cluster: a node does not join another one', async t => {
  const first = await openCluster(t)
  const other = await openCluster(t)
  const { code } = await first.enrolment.invite()
  await other.enrolment.invite()
  const identity = await first.identity('one')
  await t.rejects(joinCluster({ host, port: other.enrolment.port!, code, identity }), {
    code: 'ERR_DENIED',
    message: /not of the cluster that made the code/,
  })
  t.equal(other.joined.length + other.refused.length, 0, 'it has sent nothing')
})

t.test('a request that is not bound to the code and the connection', async t => {
  const { authority, enrolment, refused, identity } = await openCluster(t)
  const { code } = await enrolment.invite()
  const { secret } = parseCode(code)
  const { invitationId } = await import('#lib/cluster/trust/invitations.js')
  for (const mac of ['', '00'.repeat(32), 'zz']) {
    const socket = connect({ host, port: enrolment.port!, rejectUnauthorized: false })
    await once(socket, 'secureConnect')
    sendFrame(socket, { request: '{}', invitation: invitationId(secret), mac })
    t.match(await receiveFrame(socket, 5000), { refused: /not bound to the code/ })
  }
  t.equal(refused.length, 3)
  t.ok(await joinCluster({ host, port: enrolment.port!, code, identity: await identity('one'), names }))
  t.equal((await authority.issued()).length, 2, 'wrong ones have not used the code up')
})

t.test('a minute of trust in the network lets nodes join without a code', async t => {
  const { enrolment, identity } = await openCluster(t)
  await enrolment.invite()
  const port = enrolment.port!
  await t.rejects(joinCluster({ host, port, identity: await identity('one') }), {
    message: /a code is needed/,
  })
  await enrolment.trustLan(30)
  t.ok(await joinCluster({ host, port, identity: await identity('one'), names }))
  await t.rejects(enrolment.trustLan(61), { code: 'ERR_ARGUMENT' })
})

t.test('another process makes a code, and the port opens', async t => {
  const { authority, enrolment, identity } = await openCluster(t)
  const { Invitations } = await import('#lib/cluster/trust/invitations.js')
  const { code } = await new Invitations(authority.folder).create(authority.fingerprint, 5)
  for (let tries = 0; enrolment.port === null && tries < 500; tries++)
    await new Promise(r => setTimeout(r, 10))
  t.ok(await joinCluster({ host, port: enrolment.port!, code, identity: await identity('one'), names }))
})

t.test('long frames, other bytes and slow ones are refused', async t => {
  const { enrolment, refused } = await openCluster(t, { timeoutMs: 200 })
  await enrolment.invite()
  const open = async () => {
    const socket = connect({ host, port: enrolment.port!, rejectUnauthorized: false })
    await once(socket, 'secureConnect')
    return socket
  }
  const frames = [
    [Buffer.from('ffffffff', 'hex'), /4294967295 bytes is refused/],
    [Buffer.from('GET / HTTP/1.1\r\n\r\n'), /bytes is refused/],
    [Buffer.from('00000002aaaa', 'hex'), /no JSON/],
    [Buffer.from('000000026e756c6c', 'hex'), /bytes follow/],
    [Buffer.from('000000046e756c6c', 'hex'), /no request to join/],
    [Buffer.from('0000', 'hex'), /not there within 200 ms/],
  ] as const
  for (const [bytes, message] of frames) {
    const socket = await open()
    socket.write(bytes)
    t.match(await receiveFrame(socket, 5000), { refused: message })
  }
  t.same(
    refused.map(({ kind }) => kind),
    ['frame', 'frame', 'frame', 'frame', 'frame', 'timeout'],
  )
})

t.test('thousands of joins that are refused take no memory', async t => {
  const { enrolment, refused } = await openCluster(t, {
    limits: new RateLimits({ address: { count: 20, seconds: 600 } }),
  })
  await enrolment.invite()
  const port = enrolment.port!
  const knock = async () => {
    const socket = connectPlain({ host, port })
    socket.on('error', () => {})
    socket.resume()
    await once(socket, 'close').catch(() => {})
  }
  const flood = async (count: number) => {
    for (let done = 0; done < count; done += 20) await Promise.all(Array.from({ length: 20 }, knock))
  }
  // The first ones are let in and say nothing: they end the connection.
  for (let i = 0; i < 20; i++)
    connectPlain({ host, port })
      .on('error', () => {})
      .end()
  await flood(600)
  global.gc?.()
  const before = process.memoryUsage().rss
  await flood(1000)
  global.gc?.()
  const grown = process.memoryUsage().rss - before
  t.ok(grown < 64 << 20, `${grown} bytes after 1000`)
  t.ok(enrolment.refusals.counts['too many']! >= 1580, JSON.stringify(enrolment.refusals.counts))
  const recorded = refused.filter(({ kind }) => kind === 'too many')
  t.ok(recorded.length >= 1 && recorded.length < 20, 'a flood is recorded once for a window')
})

t.test('a certificate is renewed with a new key, for the node that asks', async t => {
  const { authority, enrolment, identity } = await openCluster(t)
  const { code } = await enrolment.invite()
  const one = await identity('one')
  const old = await joinCluster({ host, port: enrolment.port!, code, identity: one, names })
  const ask = async (request: unknown) =>
    answerRenewal(authority, { ...old, thumbprint: '' }, JSON.parse(JSON.stringify(request)))
  const next = await renewCertificate(one, old, ask, names)
  t.equal(next.nodeId, old.nodeId)
  t.not(next.serial, old.serial)
  t.not(next.privateKey, old.privateKey)
  const other = await identity('two')
  await t.rejects(renewCertificate(other, old, ask, names), { code: 'ERR_DENIED', message: /another node/ })
  await t.rejects(
    renewCertificate(one, old, async () => ({}), names),
    { code: 'ERR_FORMAT' },
  )
  await t.rejects(
    renewCertificate(one, old, async () => old, names),
    { message: /another key/ },
  )
  for (let valid = 2; valid < 8; valid++) await renewCertificate(one, old, ask, names)
  await t.rejects(renewCertificate(one, old, ask, names), {
    code: 'ERR_BUSY',
    message: /has 8 valid certificates/,
  })
  await authority.revocations.add({ serials: [old.serial] })
  await t.rejects(renewCertificate(one, old, ask, names), { message: /was revoked/ })
})

t.test('how addresses count', async t => {
  t.equal(addressKey('::ffff:10.0.0.1'), '10.0.0.1')
  t.equal(addressKey('fe80::1%eth0'), 'fe80:0:0:0::/64')
  t.equal(addressKey('2001:db8:1:2:3:4:5:6'), addressKey('2001:db8:1:2::9'))
  t.equal(addressKey('::1'), '0:0:0:0::/64')
  const limits = new RateLimits({ peer: { count: 2, seconds: 60 } })
  const taken = []
  for (let i = 0; i < 4; i++) taken.push(await limits.take('peer', 'a'))
  t.same(
    taken.map(({ isAllowed, isFirstRefusal }) => [isAllowed, isFirstRefusal]),
    [
      [true, false],
      [true, false],
      [false, true],
      [false, false],
    ],
  )
  t.ok((await limits.take('peer', 'b')).isAllowed)
  t.throws(() => new RateLimits({ peer: { count: 0, seconds: 1 } }), { code: 'ERR_ARGUMENT' })
})
