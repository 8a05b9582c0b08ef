// Jobs of one node's control plane, done by others over links: results once, links that end, questions that lie.
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { EmbeddedControlPlane } from '#lib/cluster/control/embedded.js'
import { mapJobs } from '#lib/cluster/jobs/map.js'
import { RemoteJobs, shareJobs } from '#lib/cluster/jobs/remote-jobs.js'
import { WorkerLoop } from '#lib/cluster/jobs/worker-loop.js'
import { lab } from '../../fixtures/cluster/lab.js'
import { linkPair } from '../../fixtures/cluster/link-pair.js'

const places = { leaseMs: 20_000, tries: 3 }
const jobs = Array.from({ length: 20 }, (_, params) => ({ kind: 'square', params }))
const squares = jobs.map(({ params }) => params ** 2)

t.test('two nodes work for a third; one is lost and its job goes to the other at once', async t => {
  const plane = await EmbeddedControlPlane.open(path.join(t.testdir(), 'plane'))
  const [lead, a, b] = await lab(t, 3)
  const links = [await linkPair(t, a!, lead!), await linkPair(t, b!, lead!)]
  for (const [, there] of links) shareJobs(there, plane, places)
  const workers: WorkerLoop[] = []
  const workerOf = (i: number, square: (n: unknown) => Promise<number>) =>
    workers.push(
      new WorkerLoop(new RemoteJobs(links[i]![0]), { ...places, node: `node-${i}`, handlers: { square } }),
    )
  let stuck = false
  workerOf(0, () => {
    stuck = true
    return new Promise(() => {})
  })
  const mapping = mapJobs(plane, jobs, places)
  while (!stuck) await sleep(10)
  workerOf(1, async n => sleep(5, Number(n) ** 2))
  links[0]![0].destroy(new Error('lost'))
  const { results, nodes } = await mapping
  t.same(results, squares)
  t.same([...nodes], [['node-1', 20]])
  for (const worker of workers) await worker.close()
  await plane.close()
})

t.test('a poison job, and a job that is known', async t => {
  const plane = await EmbeddedControlPlane.open(path.join(t.testdir(), 'plane'))
  const [lead, a] = await lab(t, 2)
  const [here, there] = await linkPair(t, a!, lead!)
  shareJobs(there, plane, places)
  let calls = 0
  const handlers = {
    square: (n: unknown) => {
      calls++
      if (n === 3) throw new Error('poison')
      return Number(n) ** 2
    },
  }
  const worker = new WorkerLoop(new RemoteJobs(here), { ...places, node: 'remote', handlers })
  await t.rejects(mapJobs(plane, jobs, places), {
    message: /job 3 \(square\) was given up, its last try on remote: poison/,
  })
  t.equal(calls, 22)
  t.equal((await mapJobs(plane, jobs, { ...places, strict: false })).failed.length, 1)
  t.equal(calls, 22)
  await worker.close()
  await plane.close()
})

t.test('jobs of several kinds that are as long as an answer', async t => {
  const plane = await EmbeddedControlPlane.open(path.join(t.testdir(), 'plane'))
  const [lead, a] = await lab(t, 2)
  const [here, there] = await linkPair(t, a!, lead!)
  shareJobs(there, plane, places)
  const kinds = ['length', 'size']
  const long = kinds.map((kind, i) => ({ kind, params: String(i).repeat(30_000) }))
  const length = (text: unknown) => String(text).length
  const first = mapJobs(plane, long, places)
  // Both are in their queues before anybody asks.
  for (const kind of kinds) {
    const queue = plane.queue(`work-${kind}`, { ackWaitMs: places.leaseMs, maxDeliveries: places.tries })
    const [job] = await queue.pull({ waitMs: 5000 })
    await job!.nack()
  }
  const handlers = { length, size: length }
  const worker = new WorkerLoop(new RemoteJobs(here), { ...places, node: 'remote', handlers })
  t.same((await first).results, [30_000, 30_000])
  await worker.close()
  await plane.close()
})

t.test('a node tells of its own jobs only, and asks for few kinds', async t => {
  const plane = await EmbeddedControlPlane.open(path.join(t.testdir(), 'plane'))
  const [lead, a] = await lab(t, 2)
  const [here, there] = await linkPair(t, a!, lead!)
  shareJobs(there, plane, places)
  const id = '0'.repeat(64)
  const record = { state: 'failed', error: 'made up', node: 'x', delivery: 1 }
  t.equal(await here.call('jobs.result', { id, record }), false)
  t.equal(await here.call('jobs.error', { id, error: 'made up' }), null)
  t.same(await plane.kv('job-results').keys(), [])
  t.same(await plane.kv('job-errors').keys(), [])
  const pull = (from: number, count: number) => {
    const kinds = Array.from({ length: count }, (_, i) => `kind${from + i}`)
    return here.call('jobs.pull', { kinds, waitMs: 0 })
  }
  t.same(await pull(0, 60), [])
  t.same(await pull(0, 64), [])
  await t.rejects(pull(1, 64), { message: /may ask for 64 kinds/ })
  await t.rejects(pull(0, 65), { message: /a list of 1 to 64/ })
  await plane.close()
})

t.test('questions that no node asks', async t => {
  const plane = await EmbeddedControlPlane.open(path.join(t.testdir(), 'plane'))
  const [lead, a] = await lab(t, 2)
  const [here, there] = await linkPair(t, a!, lead!)
  shareJobs(there, plane, places)
  const id = '0'.repeat(64)
  const questions: [string, unknown][] = [
    ['pull', null],
    ['pull', { kinds: ['../x'], waitMs: 0 }],
    ['pull', { kinds: 'square', waitMs: 0 }],
    ['pull', { kinds: ['square'], waitMs: 1e9 }],
    ['settle', { token: 1, how: 'constructor' }],
    ['result', { id: 'x', record: { state: 'failed', error: '', node: '', delivery: 1 } }],
    ['result', { id, record: { state: 'done' } }],
    ['look', { id: '../../nodes' }],
    ['error', 7],
  ]
  for (const [method, params] of questions)
    await t.rejects(
      here.call(`jobs.${method}`, params),
      { code: 'ERR_IO', message: /must be|params/ },
      method,
    )
  t.equal(await here.call('jobs.settle', { token: 99, how: 'ack' }), null)
  await plane.close()
})
