// Long values of jobs lie in the stores of nodes only: what happens when those nodes, or the caller, are gone.
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { EmbeddedControlPlane } from '#lib/cluster/control/embedded.js'
import { packValue } from '#lib/cluster/jobs/blobs.js'
import { jobId } from '#lib/cluster/jobs/jobs.js'
import { mapJobs, streamJobs } from '#lib/cluster/jobs/map.js'
import { type WorkerEvent, WorkerLoop } from '#lib/cluster/jobs/worker-loop.js'
import type { ChunkSource } from '#lib/cluster/weights/sources.js'
import { WeightStore } from '#lib/cluster/weights/weight-store.js'

const places = { leaseMs: 600, tries: 3 }

async function planeOf(t: Test): Promise<EmbeddedControlPlane> {
  const plane = await EmbeddedControlPlane.open(path.join(t.testdir(), 'plane'))
  t.teardown(() => plane.close())
  return plane
}

const jobsOf = (count: number, kind: string) =>
  Array.from({ length: count }, (_, params) => ({ kind, params }))

/** Chunks of another store. */
const sourceOf = (store: WeightStore): ChunkSource => ({
  name: 'other',
  have: async hashes => hashes.map(hash => store.has(hash)),
  get: hash => store.read(hash),
})

/** Aborted when there are so many results. */
function afterResults(plane: EmbeddedControlPlane, count: number): AbortSignal {
  const stop = new AbortController()
  const look = async (): Promise<void> => {
    while ((await plane.kv('job-results').keys()).length < count) await sleep(5)
    stop.abort(new Error('killed'))
  }
  void look()
  return stop.signal
}

t.test('a long result that went with its node is computed again, whenever it went', async t => {
  const plane = await planeOf(t)
  const storeOf = async (name: string): Promise<WeightStore> => {
    const store = await WeightStore.open(path.join(t.testdirName, name))
    t.teardown(() => store.close())
    return store
  }
  const [own, lost, kept] = await Promise.all(['own', 'lost', 'kept'].map(storeOf))
  const long = (n: unknown) => new Float32Array(20_000).fill(Number(n))
  const first = new WorkerLoop(plane, {
    ...{ ...places, node: 'first', handlers: { long } },
    blobs: { store: lost!, sources: () => [] },
  })
  t.teardown(() => first.close())
  const jobs = jobsOf(2, 'long')
  const blobs = { store: own!, sources: () => [sourceOf(kept!)] }
  // A caller that is killed after its jobs were done, and the node that did them.
  await t.rejects(
    mapJobs(plane, jobs, {
      ...places,
      blobs: { store: own!, sources: () => [] },
      signal: afterResults(plane, 2),
    }),
    { message: 'killed' },
  )
  await first.close()
  let done = 0
  const handlers = {
    long: (n: unknown) => {
      done++
      return long(n)
    },
  }
  const second = new WorkerLoop(plane, {
    ...{ ...places, node: 'second', handlers, blobs: { store: kept!, sources: () => [] } },
  })
  t.teardown(() => second.close())
  const { results, nodes } = await mapJobs(plane, jobs, { ...places, blobs })
  t.same(results, [long(0), long(1)])
  t.same([...nodes], [['second', 2]])
  t.equal(done, 2)
  const streamed: unknown[] = []
  for await (const { value } of streamJobs(plane, jobs, { ...places, blobs })) streamed.push(value)
  t.same(streamed, [long(0), long(1)])
  t.equal(done, 2)
  // Results that nobody keeps for long enough are given up at last.
  const forgetful = { store: own!, sources: () => [] }
  await t.rejects(mapJobs(plane, jobsOf(3, 'long').slice(2), { ...places, blobs: forgetful }), {
    message: /its result was lost: .* \(3 times\)/,
  })
})

t.test('a caller that was killed and took long values with it can ask again', async t => {
  const plane = await planeOf(t)
  const own = await WeightStore.open(path.join(t.testdirName, 'own'))
  const other = await WeightStore.open(path.join(t.testdirName, 'other'))
  t.teardown(() => Promise.all([own.close(), other.close()]))
  const params = new Float32Array(20_000).fill(3)
  const callers = { store: own, sources: () => [] }
  const job = { kind: 'first', params: await packValue(params, callers) }
  const queue = plane.queue('work-first', { ackWaitMs: places.leaseMs, maxDeliveries: places.tries })
  await queue.push(jobId(job, ''), job)
  let isThere = false
  const events: WorkerEvent[] = []
  const worker = new WorkerLoop(plane, {
    ...{ ...places, node: 'node', handlers: { first: x => (x as Float32Array)[0]! } },
    blobs: { store: other, sources: () => (isThere ? [sourceOf(own)] : []) },
    onJob: event => events.push(event),
  })
  t.teardown(() => worker.close())
  while (events.length < places.tries) await sleep(10)
  t.same(await plane.kv('job-results').keys(), [])
  isThere = true
  const { results } = await mapJobs(plane, [{ kind: 'first', params }], { ...places, blobs: callers })
  t.same(results, [3])
})
