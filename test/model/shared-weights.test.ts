// Weights belong to the process: plans of all sizes, and models of one file, share what is made of them.
import { copyFileSync, utimesSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { Model, Tensor } from '#lib/index.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { openKernels } from '#lib/kernels/open.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { sharedGraph } from '#lib/model/shared-files.js'
import { hostTensor } from '#lib/model/values.js'
import { loadAddon } from '#lib/native.js'

const features = 96

/** y = x · w for any number of rows. */
const graph: Graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [null, features]) }],
  outputs: [{ name: 'y' }],
  nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
  initializers: new Map([
    ['w', Constant.from('f32', [features, features], Float32Array.from({ length: features ** 2 }, Math.sin))],
  ]),
  opsets: new Map([['', 21]]),
})

const rows = (count: number) =>
  hostTensor('f32', [count, features], new Float32Array(count * features).fill(0.5))

const skip = loadAddon().addon ? false : 'the addon does not load'

t.test('plans of all sizes have one copy of the weights', { skip }, async t => {
  const runners = [new GraphRunner(graph, await openKernels({ backend: 'cpu' }))]
  runners.push(new GraphRunner(graph, await openKernels({ backend: 'cpu' })))
  for (const runner of runners) for (const count of [2, 3, 50, 1]) await runner.run([rows(count)])
  t.same(
    runners.map(({ compilations }) => compilations),
    [2, 2],
    'one row is fixed',
  )
  const constants = runners.flatMap(({ plans }) => plans).map(({ constants }) => constants)
  t.equal(constants.length, 8)
  const [packed] = constants[0]!
  t.ok(packed!.byteLength >= 4 * features ** 2)
  for (const others of constants) t.equal(others[0], packed, 'the same array')
  for (const runner of runners) runner.dispose()
})

t.test('models of one file share it', async t => {
  const folder = t.testdir()
  const [file, other] = [path.join(folder, 'a.onnx'), path.join(folder, 'b.onnx')]
  writeFileSync(file, serializeOnnx(graph))
  const made: string[] = []
  const read = async (): Promise<Graph> => {
    made.push('read')
    return { ...graph }
  }
  t.not(await sharedGraph(file, read), await sharedGraph(file, read), 'it may still be written')
  await new Promise(resolve => setTimeout(resolve, 2100))
  const first = await sharedGraph(file, read)
  t.equal(await sharedGraph(file, read), first)
  t.equal(made.length, 3)
  copyFileSync(file, other)
  t.not(await sharedGraph(other, read), first, 'another file')
  utimesSync(file, 1, 1)
  t.not(await sharedGraph(file, read), first, 'another time of change')
  t.not(await sharedGraph(path.join(folder, 'missing.onnx'), read), first)
  const models = await Promise.all([Model.load(file), Model.load(file)])
  const feeds = { x: Tensor.ones([4, features]) }
  const [a, b] = await Promise.all(models.map(model => model.run<{ y: 'f32' }>(feeds)))
  t.same(a!.y.data, b!.y.data)
  for (const model of models) model.dispose()
})

t.test("memory: 'small' keeps no enlarged weights", { skip }, async t => {
  const channels = 32
  const w = Constant.from(
    'f32',
    [channels, channels, 3, 3],
    Float32Array.from({ length: 9 * channels ** 2 }, (_, i) => Math.sin(i)),
  )
  const conv = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1, channels, 24, 24]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Conv', ['x', 'w'], ['y'], { attributes: { pads: ints([1, 1, 1, 1]) } })],
    initializers: new Map([['w', w]]),
    opsets: new Map([['', 21]]),
  })
  const feeds = { x: Tensor.random([1, channels, 24, 24], { seed: 1 }) }
  const results: Float32Array[] = []
  const bytes: number[] = []
  for (const memory of ['fast', 'small'] as const) {
    const model = await Model.fromGraph(conv, { backend: 'cpu', memory })
    results.push((await model.run<{ y: 'f32' }>(feeds)).y.data)
    bytes.push(model.stats.constantBytes)
    model.dispose()
  }
  t.ok(bytes[0]! >= 3 * bytes[1]!, `${bytes}`)
  t.equal(bytes[1], w.byteLength)
  const error = Math.max(...results[0]!.map((value, i) => Math.abs(value - results[1]![i]!)))
  t.ok(error < 1e-3, `${error}`)
  await t.rejects(Model.fromGraph(conv, { memory: 'tiny' as never }), { code: 'ERR_ARGUMENT' })
})
