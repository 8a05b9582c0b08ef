// What each weight loses in a precision mode, and models that keep some of them in bf16.
import { compare, compareWeights, Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { normal, randomGenerator } from '../fixtures/values/random.js'

const random = randomGenerator(21)
const weight = (...shape: number[]): Constant =>
  Constant.from(
    'f32',
    shape,
    normal(
      random,
      shape.reduce((a, b) => a * b),
    ),
  )
const js = { backend: 'js' } as const
const batch = (rows: number) => ({ x: Tensor.from(normal(random, rows * 32), { shape: [rows, 32] }) })

/** Two layers, of which the first is read twice, and one that nvfp4 cannot hold. */
const graph: Graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', ['n', 32]) }],
  outputs: [{ name: 'y' }],
  nodes: [
    makeNode('MatMul', ['x', 'first'], ['a']),
    makeNode('Tanh', ['a'], ['b']),
    makeNode('MatMul', ['b', 'first'], ['c']),
    makeNode('Gemm', ['c', 'second'], ['d'], { attributes: { transB: int(1) } }),
    makeNode('MatMul', ['d', 'odd'], ['y']),
  ],
  initializers: new Map([
    ['first', weight(32, 32)],
    ['second', weight(7, 32)],
    ['odd', weight(7, 5)],
  ]),
})

/** One product with its weight rounded, against the same with the weight itself. */
async function alone(op: string, name: string, x: Tensor, attributes = {}) {
  const one = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', x.shape) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode(op, ['x', name], ['y'], { attributes })],
    initializers: new Map([[name, graph.initializers.get(name)!]]),
  })
  using exact = await Model.fromGraph(one, { ...js, precision: 'fp32' })
  using rounded = await Model.fromGraph(one, { ...js, precision: 'nvfp4' })
  return (await compare(rounded, exact, [{ x }]))[0]!
}

t.test('weights are judged by what their products give on the data', async t => {
  using model = await Model.fromGraph(graph, { ...js, precision: 'fp32' })
  const feeds = batch(9)
  const found = await compareWeights(model, [feeds], js)
  t.same(
    found.map(({ weight }) => weight),
    ['first', 'second'],
    'nvfp4 leaves rows of 7 alone',
  )
  const outputs = [{ name: 'b' }, { name: 'c' }]
  using inner = await Model.fromGraph({ ...graph, outputs }, { ...js, precision: 'fp32' })
  const { b, c } = await inner.run<Tensor>(feeds)
  const [one, two] = [await alone('MatMul', 'first', feeds.x), await alone('MatMul', 'first', b!)]
  const last = await alone('Gemm', 'second', c!, { transB: int(1) })
  const close = (a: number, b: number): boolean => Math.abs(a - b) < 1e-6
  t.ok(close(found[0]!.cosine, Math.min(one.cosine, two.cosine)), 'the worse of two products')
  t.ok(close(found[0]!.relativeError, Math.max(one.relativeError, two.relativeError)))
  t.ok(close(found[1]!.cosine, last.cosine))
  t.ok(last.cosine > 0.98 && last.cosine < 0.9999)
  const fp16 = await compareWeights(model, [feeds], { ...js, precision: 'fp16' })
  t.equal(fp16.length, 3)
  t.ok(fp16.every(({ cosine }) => cosine > 0.999999))
  const [better] = await compareWeights(model, [feeds], { ...js, recipe: 'mse' })
  t.ok(better!.relativeError < found[0]!.relativeError)
})

t.test('kept weights are held in bf16', async t => {
  const data = [batch(11)]
  const load = (precision: 'fp32' | 'bf16' | 'nvfp4', keep?: string[]) =>
    Model.fromGraph(graph, { ...js, precision, ...(keep && { keep }) })
  using exact = await load('fp32')
  using halves = await load('bf16')
  using all = await load('nvfp4')
  using both = await load('nvfp4', ['first', 'second', 'odd'])
  using one = await load('nvfp4', ['first'])
  const error = async (model: Model): Promise<number> => (await compare(model, exact, data))[0]!.relativeError
  t.equal(await error(both), await error(halves))
  t.ok((await error(one)) < (await error(all)))
  t.ok((await error(halves)) < (await error(one)))
  const again = await compareWeights(one, data, js)
  t.same(
    again.map(({ weight }) => weight),
    ['first'],
    'what is in nvfp4 already loses nothing',
  )
})

t.test('what is refused', async t => {
  using model = await Model.fromGraph(graph, { ...js, precision: 'fp32' })
  await t.rejects(compareWeights(model, [], js), { code: 'ERR_ARGUMENT', message: /data is empty/ })
  await t.rejects(compareWeights(model, [batch(1)], { ...js, precision: 'fp32' }), { code: 'ERR_ARGUMENT' })
  await t.rejects(Model.fromGraph(graph, { ...js, precision: 'nvfp4', keep: ['third'] }), {
    code: 'ERR_ARGUMENT',
    message: "options.keep: 'third' is no weight that nvfp4 rounds",
  })
  await t.rejects(Model.fromGraph(graph, { ...js, precision: 'fp16', keep: ['first'] }), {
    code: 'ERR_ARGUMENT',
    message: /precision, with options.keep, must be one of fp8, nvfp4/,
  })
})
