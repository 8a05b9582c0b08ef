// The control plane in NATS: the contract over mutual TLS, who is turned away and why, and what a restart leaves.
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { NatsControlPlane } from '#lib/cluster/control/nats.js'
import { natsConfigText, parseNatsVersion } from '#lib/cluster/control/nats-config.js'
import { checkNatsServer, NatsServer } from '#lib/cluster/control/nats-server.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { contract, contractBuckets, recordsOf } from '../../fixtures/cluster/contract.js'
import { freePorts } from '../../fixtures/cluster/free-port.js'
import { credentialsOf, needsNats, oneServer } from '../../fixtures/cluster/nats.js'

t.test('contract', needsNats, async t => {
  const folder = t.testdir()
  const [one, two] = await credentialsOf(folder, 2)
  const server = await oneServer(folder, [one!, two!], contractBuckets)
  const connect = (credentials: typeof one) =>
    NatsControlPlane.connect({ servers: [server.address], credentials: credentials!, members: 2 })
  const planes = [await connect(one), await connect(two)] as const
  t.match(planes[0].quorum, { members: 2, needed: 1, writable: true, note: /two nodes have no quorum/ })
  await contract(t, planes)
  await Promise.all(planes.map(plane => plane.close()))
  await t.rejects(planes[0].log.append(1), { code: 'ERR_DISPOSED' })
  await server.stop()
})

t.test('who is turned away is told why', needsNats, async t => {
  const folder = t.testdir()
  const [seed, later] = await credentialsOf(folder, 2)
  const [foreign] = await credentialsOf(path.join(folder, 'foreign'), 1)
  const server = await oneServer(folder, [seed!])
  const refused = async (credentials: typeof seed | undefined, message: RegExp) => {
    const options = { servers: [server.address], timeoutMs: 2000, ...(credentials && { credentials }) }
    await t.rejects(NatsControlPlane.connect(options), { code: 'ERR_DENIED', message })
  }
  await refused(undefined, /TLS: it asks for certificates/)
  await refused({ ...seed!, ca: foreign!.ca }, /TLS: .*(self.signed|SELF_SIGNED|UNABLE_TO)/)
  await refused(
    { ...foreign!, ca: seed!.ca, clusterId: seed!.clusterId },
    /TLS: the certificate of this node is not of the CA|TLS: the server refuses/,
  )
  await refused(
    { ...seed!, certificate: '', privateKey: '' },
    /TLS: the server (wants a|refuses the) certificate/,
  )
  await refused(later, /the server knows no node with this certificate/)
  await server.update({ nodes: [seed!.nodeId, later!.nodeId] })
  const plane = await NatsControlPlane.connect({ servers: [server.address], credentials: later! })
  await plane.kv('telemetry').put(later!.nodeId, 1)
  await plane.close()
  const policy = { accepts: () => 'it was revoked' }
  await t.rejects(NatsControlPlane.connect({ servers: [server.address], credentials: seed!, policy }), {
    code: 'ERR_DENIED',
    message: /the peer was refused: it was revoked/,
  })
  await server.stop()
  await t.rejects(NatsControlPlane.connect({ servers: [server.address], credentials: seed! }), {
    code: 'ERR_IO',
    message: /no server listens there/,
  })
})

t.test('a node goes on with its next certificate', needsNats, async t => {
  const folder = t.testdir()
  const authority = await ClusterAuthority.create('test', path.join(folder, 'ca'))
  const identity = await NodeIdentity.open(path.join(folder, 'node'))
  const first = await authority.certify(identity)
  const [monitorPort] = await freePorts(1)
  const server = await NatsServer.start({
    ...{ credentials: first, folder: path.join(folder, 'nats'), nodes: [identity.nodeId] },
    ...{ listen: { host: '127.0.0.1', port: 0 }, monitorPort: monitorPort! },
  })
  const policy = {
    accepts: ({ serial }: { serial: string }) => (serial === revoked ? 'it was revoked' : null),
  }
  let revoked = ''
  const plane = await NatsControlPlane.connect({
    servers: [server.address],
    credentials: first,
    policy,
    timeoutMs: 3000,
  })
  const stop = new AbortController()
  const heard = plane.bus.subscribe('news', stop.signal)
  await heard.ready
  const followed = plane.log.follow(1, stop.signal)[Symbol.asyncIterator]()
  await plane.log.append('before')
  t.match(await followed.next(), { value: { record: 'before' } })

  const next = await authority.certify(identity)
  await server.update({ credentials: next })
  revoked = first.serial
  await Promise.all([plane.bus.publish('news', 'kept'), plane.renew(next)])
  t.equal(await plane.log.append('after'), 2)
  t.match(await followed.next(), { value: { record: 'after' } })
  t.match(await heard[Symbol.asyncIterator]().next(), { value: { payload: 'kept' } })
  const connections = await fetch(`http://127.0.0.1:${monitorPort}/connz?auth=1`)
  const { connections: list } = (await connections.json()) as { connections: { cid: number }[] }
  t.equal(list.length, 1, 'the first connection has ended')

  // Certificates of another CA are shown too, so what is shown is what was given.
  const [foreign] = await credentialsOf(path.join(folder, 'foreign'), 1)
  await plane.renew({ ...foreign!, ca: next.ca, clusterId: next.clusterId })
  await t.rejects(plane.log.append('late'), { code: 'ERR_IO' })
  stop.abort()
  await plane.close()
  await server.stop()
})

