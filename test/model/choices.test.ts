// What a caller may choose for a model and a run: fed initializers, outputs, threads, and types of results.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../fixtures/backends.js'

/** y = x · wᵀ + b; w and b may be fed. */
const overridable = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', ['N', 2]) }],
  outputs: [{ name: 'y' }],
  nodes: [
    makeNode('Transpose', ['w'], ['wt']),
    makeNode('MatMul', ['x', 'wt'], ['product']),
    makeNode('Add', ['product', 'b'], ['y']),
  ],
  initializers: new Map([
    ['w', Constant.f32([1, 0, 0, 1], [2, 2])],
    ['b', Constant.f32([0, 10])],
  ]),
  overridable: [
    { name: 'w', type: tensorType('f32', [2, 2]) },
    { name: 'b', type: tensorType('f32', [2]) },
  ],
})

for (const backend of [...backends, 'onnxruntime'] as const) {
  t.test(`initializers that are fed on ${backend}`, async t => {
    const model = await Model.load(serializeOnnx(overridable), { backend })
    t.same(
      model.inputs.map(({ name }) => name),
      ['x'],
    )
    t.same(model.overridable, [
      { name: 'w', kind: 'tensor', dtype: 'f32', shape: [2, 2] },
      { name: 'b', kind: 'tensor', dtype: 'f32', shape: [2] },
    ])
    const x = Tensor.from([[1, 2]])
    const run = async (feeds: object): Promise<unknown> => (await model.run({ x, ...feeds })).y!.toArray()
    t.same(await run({}), [[1, 12]])
    t.same(await run({ b: [5, 5] }), [[6, 7]])
    t.same(
      await run({
        w: [
          [0, 1],
          [1, 0],
        ],
      }),
      [[2, 11]],
      'what was folded of it is not used',
    )
    t.same(
      await run({
        w: [
          [0, 1],
          [1, 0],
        ],
        b: [0, 0],
      }),
      [[2, 1]],
    )
    t.same(await run({ b: [1, 1] }), [[2, 3]])
    t.same(await run({}), [[1, 12]], 'later runs have the values of the file')
    await t.rejects(run({ b: [1, 2, 3] }), {
      code: 'ERR_SHAPE',
      message: /feeds\['b'\] must have the shape \[2\]/,
    })
    await t.rejects(run({ product: [1] }), { code: 'ERR_ARGUMENT', message: /no input 'product'/ })
    if (backend !== 'onnxruntime') {
      const bias = new Float32Array([3, 4])
      const bound = await model.bind({ x, b: bias })
      await bound.run()
      t.same(bound.outputs.y!.toArray(), [[4, 6]])
      bound.dispose()
    }
    model.dispose()
  })
}

t.test('a saved model keeps what may be fed', async t => {
  const model = await Model.load(serializeOnnx(overridable), { backend: 'js' })
  const file = `${t.testdir()}/model.onnx`
  await model.save(file)
  t.same((await readOnnx(file)).overridable, overridable.overridable)
  model.dispose()
})

/** a = x + 1, b = a · w, c = 2 y: x and y are read by different outputs. */
const branches = makeGraph({
  inputs: [
    { name: 'x', type: tensorType('f32', ['N']) },
    { name: 'y', type: tensorType('f32', ['M']) },
  ],
  outputs: [{ name: 'a' }, { name: 'b' }, { name: 'c' }],
  nodes: [
    makeNode('Add', ['x', 'one'], ['a']),
    makeNode('Mul', ['a', 'w'], ['b']),
    makeNode('Add', ['y', 'y'], ['c']),
  ],
  initializers: new Map([
    ['one', Constant.f32(1)],
    ['w', Constant.f32(3)],
  ]),
})

