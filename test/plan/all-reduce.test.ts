// The operator AllReduce: sums over ranks inside of plans, on any sizes and values; ranks of one process never wait for nothing.
import { Model, type PlanCommunicator, Tensor } from 'dgx-spark'
import t from 'tap'
import { join } from '#lib/cluster/communicators/join.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Graph, makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { backends } from '../fixtures/backends.js'

const skip = backends.includes('cpu') ? false : 'no native addon here'

const allReduce = (input: string, output: string) =>
  makeNode('AllReduce', [input], [output], { domain: sparkDomain })

/** y = the sum of 2 · x, z = the sum of y · y. */
const graph: Graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', ['n']) }],
  outputs: [{ name: 'y' }, { name: 'z' }],
  initializers: new Map([['two', Constant.f32(2)]]),
  nodes: [
    makeNode('Mul', ['x', 'two'], ['twice']),
    allReduce('twice', 'y'),
    makeNode('Mul', ['y', 'y'], ['square']),
    allReduce('square', 'z'),
  ],
  opsets: new Map([
    ['', 25],
    [sparkDomain, 1],
  ]),
})

let epoch = 0

/** Models of all ranks of a world. */
async function worldOf(world: number, timeoutMs = 5000) {
  epoch++
  const ranks = Array.from({ length: world }, (_, rank) => rank)
  const communicators = await Promise.all(
    ranks.map(rank => join({ kind: 'local', name: 'all-reduce', epoch, rank, world, timeoutMs })),
  )
  const models = await Promise.all(
    communicators.map(communicator => Model.fromGraph(graph, { backend: 'cpu', communicator })),
  )
  return { communicators, models }
}

const valuesOf = (count: number, rank: number): Float32Array =>
  Float32Array.from({ length: count }, (_, i) => Math.fround(Math.sin(i + 7 * rank)) * 10 ** ((i % 5) - 2))

/** The sum in the order of ranks, as f32 adds. */
const sumOf = (all: readonly Float32Array[]): Float32Array =>
  all.reduce((sum, values) => sum.map((value, i) => Math.fround(value + values[i]!)))

for (const world of [1, 2, 4, 6])
  t.test(`${world} ranks`, { skip }, async t => {
    const { communicators, models } = await worldOf(world)
    for (const count of [1, 3, 1000, 4097, 1]) {
      const inputs = models.map((_, rank) => valuesOf(count, rank))
      if (count === 3) inputs.at(-1)![1] = Number.NaN
      const outputs = await Promise.all(
        models.map((model, rank) => model.run<{ y: 'f32'; z: 'f32' }>({ x: inputs[rank]! })),
      )
      const sum = sumOf(inputs.map(values => values.map(value => 2 * value)))
      const squares = sumOf(inputs.map(() => sum.map(value => Math.fround(value * value))))
      for (const { y, z } of outputs) {
        t.strictSame(y.data, sum, `${count} elements`)
        t.strictSame(z.data, squares)
      }
    }
    for (let run = 0; run < 50; run++)
      await Promise.all(models.map((model, rank) => model.run({ x: valuesOf(5, rank) })))
    for (const model of models) model.dispose()
    await Promise.all(communicators.map(communicator => communicator.leave()))
  })

t.test('a run that fails on one rank ends those of the others with its reason', { skip }, async t => {
  const { models } = await worldOf(2)
  await Promise.all(models.map(model => model.run({ x: valuesOf(5, 0) })))
  const [waiting, odd] = await Promise.allSettled([
    models[0]!.run({ x: valuesOf(5, 0) }),
    models[1]!.run({ x: Tensor.zeros([2, 2]) }),
  ])
  t.match(odd, { status: 'rejected', reason: { code: 'ERR_SHAPE' } })
  t.match(waiting, { status: 'rejected', reason: { code: 'ERR_IO', message: /rank 1 failed: .*x/ } })
  await t.rejects(models[0]!.run({ x: valuesOf(5, 0) }), { code: 'ERR_IO' }, 'the communicator is over')
  for (const model of models) model.dispose()
})

t.test('a run that is aborted, and lengths that differ', { skip }, async t => {
  const aborted = await worldOf(2)
  const controller = new AbortController()
  const first = aborted.models[0]!.run({ x: valuesOf(5, 0) }, { signal: controller.signal })
  controller.abort(new Error('enough'))
  await t.rejects(first, { message: 'enough' })
  await t.rejects(aborted.models[1]!.run({ x: valuesOf(5, 1) }), { code: 'ERR_IO', message: /enough/ })
  const uneven = await worldOf(2)
  const runs = await Promise.allSettled(
    uneven.models.map((model, rank) => model.run({ x: valuesOf(5 + rank, 0) })),
  )
  for (const run of runs) t.match(run, { status: 'rejected', reason: { message: /allReduce/ } })
  for (const model of [...aborted.models, ...uneven.models]) model.dispose()
})

t.test('refused by name', async t => {
  for (const backend of backends) {
    using alone = await Model.fromGraph(graph, { backend })
    await t.rejects(alone.run({ x: valuesOf(2, 0) }), {
      code: 'ERR_UNSUPPORTED',
      message: /AllReduce.* the model has no communicator/,
    })
  }
  const fake = (world: number): PlanCommunicator => ({ rank: 0, world, native: {}, abort: () => {} })
  using two = await Model.fromGraph(graph, { backend: 'js', communicator: fake(2) })
  await t.rejects(two.run({ x: valuesOf(2, 0) }), {
    code: 'ERR_UNSUPPORTED',
    message: /js cannot call a communicator of 2 ranks/,
  })
  using one = await Model.fromGraph(graph, { backend: 'js', communicator: fake(1) })
  const { y } = await one.run<{ y: 'f32' }>({ x: Float32Array.of(1, 2) })
  t.strictSame(y.data, Float32Array.of(2, 4))
  const wrong = { ...fake(2), native: undefined }
  await t.rejects(Model.fromGraph(graph, { backend: 'js', communicator: wrong }), { code: 'ERR_UNSUPPORTED' })
  for (const communicator of [null, {}, 5] as never[])
    await t.rejects(Model.fromGraph(graph, { backend: 'js', communicator }), { code: 'ERR_ARGUMENT' })
  const scalar = makeGraph({
    ...graph,
    outputs: [{ name: 'l' }],
    nodes: [
      allReduce('x', 'y'),
      makeNode('ReduceSum', ['y'], ['l'], { attributes: { keepdims: { type: 'int', value: 0 } } }),
    ],
  })
  t.throws(() => differentiate(scalar, { loss: 'l', wrt: ['x'] }), { message: /AllReduce/ })
})
