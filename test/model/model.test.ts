// Models: what a caller can ask of one, what it refuses, and control flow on every backend.

import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { Worker } from 'node:worker_threads'
import { Model, SparkError, Tensor } from 'dgx-spark'
import t from 'tap'
import { float, graph as graphAttribute, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../fixtures/backends.js'

/** y = relu(x · w), total = Σ x: x [N, 3]. */
const small = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', ['N', 3]) }],
  outputs: [
    { name: 'y', type: tensorType('f32', ['N', 2]) },
    { name: 'total', type: tensorType('f32', []) },
  ],
  nodes: [
    makeNode('MatMul', ['x', 'w'], ['product']),
    makeNode('Relu', ['product'], ['y']),
    makeNode('ReduceSum', ['x'], ['total'], { attributes: { keepdims: int(0) } }),
  ],
  initializers: new Map([['w', Constant.f32([1, -1, 2, 0, 0, 3], [3, 2])]]),
})

for (const backend of backends) {
  t.test(`runs on ${backend}`, async t => {
    using model = await Model.load(serializeOnnx(small), { backend })
    t.same(model.inputs, [{ name: 'x', kind: 'tensor', dtype: 'f32', shape: ['N', 3] }])
    t.same(
      model.outputs.map(({ name, shape }) => [name, shape]),
      [
        ['y', ['N', 2]],
        ['total', []],
      ],
    )
    t.same(model.backend, { name: backend, reason: `the option asks for ${backend}` })
    const { y, total } = await model.run({ x: [[1, 2, 3]] })
    t.same(
      [y!.shape, [...y!.data]],
      [
        [1, 2],
        [5, 8],
      ],
    )
    t.same([total!.shape, [...total!.data]], [[], [6]])
    const other = await model.run({ x: Float32Array.of(1, 2, 3, -1, -2, -3) })
    t.same(
      [other.y!.shape, [...other.y!.data]],
      [
        [2, 2],
        [5, 8, 0, 0],
      ],
    )
    const tensor = await model.run({ x: Tensor.from([[0, 0, 1]]) })
    t.same([...tensor.y!.data], [0, 3])
    t.same([...y!.data], [5, 8], 'results are not overwritten by later runs')
    t.equal(model.stats.plans, 2, 'one plan for each shape')
    const many = await Promise.all([1, 2, 3].map(value => model.run({ x: [[value, 0, 0]] })))
    t.same(
      many.map(result => result.total!.toArray()),
      [1, 2, 3],
      'runs at once',
    )
  })

  t.test(`If, Loop and Scan on ${backend}`, async t => {
    using model = await Model.load(serializeOnnx(controlFlow()), { backend })
    const first = await model.run({ x: [1, 2, 3], n: BigInt64Array.of(4n), up: [1] })
    t.same(first.picked!.toArray(), [11, 12, 13], 'then')
    t.same(first.power!.toArray(), [16, 32, 48], 'x · 2^4')
    t.same(first.steps!.toArray(), [
      [2, 4, 6],
      [4, 8, 12],
      [8, 16, 24],
      [16, 32, 48],
    ])
    t.same(first.sums!.toArray(), [1, 3, 6])
    const second = await model.run({ x: [1, 2, 3], n: [0], up: [0] })
    t.same(second.picked!.toArray(), [9, 8, 7], 'else, which reads an outer value')
    t.same(
      [second.power!.toArray(), second.steps!.shape],
      [
        [1, 2, 3],
        [0, 3],
      ],
      'no step at all',
    )
  })

  t.test(`shapes that depend on data on ${backend}`, async t => {
    const graph = makeGraph({
      inputs: [
        { name: 'x', type: tensorType('f32', ['N']) },
        { name: 'sizes', type: tensorType('i64', [2]) },
      ],
      outputs: ['table', 'where', 'kept', 'twice'].map(name => ({ name })),
      nodes: [
        makeNode('Reshape', ['x', 'sizes'], ['table']),
        makeNode('NonZero', ['x'], ['where']),
        makeNode('Compress', ['x', 'mask'], ['kept']),
        makeNode('Add', ['kept', 'kept'], ['twice']),
      ],
      initializers: new Map([['mask', Constant.from('bool', [3], Uint8Array.of(1, 0, 1))]]),
    })
    using model = await Model.load(serializeOnnx(graph), { backend })
    for (const rows of [2, 3, 2]) {
      const outputs = await model.run({ x: [1, 0, 3, 4, 0, 6], sizes: [rows, -1] })
      t.same(outputs.table!.shape, [rows, 6 / rows])
      t.same(outputs.where!.toArray(), [[0, 2, 3, 5]])
      t.same(outputs.twice!.toArray(), [2, 6])
    }
  })
}

