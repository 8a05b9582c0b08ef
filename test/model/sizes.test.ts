// Names of sizes are guesses of an exporter: a model runs for any sizes that its nodes take, on every engine.
import { Model } from 'dgx-spark'
import t, { type Test } from 'tap'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Dimension, type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { Tensor } from '#lib/memory/tensor.js'
import { backends } from '../fixtures/backends.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const engines = [...backends, 'onnxruntime'] as const

/** A model of f32 inputs of the given sizes, and an output y. */
function modelOf(
  inputs: Record<string, readonly Dimension[]>,
  nodes: readonly Node[],
  y?: Dimension[],
): Uint8Array {
  const graph: Graph = makeGraph({
    inputs: Object.entries(inputs).map(([name, shape]) => ({ name, type: tensorType('f32', shape) })),
    outputs: [{ name: 'y', ...(y && { type: tensorType('f32', y) }) }],
    nodes,
  })
  return serializeOnnx(graph)
}

/** The warnings of a piece of work about names of sizes. */
async function warningsOf(work: () => Promise<void>): Promise<string[]> {
  const messages: string[] = []
  const listen = (warning: Error & { code?: string }): void => {
    if (warning.code === 'SPARK_SIZE_NAME') messages.push(warning.message)
  }
  process.on('warning', listen)
  await work()
  await new Promise(resolve => setImmediate(resolve))
  process.off('warning', listen)
  return messages
}

const ramp = (...shape: number[]): Tensor =>
  Tensor.from(
    Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i),
    { shape },
  )

const concat = (axis: number): Node =>
  makeNode('Concat', ['a', 'b'], ['y'], { attributes: { axis: int(axis) } })

for (const backend of engines) {
  t.test(`unknown sizes of one name on ${backend}`, async t => {
    const detector = modelOf({ x: ['?', 3, '?', '?'] }, [makeNode('Relu', ['x'], ['y'])])
    using model = await Model.load(detector, { backend })
    t.same(model.inputs[0]!.shape, [null, 3, null, null])
    const warnings = await warningsOf(async () => {
      for (const shape of [
        [1, 3, 32, 32],
        [2, 3, 24, 16],
        [1, 3, 5, 7],
      ])
        t.same((await model.run({ x: ramp(...shape) })).y!.shape, shape)
    })
    t.same(warnings, [], 'what is unknown promises nothing')
    await t.rejects(model.run({ x: ramp(1, 4, 8, 8) }), {
      code: 'ERR_SHAPE',
      message: /\[\?, 3, \?, \?\], got \[ 1, 4/,
    })
  })

  t.test(`one name for two sizes on ${backend}`, async t => {
    using model = await Model.load(modelOf({ a: ['n', 3], b: ['n', 3] }, [concat(0)], ['m', 3]), { backend })
    const warnings = await warningsOf(async () => {
      for (const n of [1, 1, 2, 3]) {
        const { y } = await model.run({ a: ramp(2, 3), b: ramp(n, 3) })
        t.same(y!.shape, [2 + n, 3])
        t.same([...y!.data], [...ramp(2, 3).data, ...ramp(n, 3).data])
      }
    })
    t.equal(warnings.length, 1, 'one warning for each model')
    t.match(warnings[0], /'n' is 2 in 'a', 1 in 'b'/)
  })

  t.test(`square inputs and unused ones on ${backend}`, async t => {
    const unused = modelOf({ x: ['d', 'd'], spare: ['d'] }, [makeNode('Neg', ['x'], ['y'])])
    using model = await Model.load(unused, { backend })
    const warnings = await warningsOf(async () => {
      const { y } = await model.run({ x: ramp(2, 3), spare: ramp(5) })
      t.same(y!.shape, [2, 3])
    })
    t.match(warnings, [/'d' is 2 in 'x', 3 in 'x', 5 in 'spare'/])
  })

  t.test(`broadcasts where names promise none on ${backend}`, async t => {
    const nodes = [makeNode('Add', ['a', 'b'], ['sum']), makeNode('Relu', ['sum'], ['y'])]
    using model = await Model.load(modelOf({ a: ['n', 3], b: ['n', 3] }, nodes, ['n', 3]), { backend })
    const warnings = await warningsOf(async () => {
      const { y } = await model.run({ a: ramp(2, 3), b: ramp(1, 3) })
      t.same([...y!.data], [0, 2, 4, 3, 5, 7])
    })
    t.equal(warnings.length, 1)
  })
}

t.test('equal names prove nothing', async t => {
  await branch(t)
  using model = await Model.load(modelOf({ a: ['?', 3], b: ['?', 3] }, [concat(0)]), { batchSize: 4 })
  t.same(
    model.inputs.map(({ shape }) => shape),
    [
      [4, 3],
      [4, 3],
    ],
  )
  using detector = await Model.load(modelOf({ x: ['?', 3, '?', '?'] }, [makeNode('Relu', ['x'], ['y'])]), {
    batchSize: 2,
  })
  t.same(detector.inputs[0]!.shape, [2, 3, null, null], 'only the first dimension is the batch')
})

/** y = a where the first sizes of a and b are equal, which their names say, else b. */
async function branch(t: Test): Promise<void> {
  const nodes = [
    makeNode('Shape', ['a'], ['sa'], { attributes: { end: int(1) } }),
    makeNode('Shape', ['b'], ['sb'], { attributes: { end: int(1) } }),
    makeNode('Equal', ['sa', 'sb'], ['same']),
    makeNode('Cast', ['same'], ['y'], { attributes: { to: int(1) } }),
  ]
  using model = await Model.load(modelOf({ a: ['n'], b: ['n'] }, nodes))
  await warningsOf(async () => {
    t.same([...(await model.run({ a: ramp(2), b: ramp(3) })).y!.data], [0])
  })
  t.same([...(await model.run({ a: ramp(3), b: ramp(3) })).y!.data], [1])
}

t.test('one compilation serves images that are convolved in tiles and images that are not', async t => {
  const weight = uniform(randomGenerator(4), 32 * 16 * 9)
  const graphOf = (height: Dimension, width: Dimension): Graph =>
    makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [1, 16, height, width]) }],
      outputs: [{ name: 'y' }],
      nodes: [makeNode('Conv', ['x', 'w'], ['y'], { attributes: { pads: ints([1, 1, 1, 1]) } })],
      initializers: new Map([['w', Constant.from('f32', [32, 16, 3, 3], weight)]]),
    })
  for (const backend of backends) {
    using model = await Model.fromGraph(graphOf('h', 'w'), { backend })
    for (const [height, width] of [
      [9, 30],
      [24, 24],
      [5, 6],
      [13, 13],
      [12, 17],
    ] as const) {
      const x = uniform(randomGenerator(height), 16 * height * width)
      const feeds = { x: Tensor.from(x, { shape: [1, 16, height, width] }) }
      using fixed = await Model.fromGraph(graphOf(height, width), { backend })
      const { y } = await model.run(feeds)
      t.same(y, (await fixed.run(feeds)).y, `${height} x ${width} on ${backend}`)
    }
    t.equal(model.stats.compilations, 1)
  }
})
