// Shared work on an embedded control plane: order, equal jobs, poison, leases that end, callers that are gone.
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { EmbeddedControlPlane } from '#lib/cluster/control/embedded.js'
import { PressureGate } from '#lib/cluster/devices/pressure-gate.js'
import type { JobHandlers } from '#lib/cluster/jobs/jobs.js'
import { mapJobs, streamJobs } from '#lib/cluster/jobs/map.js'
import { type WorkerEvent, WorkerLoop } from '#lib/cluster/jobs/worker-loop.js'
import { WeightStore } from '#lib/cluster/weights/weight-store.js'

const places = { leaseMs: 600, tries: 3 }

async function planeOf(t: Test): Promise<EmbeddedControlPlane> {
  const plane = await EmbeddedControlPlane.open(path.join(t.testdir(), 'plane'))
  t.teardown(() => plane.close())
  return plane
}

function workerOf(
  t: Test,
  plane: EmbeddedControlPlane,
  node: string,
  handlers: JobHandlers,
  events: WorkerEvent[] = [],
): WorkerLoop {
  const worker = new WorkerLoop(plane, { ...places, node, handlers, onJob: event => events.push(event) })
  t.teardown(() => worker.close())
  return worker
}

const square = (n: unknown): number => Number(n) ** 2
const jobsOf = (count: number, kind = 'square') =>
  Array.from({ length: count }, (_, params) => ({ kind, params }))

t.test('results are in the order of the jobs, and fast workers do more', async t => {
  const plane = await planeOf(t)
  const slow = async (n: unknown): Promise<number> => sleep(40, square(n))
  const fast = async (n: unknown): Promise<number> => sleep(2, square(n))
  workerOf(t, plane, 'slow', { square: slow })
  workerOf(t, plane, 'fast', { square: fast, other: () => 'never asked' })
  const seen: number[] = []
  const { results, nodes, failed, hashes } = await mapJobs(plane, jobsOf(60), {
    ...places,
    onProgress: ({ done, total }) => {
      if (total !== 60) t.fail('the total')
      seen.push(done)
    },
  })
  t.same(
    results,
    Array.from({ length: 60 }, (_, n) => n * n),
  )
  t.same(failed, [])
  t.equal(new Set(hashes).size, 60)
  t.same(
    seen,
    Array.from({ length: 60 }, (_, n) => n + 1),
  )
  t.ok(nodes.get('fast')! > nodes.get('slow')!, `${nodes.get('fast')} and ${nodes.get('slow')}`)
  t.same(await mapJobs(plane, [], places), { results: [], hashes: [], nodes: new Map(), failed: [] })
})

t.test('equal jobs are done once, also later, unless the run is another one', async t => {
  const plane = await planeOf(t)
  let calls = 0
  workerOf(t, plane, 'node', { square: () => calls++ })
  const jobs = [3, 4, 3, 3].map(params => ({ kind: 'square', params: { n: params } }))
  const doubled = async (run = '') => (await mapJobs(plane, jobs, { ...places, run })).results.length
  t.equal(await doubled(), 4)
  t.equal(calls, 2)
  t.equal(await doubled(), 4)
  t.equal(calls, 2, 'results are kept')
  t.equal(await doubled('again'), 4)
  t.equal(calls, 4)
})

t.test('a poison job is given up and named; the others have results', async t => {
  const plane = await planeOf(t)
  const tries: number[] = []
  const handlers: JobHandlers = {
    square: n => {
      if (n !== 2) return square(n)
      tries.push(1)
      throw new Error('the number 2 is poison')
    },
  }
  workerOf(t, plane, 'a', handlers)
  workerOf(t, plane, 'b', handlers)
  await t.rejects(mapJobs(plane, jobsOf(4), places), {
    code: 'ERR_IO',
    message:
      /job 2 \(square\) was given up, its last try on [ab]: the number 2 is poison; give another run to try again/,
  })
  t.equal(tries.length, places.tries)
  const { results, failed } = await mapJobs(plane, jobsOf(4), { ...places, strict: false })
  t.same(results, [0, 1, undefined, 9])
  t.match(failed, [{ index: 2, kind: 'square', error: 'the number 2 is poison' }])
})

t.test('a job whose workers die is given up as well', async t => {
  const plane = await planeOf(t)
  // A killed worker: it has the job, and nothing is heard of it any more.
  const dying = (async () => {
    for (let n = 0; n < places.tries; n++)
      await plane
        .queue('work-square', { ackWaitMs: places.leaseMs, maxDeliveries: places.tries })
        .pull({ waitMs: 5000 })
  })()
  const mapping = t.rejects(mapJobs(plane, jobsOf(1), places), {
    message: /its worker ended 3 times before it had a result/,
  })
  await dying
  await sleep(places.leaseMs)
  workerOf(t, plane, 'late', { square })
  await mapping
})