for (const backend of backends) {
  t.test(`bound to fixed memory on ${backend}`, async t => {
    using model = await Model.load(serializeOnnx(small), { backend })
    const [x, y] = [Float32Array.of(1, 2, 3), new Float32Array(2)]
    using bound = await model.bind({ x, y })
    for (const scale of [1, 2, -1]) {
      x.set([scale, 2 * scale, 3 * scale])
      await bound.run()
      t.same([...y], [Math.max(0, 5 * scale), Math.max(0, 8 * scale)], 'written where the caller wants it')
      t.equal(bound.outputs.total!.data[0], 6 * scale, 'memory of its own')
    }
    t.equal(bound.outputs.y!.data, y, 'no copies')
    t.equal(bound.inputs.x!.data, x)
    t.same((await model.run({ x: [[1, 0, 0]] })).y!.toArray(), [[1, 0]], 'plain runs beside it')
    await t.rejects(model.bind({ x, y: new Float32Array(3) }), {
      code: 'ERR_SHAPE',
      message: "'y': [1, 2] has 2 elements, but the array has 3",
    })
    await t.rejects(model.bind({ x, y: new Int32Array(2) }), { code: 'ERR_DTYPE' })
    await t.rejects(model.bind({ x, y: 'there' } as never), { code: 'ERR_ARGUMENT' })
    bound.dispose()
    await t.rejects(bound.run(), { code: 'ERR_DISPOSED' })
    const through = { ...small, outputs: [...small.outputs, { name: 'x' }] }
    using passing = await Model.load(serializeOnnx(through), { backend })
    await t.rejects(passing.bind({ x }), {
      code: 'ERR_UNSUPPORTED',
      message: "output 'x' is an input or a constant, and has no memory of its own: use run",
    })
    using open = await Model.load(serializeOnnx(controlFlow()), { backend })
    await t.rejects(open.bind({ x: [1, 2, 3], n: [1], up: [1] }), {
      code: 'ERR_UNSUPPORTED',
      message: /\(If\): it runs between plans/,
    })
  })

  t.test(`names that every object has on ${backend}`, async t => {
    const odd = makeGraph({
      inputs: [{ name: 'valueOf', type: tensorType('f32', [2]) }],
      outputs: [{ name: 'constructor' }, { name: '__proto__' }],
      nodes: [
        { ...makeNode('ReduceSum', ['valueOf'], ['constructor']), attributes: { keepdims: int(1) } },
        makeNode('Neg', ['valueOf'], ['__proto__']),
      ],
    })
    using model = await Model.load(serializeOnnx(odd), { backend })
    const x = Float32Array.of(1, 2)
    const outputs = await model.run({ valueOf: x })
    t.same(
      Object.entries(outputs).map(([name, { data }]) => [name, ...data]),
      [
        ['constructor', 3],
        ['__proto__', -1, -2],
      ],
    )
    using bound = await model.bind({ valueOf: x })
    await bound.run()
    t.same(
      Object.values(bound.outputs).map(({ data }) => [...data]),
      [[3], [-1, -2]],
    )
    const unknown = { ...odd, nodes: [{ ...odd.nodes[0]!, attributes: { toString: int(1) } }, odd.nodes[1]!] }
    t.ok(serializeOnnx(unknown).length > 0, 'an attribute that is in no table asks for no version')
    const named = {
      ...odd,
      nodes: [{ ...odd.nodes[0]!, op: 'toString', domain: '__proto__' }, odd.nodes[1]!],
    }
    await t.rejects(
      async () => (await Model.load(serializeOnnx(named), { backend })).run({ valueOf: x }),
      { code: 'ERR_UNSUPPORTED' },
      'an operator that is in no table',
    )
  })

  t.test(`several models and workers at once on ${backend}`, async t => {
    const bytes = serializeOnnx(controlFlow())
    const models = await Promise.all([1, 2, 3].map(() => Model.load(bytes, { backend })))
    const power = async (model: Model, n: number) =>
      (await model.run({ x: [1, 2, 3], n: [n], up: [1] })).power!.toArray()
    t.same(await Promise.all(models.map((model, i) => power(model, i))), [
      [1, 2, 3],
      [2, 4, 6],
      [4, 8, 12],
    ])
    for (const model of models) model.dispose()
    const code = `
      const { parentPort, workerData } = require('node:worker_threads')
      import(workerData.library).then(async ({ Model }) => {
        const model = await Model.load(workerData.bytes, { backend: workerData.backend })
        const { power } = await model.run({ x: [1, 2, 3], n: [5], up: [1] })
        parentPort.postMessage([...power.data])
      })`
    const library = import.meta.resolve('dgx-spark')
    const answers = await Promise.all(
      [1, 2].map(async () => {
        const worker = new Worker(code, { eval: true, workerData: { library, bytes, backend } })
        const [answer] = await once(worker, 'message')
        await worker.terminate()
        return answer
      }),
    )
    t.same(answers, [
      [32, 64, 96],
      [32, 64, 96],
    ])
  })
}

