// Three nats-servers, and what is left when the one that leads is killed: every decision that was acknowledged, in its place.
import t from 'tap'
import type { JsonValue } from '#lib/cluster/control/control-plane.js'
import { NatsLink } from '#lib/cluster/control/nats-connection.js'
import { recordsOf } from '../../fixtures/cluster/contract.js'
import { credentialsOf, needsNats, oneServer } from '../../fixtures/cluster/nats.js'
import { kill, threeServers, Writer } from '../../fixtures/cluster/servers.js'

/** Kills of a leader: one in the suite, CONTROL_KILLS of them at night. */
const kills = Number(process.env.CONTROL_KILLS ?? 1)

t.test('the leader is killed', needsNats, async t => {
  const began = performance.now()
  const cluster = await threeServers(t)
  const plane = await cluster.connect()
  t.comment(`three servers that keep everything three times: ${(performance.now() - began).toFixed(0)} ms`)
  t.match(plane.quorum, { members: 3, needed: 2, writable: true, note: /three of 3 nodes/ })
  const stop = new AbortController()
  const followed: JsonValue[] = []
  const following = (async () => {
    for await (const { record } of plane.log.follow(1, stop.signal)) followed.push(record)
  })()
  const seen: JsonValue[] = []
  const watching = (async () => {
    for await (const { value } of plane.kv('placements').watch(stop.signal))
      if (value !== undefined) seen.push(value)
  })()
  await plane.kv('placements').put('epoch', 0)
  await plane.queue('work').push('job', 'payload')
  const writer = new Writer(plane, 'w')
  const gaps: number[] = []
  for (let round = 1; round <= kills; round++) {
    await writer.more(20)
    const leader = await plane.leader()
    const index = cluster.credentials.findIndex(({ nodeId }) => nodeId === leader)
    t.not(index, -1, `the leader is ${leader}`)
    writer.longestGap = 0
    await kill(cluster.servers[index]!)
    await writer.more(20)
    gaps.push(writer.longestGap)
    await plane.kv('placements').put('epoch', round)
    await cluster.start(index)
  }
  await writer.stop()
  const records = new Map((await recordsOf(plane)).map(({ seq, record }) => [seq, record]))
  const lost = [...writer.acknowledged].filter(([seq, record]) => records.get(seq) !== record)
  t.same(lost, [], `${writer.acknowledged.size} acknowledged records`)
  t.equal(records.size, writer.acknowledged.size, 'and none twice, though some were tried again')
  t.match(await plane.queue('work').pull({ waitMs: 5000 }), [{ id: 'job', payload: 'payload' }])
  const giveUp = performance.now() + 40_000
  const isThere = (): boolean => followed.length >= records.size && seen.at(-1) === kills
  while (!isThere() && performance.now() < giveUp) await new Promise(resolve => setTimeout(resolve, 20))
  t.same(followed, [...records.values()], 'who follows the log misses nothing')
  t.equal(seen.at(-1), kills, 'who watches goes on')
  stop.abort()
  await Promise.all([following, watching])
  t.comment(
    `${kills} kills of the leader: acknowledged again after at most ${Math.max(...gaps).toFixed(0)} ms`,
  )
})

t.test('a cluster of servers that still find each other is waited for', needsNats, async t => {
  const folder = t.testdir()
  const [own] = await credentialsOf(folder, 1)
  const server = await oneServer(folder, [own!])
  const link = await NatsLink.open({ servers: [server.address], credentials: own! }, 1000)
  const { JetStreamApiError } = link.packages.jetstream
  const refusal = { code: 400, err_code: 10_005, description: 'no suitable peers for placement' }
  const attempt = async (number: number, enough: number): Promise<number> => {
    if (number < enough) throw new JetStreamApiError(refusal)
    return number
  }
  t.equal(await link.persist('a stream', number => attempt(number, 3)), 3)
  await t.rejects(
    link.persist('a stream', number => attempt(number, Infinity)),
    {
      code: 'ERR_IO',
      message: 'a stream: NATS refused: no suitable peers for placement',
    },
  )
  await link.connection.close()
  await server.stop()
})
