// AllReduce in plans on the fake driver, over a fake NCCL: sums where operands lie, captured once and replayed; what refuses it.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda', 'nvml', 'nccl'])
t.teardown(() => fakeDriver.dispose())

// y = the sum of x, z = the sum of y; x[i] of rank r in run n is (r + 1) · (i + n).
const head = `${scriptHead}
  import { NativeCommunicator } from '#lib/cluster/communicators/native.js'
  const n = 1003
  const join = async (world, timeoutMs = 20000) => {
    const secret = await addon.ncclSecret()
    return Promise.all(Array.from({ length: world }, (_, rank) => {
      const place = { epoch: 1, rank, world }
      return NativeCommunicator.open('nccl', place, addon.communicatorNccl({ ...place, timeoutMs, device: 0, secret }))
    }))
  }
  const rankOf = (communicator, count = n, graphs = true) => {
    const { rank, world, native } = communicator
    const [x, y, z] = [0, 1, 2].map(() => new Float32Array(count))
    const sum = (x, y) => ({ op: 'allReduce', node: y === z ? 'last' : 'first', args: { count, world, x, y } })
    const plan = addon.planCreate([sum(x, y), sum(y, z)], 0, { scratch: [y.buffer] }, graphs, undefined, native)
    const run = (number, times) => {
      for (let i = 0; i < count; ++i) x[i] = (rank + 1) * (i + number)
      z.fill(-1)
      return addon.planRun(plan, false, times)
    }
    return { communicator, plan, z, run }
  }
  await addon.openDevice(0)
`

t.test('sums of every run, the first of which is eager and the second captured', async t => {
  const script = `${head}
    const wrong = []
    for (const world of [2, 3]) {
      const ranks = (await join(world)).map(one => rankOf(one))
      const factor = world * (world + 1) / 2 * world
      for (let number = 0; number < 5; ++number) {
        await Promise.all(ranks.map(({ run }) => run(number)))
        for (const { z, plan, communicator } of ranks) {
          const at = z.findIndex((value, i) => value !== factor * (i + number))
          if (at >= 0) wrong.push([world, number, communicator.rank, at, z[at]])
          if (addon.planProblem(plan)) wrong.push(addon.planProblem(plan))
        }
      }
      await Promise.all(ranks.map(({ run }) => run(7, 3)))
      if (ranks.some(({ z }) => z[1] !== 8 * factor)) wrong.push([world, 'repeated'])
      for (const { plan } of ranks) addon.planDispose(plan)
      await Promise.all(ranks.map(({ communicator }) => communicator.leave()))
    }
    print(wrong)`
  for (const [profile, copies] of [
    [discrete, 2],
    [integrated, 0],
  ] as const) {
    const { env, lines } = machine(fakeDriver, profile)
    t.strictSame(await scriptResult(script, env), [])
    t.equal(lines('capture').length, 5, 'once for each rank')
    t.strictSame(new Set(lines('instantiate')), new Set([`instantiate 0 kernels ${copies} copies`]))
    t.equal(lines('replay').length, 5 * (4 + 3))
  }
})

t.test('without graphs each run is enqueued', async t => {
  const script = `${head}
    const ranks = (await join(2)).map(one => rankOf(one, n, false)), found = []
    for (let number = 0; number < 3; ++number) {
      await Promise.all(ranks.map(({ run }) => run(number)))
      found.push(...ranks.map(({ z }) => z[2]))
    }
    print(found)`
  const { env, lines } = machine(fakeDriver, discrete)
  t.strictSame(await scriptResult(script, env), [12, 12, 18, 18, 24, 24])
  t.strictSame(lines('capture'), [])
})