t.test('a lease that ends: the first result counts, the second one is dropped', async t => {
  const plane = await planeOf(t)
  const [first, second]: WorkerEvent[][] = [[], []]
  let calls = 0
  const { promise: gate, open } = gateOf()
  // Its signs of life do not arrive.
  const queue = plane.queue('work-name', { ackWaitMs: places.leaseMs, maxDeliveries: places.tries })
  const pull = queue.pull.bind(queue)
  queue.pull = async options => (await pull(options)).map(job => ({ ...job, extend: async () => {} }))
  const stuck = new WorkerLoop(plane, {
    ...places,
    node: 'stuck',
    handlers: {
      name: async () => {
        calls++
        await gate
        return 'stuck'
      },
    },
    onJob: event => first!.push(event),
  })
  const mapping = mapJobs(plane, [{ kind: 'name', params: null }], places)
  while (calls === 0) await sleep(10)
  workerOf(t, plane, 'other', { name: () => 'other' }, second)
  const { results, nodes } = await mapping
  t.same(results, ['other'])
  t.same([...nodes], [['other', 1]])
  open()
  while (first!.length === 0) await sleep(10)
  t.match(first, [{ outcome: 'differs' }])
  await stuck.close()
  t.same((await mapJobs(plane, [{ kind: 'name', params: null }], places)).results, ['other'], 'and stays')
})

function gateOf(): { promise: Promise<void>; open: () => void } {
  let open = (): void => {}
  const promise = new Promise<void>(resolve => {
    open = resolve
  })
  return { promise, open }
}

t.test('a signal ends it; jobs that nobody began are not done; a new call goes on', async t => {
  const plane = await planeOf(t)
  const stop = new AbortController()
  const done: number[] = []
  const handler = async (n: unknown): Promise<number> => {
    done.push(Number(n))
    if (done.length === 3) stop.abort(new Error('enough'))
    return sleep(20, square(n))
  }
  const first = workerOf(t, plane, 'node', { square: handler })
  await t.rejects(mapJobs(plane, jobsOf(20), { ...places, signal: stop.signal }), { message: 'enough' })
  const before = [...done]
  t.ok(before.length < 20)
  await sleep(100)
  t.ok(done.length <= before.length + 1, 'nothing is done for nobody')
  await first.close()
  const { results } = await mapJobs(plane, jobsOf(3), { ...places, signal: AbortSignal.timeout(20_000) })
  t.same(results, [0, 1, 4], 'kept')
  await t.rejects(mapJobs(plane, jobsOf(2), { ...places, signal: AbortSignal.abort(new Error('no')) }), {
    message: 'no',
  })
})

t.test('a worker that is closed gives its job back', async t => {
  const plane = await planeOf(t)
  let aborted = false
  const first = new WorkerLoop(plane, {
    ...places,
    node: 'first',
    handlers: {
      square: (_, { signal }) =>
        new Promise((_, reject) =>
          signal.addEventListener('abort', () => {
            aborted = true
            reject(signal.reason)
          }),
        ),
    },
  })
  const mapping = mapJobs(plane, jobsOf(1), places)
  await sleep(50)
  await first.close()
  t.ok(aborted)
  workerOf(t, plane, 'second', { square })
  t.same((await mapping).results, [0])
})

t.test('long values go through a store, others are refused', async t => {
  const plane = await planeOf(t)
  const store = await WeightStore.open(path.join(t.testdirName, 'store'))
  t.teardown(() => store.close())
  const blobs = { store, sources: () => [] }
  const handlers: JobHandlers = { double: x => (x as Float32Array).map(v => v * 2) }
  const worker = new WorkerLoop(plane, { ...places, node: 'node', handlers, blobs })
  t.teardown(() => worker.close())
  const long = Float32Array.from({ length: 100_000 }, (_, i) => i / 3)
  const jobs = [long, new Float32Array([1])].map(params => ({ kind: 'double', params }))
  const { results } = await mapJobs(plane, jobs, { ...places, blobs })
  t.same(results, [long.map(v => v * 2), new Float32Array([2])])
  await t.rejects(mapJobs(plane, jobs, places), { code: 'ERR_RANGE', message: /400\d+ bytes of 32768/ })
})

