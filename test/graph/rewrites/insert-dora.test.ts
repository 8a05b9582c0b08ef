// Adapters in a graph: with B = 0 and magnitude = row norms nothing changes, otherwise the merged weight computes the same.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { type DoraTarget, doraParameters, insertDora } from '#lib/graph/rewrites/insert-dora.js'
import { addAdamW } from '#lib/graph/rewrites/optimizer.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'
import { close } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'
import { randomConstants } from '../../fixtures/values/random-tensors.js'

const random = randomGenerator(9)
const f32 = randomConstants(random)

interface Layer {
  readonly x: readonly number[]
  readonly weight: Constant
  readonly nodes: readonly Node[]
  /** The weight as rows of out features: [O, I]. */
  readonly transposed?: boolean
}

const gemm = (transB: number) => [
  makeNode('Gemm', ['x', 'w', 'bias'], ['y'], { attributes: { transB: int(transB) } }),
]
const layers: Readonly<Record<string, Layer>> = {
  'Gemm, transB': { x: [3, 5], weight: f32(7, 5), nodes: gemm(1) },
  Gemm: { x: [3, 5], weight: f32(5, 7), nodes: gemm(0), transposed: true },
  'Gemm, alpha, beta and transA': {
    x: [5, 3],
    weight: f32(5, 7),
    nodes: [
      makeNode('Gemm', ['x', 'w', 'bias'], ['y'], {
        attributes: { transA: int(1), alpha: float(0.75), beta: float(-1.5) },
      }),
    ],
    transposed: true,
  },
  'Gemm, a bias for each token': {
    x: [3, 5],
    weight: f32(7, 5),
    nodes: [
      makeNode('Gemm', ['x', 'w', 'column'], ['y'], { attributes: { transB: int(1), beta: float(2) } }),
    ],
  },
  MatMul: {
    x: [2, 3, 5],
    weight: f32(5, 7),
    nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
    transposed: true,
  },
  Conv: {
    x: [2, 4, 6, 5],
    weight: f32(7, 4, 3, 2),
    nodes: [makeNode('Conv', ['x', 'w', 'bias'], ['y'], { attributes: { pads: ints([1, 0, 1, 1]) } })],
  },
  'Conv, in groups': {
    x: [1, 6, 9],
    weight: f32(4, 3, 3),
    nodes: [makeNode('Conv', ['x', 'w'], ['y'], { attributes: { group: int(2), dilations: ints([2]) } })],
  },
  'a weight that is read twice': {
    x: [3, 5],
    weight: f32(5, 5),
    nodes: [makeNode('MatMul', ['x', 'w'], ['h']), makeNode('MatMul', ['h', 'w'], ['y'])],
    transposed: true,
  },
}

function graphOf({ x, nodes }: Layer, weight: Constant): Graph {
  return makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', x) }],
    outputs: [{ name: 'y' }],
    nodes,
    initializers: new Map([
      ['w', weight],
      ['bias', f32Bias],
      ['column', column],
    ]),
  })
}
const f32Bias = f32(7)
const column = f32(3, 1)

async function run(graph: Graph, x: Float32Array): Promise<Float32Array> {
  using plan = await Plan.create(graph, jsKernels)
  return Float32Array.from((await plan.run({ x })).y as Float32Array)
}

/** magnitude / ‖V‖ · V with V = W + scale · B·A, in the layout of W. */
function merged({ weight, transposed }: Layer, { a, b, magnitude, scale }: DoraTarget): Constant {
  const rank = a.shape[0]!
  const rows = magnitude.count
  const cols = weight.count / rows
  const at = (o: number, i: number): number => (transposed ? i * rows + o : o * cols + i)
  const [w, da, db, m] = [weight, a, b, magnitude].map(({ data }) => data as Float32Array)
  const result = new Float32Array(weight.count)
  for (let o = 0; o < rows; o++) {
    const v = Float64Array.from({ length: cols }, (_, i) => {
      let sum = 0
      for (let r = 0; r < rank; r++) sum += db![o * rank + r]! * da![r * cols + i]!
      return w![at(o, i)]! + scale * sum
    })
    const norm = Math.hypot(...v)
    v.forEach((value, i) => {
      result[at(o, i)] = (m![o]! / norm) * value
    })
  }
  return Constant.from('f32', weight.shape, result)
}

for (const [name, layer] of Object.entries(layers)) {
  t.test(name, async t => {
    const { weight, transposed } = layer
    const [first, ...rest] = weight.shape as [number, ...number[]]
    const [rows, inner] = transposed ? [numel(rest), [first]] : [first, rest]
    const target: DoraTarget = {
      weight: 'w',
      module: 'layer',
      scale: 0.5,
      magnitude: f32(rows),
      a: f32(2, ...inner),
      b: f32(rows, 2, ...inner.slice(1).map(() => 1)),
    }
    const x = uniform(random, numel(layer.x))
    const graph = graphOf(layer, weight)
    const adapted = insertDora(graph, [target])
    const expected = await run(graphOf(layer, merged(layer, target)), x)
    close(t, await run(adapted, x), expected, 1e-6, 'equals the merged weight')
    for (const parameter of doraParameters('layer')) t.ok(adapted.initializers.has(parameter), parameter)
    t.equal(graph.nodes, layer.nodes, 'the graph stays as it was')
  })
}

t.test('without training an adapter of a convolution costs nothing per run', async t => {
  const layer = layers.Conv!
  const target = {
    weight: 'w',
    module: 'c',
    scale: 1,
    magnitude: f32(7),
    a: f32(2, 4, 3, 2),
    b: f32(7, 2, 1, 1),
  }
  using plan = await Plan.create(insertDora(graphOf(layer, layer.weight), [target]), jsKernels)
  t.equal(plan.stats.steps, 1)
})

t.test('adapters that do not fit', async t => {
  const layer = layers['Gemm, transB']!
  const graph = graphOf(layer, layer.weight)
  const target: DoraTarget = {
    weight: 'w',
    module: 'fc',
    scale: 1,
    a: f32(2, 5),
    b: f32(7, 2),
    magnitude: f32(7),
  }
  const fails = (change: Partial<DoraTarget>, expected: { code: string; message: RegExp }) =>
    t.throws(() => insertDora(graph, [{ ...target, ...change }]), expected)
  fails({ weight: 'v' }, { code: 'ERR_ARGUMENT', message: /'v' is no weight/ })
  fails({ weight: 'x' }, { code: 'ERR_ARGUMENT', message: /'x'/ })
  fails({ a: f32(2, 6) }, { code: 'ERR_SHAPE', message: /fc: A, B and magnitude are \[2, 6\].*7 rows of 5/ })
  fails({ b: f32(7, 3) }, { code: 'ERR_SHAPE', message: /\[7, 3\]/ })
  fails({ magnitude: f32(5) }, { code: 'ERR_SHAPE', message: /\[5\]/ })
})

t.test('what AdamW cannot train', async t => {
  const layer = layers.MatMul!
  const graph = graphOf(layer, layer.weight)
  for (const name of ['x', 'nothing']) {
    t.throws(() => addAdamW(graph, { gradients: new Map([[name, 'y']]) }), {
      code: 'ERR_ARGUMENT',
      message: /is no initializer of f32/,
    })
  }
})