t.test('ranks whose sums differ, or that are gone', async t => {
  const script = `${head}
    const done = []
    const uneven = (await join(2)).map((one, rank) => rankOf(one, n + rank))
    done.push(...await Promise.all(uneven.map(({ run }) => attempt(() => run(0)))))
    const [a, b] = (await join(2)).map(one => rankOf(one))
    for (let number = 0; number < 3; ++number) await Promise.all([a.run(number), b.run(number)])
    const waits = attempt(() => a.run(3))
    b.communicator.abort('the thermal limit was reached')
    done.push(await waits, await attempt(() => a.run(4)), await attempt(() => b.run(4)))
    const [alone] = (await join(2, 100)).map(one => rankOf(one))
    done.push(await attempt(() => alone.run(0)))
    print(done)`
  const { env } = machine(fakeDriver, discrete)
  const differ = [
    'ERR_SHAPE',
    /allReduce of node 'first': rank \d called allReduce of 100\d .*, rank \d allReduce of 100\d/,
  ]
  const gone = ['ERR_IO', /NCCL: remote process exited/]
  t.match(await scriptResult(script, env), [
    ...[differ, differ],
    ...[gone, gone, ['ERR_IO', 'the thermal limit was reached']],
    ['ERR_IO', /allReduce of node 'first': .* did not come within 100 ms/],
  ])
})

t.test('a rank that does not come to a replay', async t => {
  const script = `${head}
    const [a, b] = (await join(2, 1000)).map(one => rankOf(one))
    for (let number = 0; number < 3; ++number) await Promise.all([a.run(number), b.run(number)])
    print([await attempt(() => a.run(3)), await attempt(() => b.run(3))])`
  const { env, lines } = machine(fakeDriver, discrete)
  t.match(await scriptResult(script, { ...env, FAKE_NCCL_PATIENCE_MS: '50' }), [
    ['ERR_IO', /the sums of a plan: other ranks did not come within 1000 ms/],
    ['ERR_IO', /NCCL: remote process exited/],
  ])
  t.equal(lines('replay').length, 6)
})

t.test('a sum that NCCL refuses names it, and ends the other rank', async t => {
  const script = `${head}
    const ranks = (await join(2)).map(one => rankOf(one))
    print(await Promise.all(ranks.map(({ run }) => attempt(() => run(0)))))`
  const { env } = machine(fakeDriver, discrete)
  const refused = [
    'ERR_IO',
    /step 0 of the plan, allReduce of node 'first': allReduce: NCCL: invalid argument/,
  ]
  t.match(await scriptResult(script, { ...env, FAKE_NCCL_NO_SUMS: '1' }), [refused, refused])
})

t.test('models of ranks, and communicators that plans on a GPU do not take', async t => {
  const script = `${head}
    import { Model } from 'dgx-spark'
    import { join as joinRanks } from '#lib/cluster/communicators/join.js'
    import { makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', ['n']) }],
      outputs: [{ name: 'y' }],
      nodes: [makeNode('AllReduce', ['x'], ['y'], { domain: sparkDomain })],
      opsets: new Map([['', 25], [sparkDomain, 1]]),
    })
    const openModel = communicator => Model.fromGraph(graph, { backend: 'cuda', communicator })
    const models = await Promise.all((await join(2)).map(openModel))
    const done = []
    for (const x of [[1, 2], [3, 4], [5, 6], [7]]) {
      const outputs = await Promise.all(models.map(model => model.run({ x: Float32Array.from(x) })))
      done.push(...outputs.map(({ y }) => [...y.data]))
    }
    const place = { kind: 'local', name: 'all-reduce', epoch: 1, world: 2 }
    const local = await Promise.all([0, 1].map(rank => joinRanks({ ...place, rank })))
    const model = await openModel(local[0])
    done.push(await attempt(() => model.run({ x: Float32Array.of(1) })))
    const [elsewhere] = await join(1)
    await addon.openDevice(1)
    done.push(await attempt(() => addon.planCreate([], 1, {}, true, undefined, elsewhere.native)))
    print(done)`
  const { env } = machine(fakeDriver, { ...integrated, gpus: [...integrated.gpus, ...discrete.gpus] })
  const twice = (...values: number[]): number[][] => [values, values]
  t.match(await scriptResult(script, env), [
    ...[...twice(2, 4), ...twice(6, 8), ...twice(10, 12), ...twice(14)],
    ['ERR_UNSUPPORTED', /allReduce of node 'y': a plan on the GPU sums over ranks of kind 'nccl' only/],
    ['ERR_ARGUMENT', /the plan is for CUDA device 1, and its communicator has device 0/],
  ])
})