t.test('results do not wait for looks at jobs that failed', async t => {
  const plane = await planeOf(t)
  workerOf(t, plane, 'node', { square })
  const queue = plane.queue('work-square', { ackWaitMs: places.leaseMs, maxDeliveries: places.tries })
  const failed = queue.failed.bind(queue)
  let looks = 0
  queue.failed = () => {
    looks++
    return failed()
  }
  const began = performance.now()
  let count = 0
  for await (const _ of streamJobs(plane, jobsOf(100), places)) count++
  t.equal(count, 100)
  t.ok(looks <= (performance.now() - began) / 500, `${looks} looks`)
})

t.test('jobs that were not wanted are done when they are asked for again', async t => {
  const plane = await planeOf(t)
  const jobs = jobsOf(3)
  const stop = new AbortController()
  const first = mapJobs(plane, jobs, { ...places, signal: stop.signal })
  const queue = plane.queue('work-square', { ackWaitMs: places.leaseMs, maxDeliveries: places.tries })
  const [job] = await queue.pull({ waitMs: 5000 })
  await job!.nack()
  stop.abort(new Error('Ctrl-C'))
  await t.rejects(first, { message: 'Ctrl-C' })
  workerOf(t, plane, 'node', { square })
  const notes = plane.kv('job-unwanted')
  while ((await notes.keys()).length > 0) await sleep(5)
  const { results } = await mapJobs(plane, jobs, { ...places, signal: AbortSignal.timeout(10_000) })
  t.same(results, [0, 1, 4])
})

t.test('a node under pressure takes no jobs, and gives back what came as it paused', async t => {
  const plane = await planeOf(t)
  const gate = new PressureGate()
  const events: WorkerEvent[] = []
  const paused = new WorkerLoop(plane, {
    ...{ ...places, node: 'paused', handlers: { square }, gate, onJob: event => events.push(event) },
  })
  t.teardown(() => paused.close())
  await gate.apply({ level: 'paused' })
  const queue = plane.queue('work-square', { ackWaitMs: places.leaseMs, maxDeliveries: places.tries })
  const mapping = mapJobs(plane, jobsOf(4), places)
  const [returned] = await queue.pull({ waitMs: 5000 })
  await returned!.nack()
  const other = workerOf(t, plane, 'other', { square })
  const { nodes } = await mapping
  t.same([...nodes], [['other', 4]])
  t.same(events, [])
  await other.close()
  await gate.apply({ level: 'full' })
  t.same([...(await mapJobs(plane, jobsOf(4), { ...places, run: '2' })).nodes], [['paused', 4]])
})

t.test('arguments', async t => {
  const plane = await planeOf(t)
  const worker = (options: object) => () => new WorkerLoop(plane, options as never)
  t.throws(worker({ node: '', handlers: { square } }), { code: 'ERR_ARGUMENT' })
  t.throws(worker({ node: 'x', handlers: {} }), { code: 'ERR_ARGUMENT' })
  t.throws(worker({ node: 'x', handlers: { square: 7 } }), { code: 'ERR_ARGUMENT' })
  t.throws(worker({ node: 'x', handlers: { square }, slots: 0 }), { code: 'ERR_ARGUMENT' })
  t.throws(worker({ node: 'x', handlers: { square }, slot: 1 }), { message: /did you mean/i })
  await t.rejects(mapJobs(plane, [{ kind: '../x', params: 1 }]), { code: 'ERR_ARGUMENT' })
  await t.rejects(mapJobs(plane, jobsOf(1), { tries: 0 }), { code: 'ERR_ARGUMENT' })
  await t.rejects(mapJobs(plane, [{ kind: 'square', params: (() => 1) as never }]), { code: 'ERR_ARGUMENT' })
})

t.test('a stream of results does not wait for jobs that are to come', async t => {
  const plane = await planeOf(t)
  workerOf(t, plane, 'one', { square })
  let arrived = (): void => {}
  const seen: unknown[] = []
  const jobs = async function* () {
    for (const job of jobsOf(5)) {
      const last = new Promise<void>(resolve => {
        arrived = resolve
      })
      yield job
      await last
    }
  }
  for await (const { value, node } of streamJobs(plane, jobs(), places)) {
    seen.push([value, node])
    arrived()
  }
  t.same(
    seen,
    [0, 1, 4, 9, 16].map(value => [value, 'one']),
  )
  // A caller that stops while the next job never comes.
  const endless = async function* () {
    yield* jobsOf(1)
    await new Promise(() => {})
  }
  for await (const { value } of streamJobs(plane, endless(), { ...places, run: 'again' })) {
    t.equal(value, 0)
    break
  }
  await t.rejects(streamJobs(plane, jobsOf(1, 'No kind'), places).next(), { code: 'ERR_ARGUMENT' })
})