/** picked = up ? x + 10 : 10 − x; power, steps: x doubled n times; sums: running sums of x. */
function controlFlow(): Graph {
  const branch = (op: string, inputs: string[], out: string) =>
    graphAttribute(makeGraph({ nodes: [makeNode(op, inputs, [out])], outputs: [{ name: out }] }))
  const body = makeGraph({
    inputs: [
      { name: 'i', type: tensorType('i64', []) },
      { name: 'on', type: tensorType('bool', []) },
      { name: 'before', type: tensorType('f32', [3]) },
    ],
    outputs: [
      { name: 'still', type: tensorType('bool', []) },
      { name: 'after', type: tensorType('f32', [3]) },
      { name: 'seen', type: tensorType('f32', [3]) },
    ],
    nodes: [
      makeNode('Identity', ['on'], ['still']),
      makeNode('Add', ['before', 'before'], ['after']),
      makeNode('Identity', ['after'], ['seen']),
    ],
  })
  const step = makeGraph({
    inputs: [
      { name: 'sum', type: tensorType('f32', []) },
      { name: 'element', type: tensorType('f32', []) },
    ],
    outputs: [
      { name: 'next', type: tensorType('f32', []) },
      { name: 'partial', type: tensorType('f32', []) },
    ],
    nodes: [makeNode('Add', ['sum', 'element'], ['next']), makeNode('Identity', ['next'], ['partial'])],
  })
  return makeGraph({
    inputs: [
      { name: 'x', type: tensorType('f32', [3]) },
      { name: 'n', type: tensorType('i64', [1]) },
      { name: 'up', type: tensorType('bool', [1]) },
    ],
    outputs: ['picked', 'power', 'steps', 'sums'].map(name => ({ name, type: tensorType('f32') })),
    nodes: [
      makeNode('If', ['up'], ['picked'], {
        attributes: {
          then_branch: branch('Add', ['x', 'ten'], 'more'),
          else_branch: branch('Sub', ['ten', 'x'], 'less'),
        },
      }),
      makeNode('Loop', ['n', '', 'x'], ['power', 'steps'], { attributes: { body: graphAttribute(body) } }),
      makeNode('Scan', ['zero', 'x'], ['last', 'sums'], {
        attributes: { body: graphAttribute(step), num_scan_inputs: int(1) },
      }),
    ],
    initializers: new Map([
      ['ten', Constant.f32(10)],
      ['zero', Constant.f32(0)],
    ]),
  })
}

