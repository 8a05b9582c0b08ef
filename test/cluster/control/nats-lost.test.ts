// A nats-server that comes back without what it was told to keep: with a full disk nats-server 2.9 leaves empty configurations of streams,
// which it passes over when it starts. Everything is made again, finds what it held, and whoever watches goes on.
import { readdirSync, truncateSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import type { JsonValue } from '#lib/cluster/control/control-plane.js'
import { NatsControlPlane } from '#lib/cluster/control/nats.js'
import { NatsLink } from '#lib/cluster/control/nats-connection.js'
import { NatsServer } from '#lib/cluster/control/nats-server.js'
import { recordsOf } from '../../fixtures/cluster/contract.js'
import { freePorts } from '../../fixtures/cluster/free-port.js'
import { credentialsOf, needsNats, oneServer } from '../../fixtures/cluster/nats.js'

/** Waits for something that a watcher is to see. */
async function until(isSeen: () => boolean): Promise<void> {
  const giveUp = performance.now() + 30_000
  while (!isSeen() && performance.now() < giveUp) await new Promise(resolve => setTimeout(resolve, 20))
}

t.test('streams are made again after a server has lost them', needsNats, async t => {
  const folder = t.testdir()
  const [own] = await credentialsOf(folder, 1)
  const [port] = await freePorts(1)
  const start = () =>
    NatsServer.start({
      credentials: own!,
      folder: path.join(folder, 'nats'),
      nodes: [own!.nodeId],
      listen: { host: '127.0.0.1', port: port! },
    })
  let server = await start()
  const plane = await NatsControlPlane.connect({ servers: [server.address], credentials: own! })
  const stop = new AbortController()
  const seen: [string, JsonValue | undefined][] = []
  const watching = (async () => {
    for await (const { key, value } of plane.kv('nodes').watch(stop.signal)) seen.push([key, value])
  })()
  const followed: JsonValue[] = []
  const following = (async () => {
    for await (const { record } of plane.log.follow(1, stop.signal)) followed.push(record)
  })()
  await plane.kv('nodes').put(own!.nodeId, 1)
  await plane.kv('placements').put('model', 'here')
  await plane.log.append('one')
  const queue = plane.queue('work')
  t.same(await queue.pull({ waitMs: 0 }), [])
  await queue.push('job', 'payload')
  await until(() => seen.length > 0)

  await server.stop()
  const streams = path.join(folder, 'nats/store/jetstream/$G/streams')
  for (const stream of readdirSync(streams)) truncateSync(path.join(streams, stream, 'meta.inf'))
  server = await start()
  t.equal((await plane.kv('placements').get('model'))?.value, 'here', 'a bucket')
  t.match(await queue.pull({ waitMs: 10_000 }), [{ id: 'job', payload: 'payload' }], 'a queue')
  await plane.log.append('two')
  t.same(await recordsOf(plane), [
    { seq: 1, record: 'one' },
    { seq: 2, record: 'two' },
  ])
  t.equal(await plane.kv('nodes').get(own!.nodeId), undefined, 'what was in memory is gone')
  await plane.kv('nodes').put(own!.nodeId, 2)
  await until(() => seen.at(-1)?.[1] === 2 && followed.length === 2)
  t.same(seen.at(-1), [own!.nodeId, 2], 'who watches sees what comes after it')
  t.same(followed, ['one', 'two'], 'who follows the log goes on')
  stop.abort()
  await Promise.all([watching, following])
  await plane.close()
  await server.stop()
})

t.test(
  'what no queue has written does not stay in it, nor a consumer that was deleted away',
  needsNats,
  async t => {
    const folder = t.testdir()
    const [own] = await credentialsOf(folder, 1)
    const server = await oneServer(folder, [own!])
    const address = { servers: [server.address], credentials: own! }
    const plane = await NatsControlPlane.connect(address)
    const link = await NatsLink.open(address, 5000)
    const queue = plane.queue('work')
    await queue.push('first', 1)
    await link.stream.publish('WQ.work.no-json', '{')
    await link.stream.publish('WQ.work.a=b', '1')
    t.match(await queue.pull({ max: 10, waitMs: 5000 }), [{ id: 'first' }])
    await link.manager.consumers.delete('WQ', 'work')
    await queue.push('second', 2)
    const jobs = await queue.pull({ max: 10, waitMs: 20_000 })
    t.ok(jobs.length > 0, 'jobs come again')
    for (const job of jobs) await job.ack()
    t.ok((await link.manager.streams.info('WQ')).state.messages <= 1, 'odd messages are gone')
    await link.connection.close()
    await plane.close()
    await server.stop()
  },
)