t.test('a node writes its own telemetry only', needsNats, async t => {
  const folder = t.testdir()
  const [one, two] = await credentialsOf(folder, 2)
  const server = await oneServer(folder, [one!, two!])
  const servers = [server.address]
  const plane = await NatsControlPlane.connect({ servers, credentials: two!, timeoutMs: 1000 })
  await plane.kv('telemetry').put(two!.nodeId, 'mine')
  await t.rejects(plane.kv('telemetry').put(one!.nodeId, 'forged'), { code: 'ERR_DENIED' })
  t.same(await plane.kv('telemetry').keys(), [two!.nodeId])
  await plane.close()
  await server.stop()
})

t.test('what was acknowledged is there after a restart, also after a kill', needsNats, async t => {
  const folder = t.testdir()
  const credentials = await credentialsOf(folder, 1)
  let server = await oneServer(folder, credentials)
  const connect = () => NatsControlPlane.connect({ servers: [server.address], credentials: credentials[0]! })
  let plane = await connect()
  await plane.log.append('one')
  await plane.queue('work').push('job', 1)
  await plane.kv('placements').put('key', 1)
  await t.rejects(oneServer(folder, credentials), { code: 'ERR_BUSY' }, 'one server at a time')
  await plane.close()
  process.kill(server.pid, 'SIGKILL')
  await server.ended
  server = await oneServer(folder, credentials)
  plane = await connect()
  t.same(await recordsOf(plane), [{ seq: 1, record: 'one' }])
  t.match(await plane.queue('work').pull({ waitMs: 1000 }), [{ id: 'job' }])
  t.equal((await plane.kv('placements').get('key'))?.value, 1)
  t.throws(() => plane.kv('placements', { ttlMs: 500 }), { code: 'ERR_ARGUMENT' })
  await t.rejects(
    plane.kv('mine').put('x', 1),
    { code: 'ERR_DENIED' },
    'a bucket that the server was not told of',
  )
  await server.stop()
  const giveUp = performance.now() + 20_000
  while (plane.quorum.writable && performance.now() < giveUp) await sleep(10)
  t.notOk(plane.quorum.writable, 'without the server it says so')
  await plane.close()
})

t.test('versions and configurations', async t => {
  t.match(parseNatsVersion('nats-server: v2.9.10\n'), { text: '2.9.10', syncs: false, hasMinVersion: false })
  t.match(parseNatsVersion('nats-server: v2.10.7-RC.1'), {
    text: '2.10.7',
    syncs: true,
    hasMinVersion: false,
  })
  t.match(parseNatsVersion('nats-server: v2.11.0'), { syncs: true, hasMinVersion: true })
  t.equal(parseNatsVersion('v3.1.4')?.hasMinVersion, true)
  t.equal(parseNatsVersion('hello'), undefined)
  const config = {
    clusterId: 'c',
    serverId: 's',
    nodes: ['a', 'b'],
    listen: { host: '::', port: 4222 },
    files: { ca: '/c', certificate: '/n', key: '/k', store: '/with "quotes"' },
    maxStoreBytes: 1000,
  }
  const old = natsConfigText({ ...config, version: parseNatsVersion('v2.9.10')! }, [])
  t.notMatch(old, /sync_interval|min_version|cluster|http/)
  t.match(old, 'store_dir: "/with \\"quotes\\""')
  t.match(old, 'listen: "[::]:4222"')
  t.match(old, 'verify_and_map: true')
  const cluster = { host: '0.0.0.0', port: 6222, routes: ['10.0.0.2:6222'] }
  const text = natsConfigText(
    { ...config, cluster, monitorPort: 8222, version: parseNatsVersion('v2.12.0')! },
    ['mine'],
  )
  t.match(text, 'sync_interval: always')
  t.equal(text.match(/min_version: "1\.3"/g)?.length, 2)
  t.match(text, 'http: "127.0.0.1:8222"')
  t.match(text, '$KV.mine.>')
  t.notMatch(
    text.split('\n').find(line => line.includes('spiffe://c/node/a')),
    '$KV.telemetry.b',
  )
})

t.test('a check says what a server cannot do', async t => {
  const path = process.env.PATH
  process.env.PATH = t.testdir()
  t.match(await checkNatsServer(), { version: null, problems: [{ name: 'missing', text: /install it/ }] })
  const options = {
    credentials: {} as never,
    folder: t.testdirName,
    nodes: [],
    listen: { host: '127.0.0.1', port: 0 },
  }
  await t.rejects(NatsServer.start(options), { code: 'ERR_UNSUPPORTED', message: /no nats-server on PATH/ })
  process.env.PATH = path
  for (const { name, text } of (await checkNatsServer()).problems) t.comment(`${name}: ${text}`)
  await t.rejects(NatsControlPlane.connect({ servers: ['10.0.0.1:4222'] }), { code: 'ERR_ARGUMENT' })
  await t.rejects(NatsControlPlane.connect({ servers: [] }), { code: 'ERR_ARGUMENT' })
})