for (const backend of [...backends, 'onnxruntime'] as const) {
  t.test(`a subset of the outputs on ${backend}`, async t => {
    const model = await Model.load(serializeOnnx(branches), { backend })
    const feeds = { x: [1, 2], y: [5] }
    const some = await model.run(feeds, { outputs: ['c', 'a'] })
    t.same(Object.keys(some), ['c', 'a'])
    t.same([some.c!.toArray(), some.a!.toArray()], [[10], [2, 3]])
    t.same(Object.keys(await model.run(feeds)), ['a', 'b', 'c'])
    t.same((await model.run(feeds, { outputs: ['b'] })).b!.toArray(), [6, 9])
    await t.rejects(model.run(feeds, { outputs: ['d'] }), {
      code: 'ERR_ARGUMENT',
      message: /no output 'd'.*it has: a, b, c/,
    })
    await t.rejects(model.run(feeds, { outputs: [] }), { code: 'ERR_ARGUMENT' })
    await t.rejects(model.run(feeds, { outputs: ['a', 'a'] }), { code: 'ERR_ARGUMENT' })
    model.dispose()
    const part = await Model.load(serializeOnnx(branches), { backend, outputs: ['c'] })
    t.same([part.inputs.map(({ name }) => name), part.outputs.map(({ name }) => name)], [['y'], ['c']])
    t.same([...part.graph.initializers.keys()], [], 'weights of other outputs are gone')
    t.same((await part.run({ y: [4] })).c!.toArray(), [8])
    part.dispose()
  })
}

t.test('only what the outputs need is computed', async t => {
  const model = await Model.load(serializeOnnx(branches), { backend: 'js' })
  await model.run({ x: [1], y: [1] }, { outputs: ['c'] })
  t.equal(model.stats.steps, 1)
  model.dispose()
})

t.test('threads', async t => {
  const square = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [200, 200]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MatMul', ['x', 'x'], ['y'])],
  })
  const x = Tensor.random([200, 200], { seed: 1 })
  const results: Float32Array[] = []
  for (const threads of [undefined, 0, 1, 2, 3]) {
    for (const backend of ['cpu', 'js', 'onnxruntime', 'auto'] as const) {
      const model = await Model.fromGraph(square, { backend, ...(threads !== undefined && { threads }) })
      const { y } = await model.run<{ y: 'f32' }>({ x })
      if (backend === 'cpu') results.push(y.data)
      model.dispose()
    }
  }
  for (const result of results) t.same(result, results[0], 'the same to the bit')
  for (const threads of [-1, 1.5, 5000, '2'])
    await t.rejects(Model.fromGraph(square, { threads: threads as never }), {
      code: 'ERR_ARGUMENT',
      message: /options\.threads/,
    })
})

t.test('results have the type that is asked for', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3]) }],
    outputs: [{ name: 'best' }, { name: 'y' }],
    nodes: [
      makeNode('ArgMax', ['x'], ['best'], { attributes: { axis: int(0), keepdims: int(0) } }),
      makeNode('Relu', ['x'], ['y']),
    ],
  })
  const model = await Model.fromGraph(graph, { backend: 'js' })
  const { best, y } = await model.run<{ best: 'i64'; y: 'f32' }>({ x: [1, 5, 2] })
  const index: bigint = best.data[0]!
  const floats: Float32Array = y.data
  t.same([index, floats[1]], [1n, 5])
  const any = await model.run({ x: [1, 5, 2] })
  const value = any.best!
  if (value.dtype === 'i64') {
    const exact: BigInt64Array = value.data
    t.equal(exact[0], 1n)
  }
  t.same(value.toArray(), 1)
  const all = await model.run<Tensor<'f32'>>({ x: [1, 5, 2] }, { outputs: ['y'] })
  const again: Float32Array = all.y!.data
  t.equal(again.length, 3)
  model.dispose()
})

t.test(
  'a model gets as many threads as it asks for',
  { skip: !existsSync('/proc/self/task') && 'Linux' },
  async t => {
    const program = `
import { readdirSync } from 'node:fs'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
const g = new GraphBuilder()
const x = g.input('x', 'f32', [600, 600])
g.output(g.add('MatMul', [x, x]), 'y')
const counts = []
for (const threads of [undefined, 1, 3]) {
  const model = await Model.fromGraph(g.build(), { backend: 'cpu', threads })
  const before = readdirSync('/proc/self/task').length
  for (let i = 0; i < 5; i++) await model.run({ x: Tensor.ones([600, 600]) })
  counts.push(readdirSync('/proc/self/task').length - before)
}
console.log(counts.join())`
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      cwd: import.meta.dirname,
      env: { ...process.env, DGX_SPARK_THREADS: '1' },
      encoding: 'utf8',
    })
    t.equal(stdout, '0,0,2\n', stderr)
  },
)