t.test('bad feeds', async t => {
  using model = await Model.load(serializeOnnx(small), { backend: 'js' })
  const refused = (feeds: object, code: string, message: string) =>
    t.rejects(model.run(feeds as never), { code, message }, message)
  await refused({}, 'ERR_ARGUMENT', "feeds['x'] is missing; the model wants 'x': f32 [N, 3]")
  await refused({ z: [[1]] }, 'ERR_ARGUMENT', "the model has no input 'z'; it has 'x': f32 [N, 3]")
  await refused({ x: [[1, 2]] }, 'ERR_SHAPE', "feeds['x'] must have the shape [N, 3], got [ 1, 2 ]")
  await refused({ x: [1, 2, 3] }, 'ERR_SHAPE', "feeds['x'] must have the shape [N, 3], got [ 3 ]")
  await refused(
    { x: new Float32Array(4) },
    'ERR_SHAPE',
    "feeds['x'] must have the shape [N, 3], got 4 elements",
  )
  await refused(
    { x: new Float64Array(3) },
    'ERR_DTYPE',
    "feeds['x'] must be a Float32Array for f32, got Float64Array(3)",
  )
  await refused(
    { x: Tensor.from([[1, 2, 3]], { dtype: 'f16' }) },
    'ERR_DTYPE',
    "feeds['x'] must be of f32, got a tensor of f16 [1, 3]; convert it: tensor.to('f32')",
  )
  await refused(
    { x: 'abc' },
    'ERR_ARGUMENT',
    "feeds['x'] must be a Tensor, typed array or nested arrays of f32, got 'abc'",
  )
  await t.rejects(model.run({ x: [[1, 2, 3]] }, { sigal: 1 } as never), { code: 'ERR_ARGUMENT' })
  await t.rejects(Model.load(serializeOnnx(small), { backend: 'gpu' as never }), { code: 'ERR_ARGUMENT' })
  await t.rejects(Model.load('there-is-no-such.onnx'), { code: 'ERR_IO' })
})

t.test('sizes of the same name', async t => {
  const graph = makeGraph({
    inputs: ['a', 'b'].map(name => ({ name, type: tensorType('f32', ['N']) })),
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Add', ['a', 'b'], ['y'])],
  })
  using model = await Model.load(serializeOnnx(graph), { backend: 'js' })
  await t.rejects(model.run({ a: [1, 2], b: [1, 2, 3] }), {
    code: 'ERR_SHAPE',
    message: "node 'y' (Add): shapes [2] and [3] do not broadcast",
  })
})

t.test('an operator that nobody knows', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Frobnicate', ['x'], ['y'], { attributes: { alpha: float(1) } })],
  })
  using model = await Model.load(serializeOnnx(graph), { backend: 'js' })
  await t.rejects(model.run({ x: [1] }), {
    code: 'ERR_UNSUPPORTED',
    message: "node 'y' (Frobnicate): there is no such operator yet",
  })
  const nodes = [makeNode('Conv', ['x'], ['y'], { domain: 'com.microsoft.nchwc' })]
  using blocked = await Model.fromGraph({ ...graph, nodes }, { backend: 'js' })
  await t.rejects(blocked.run({ x: [1] }), { code: 'ERR_UNSUPPORTED', message: /extended optimizations/ })
})

t.test('save, file URLs, dispose, abort', async t => {
  const folder = mkdtempSync(path.join(tmpdir(), 'model-'))
  const file = path.join(folder, 'small.onnx')
  const model = await Model.load(serializeOnnx(small), { backend: 'js' })
  await model.save(file)
  for (const source of [file, pathToFileURL(file)]) {
    using copy = await Model.load(source)
    t.match(copy.backend, { name: /cuda|cpu|js/, reason: /./ }, 'auto says what and why')
    t.same((await copy.run({ x: [[1, 2, 3]] })).y!.toArray(), [[5, 8]])
  }
  const reason = new Error('enough')
  await t.rejects(model.run({ x: [[1, 2, 3]] }, { signal: AbortSignal.abort(reason) }), reason)
  const controller = new AbortController()
  const run = model.run({ x: [[1, 2, 3]] }, { signal: controller.signal })
  controller.abort(reason)
  await t.rejects(run, reason)
  t.same((await model.run({ x: [[1, 2, 3]] })).y!.toArray(), [[5, 8]], 'an aborted run harms no later one')
  const asked = [model.run({ x: [[1, 2, 3]] }), model.run({ x: [[1, 0, 0]] })]
  model.dispose()
  model.dispose()
  await t.rejects(model.run({ x: [[1, 2, 3]] }), { code: 'ERR_DISPOSED' })
  const late = (await Promise.all(asked)).map(({ y }) => y!.toArray())
  t.same(late, [[[5, 8]], [[1, 0]]], 'runs that were asked for before end first')
  t.throws(() => model.stats, SparkError)
})
