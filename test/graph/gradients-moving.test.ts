// Gradient rules of operators that choose or move elements, against finite differences in double precision.
import t from 'tap'
import { float, int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Attributes, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { type GradientCase, gradientError } from '../fixtures/gradients.js'

/** As in gradients.test.ts. */
const tolerance = 1e-7

const node = (op: string, inputs: readonly string[], attributes: Attributes = {}): Node =>
  makeNode(op, inputs, ['y'], { attributes })

const x = { shape: [3, 5] }
const image = { shape: [2, 3, 5] }
const wide = { shape: [11], range: [-3, 3] } as const

const cases: Readonly<Record<string, GradientCase>> = {
  Abs: { inputs: { x }, nodes: [node('Abs', ['x'])] },
  Max: { inputs: { a: x, b: { shape: [5] } }, nodes: [node('Max', ['a', 'b'])] },
  Min: { inputs: { a: { shape: [3, 1] }, b: x }, nodes: [node('Min', ['a', 'b'])] },
  'Max of one': { inputs: { a: x }, nodes: [node('Max', ['a'])] },
  Clip: {
    inputs: { x },
    nodes: [node('Clip', ['x', 'low', 'high'])],
    constants: { low: Constant.f32(-0.4), high: Constant.f32(0.3) },
  },
  'Clip from above': {
    inputs: { x },
    nodes: [node('Clip', ['x', '', 'high'])],
    constants: { high: Constant.f32(0.3) },
  },
  Sin: { inputs: { x: wide }, nodes: [node('Sin', ['x'])] },
  Cos: { inputs: { x: wide }, nodes: [node('Cos', ['x'])] },
  Softplus: { inputs: { x: wide }, nodes: [node('Softplus', ['x'])] },
  HardSigmoid: { inputs: { x: wide }, nodes: [node('HardSigmoid', ['x'], { alpha: float(0.3) })] },
  HardSwish: { inputs: { x: wide }, nodes: [node('HardSwish', ['x'])] },
  LeakyRelu: { inputs: { x: wide }, nodes: [node('LeakyRelu', ['x'], { alpha: float(0.2) })] },
  Elu: { inputs: { x: wide }, nodes: [node('Elu', ['x'], { alpha: float(1.5) })] },
  Swish: { inputs: { x: wide }, nodes: [node('Swish', ['x'], { alpha: float(1.5) })] },
  Dropout: { inputs: { x }, nodes: [node('Dropout', ['x'])] },
  Where: {
    inputs: { a: x, b: { shape: [5] } },
    constants: { condition: Constant.from('bool', [3, 1], Uint8Array.of(1, 0, 1)) },
    nodes: [node('Where', ['condition', 'a', 'b'])],
  },
  Concat: {
    inputs: { a: image, b: { shape: [2, 1, 5] }, c: image },
    nodes: [node('Concat', ['a', 'b', 'c'], { axis: int(-2) })],
  },
  'Concat, one wanted': {
    inputs: { a: image, b: { shape: [2, 1, 5] } },
    frozen: ['a'],
    nodes: [node('Concat', ['a', 'b', 'b'], { axis: int(1) })],
  },
  Split: {
    inputs: { x: image },
    nodes: [
      makeNode('Split', ['x', 'sizes'], ['a', 'b', 'c'], { attributes: { axis: int(2) } }),
      node('Concat', ['c', 'a', 'a'], { axis: int(-1) }),
    ],
    constants: { sizes: Constant.i64([1, 2, 2]) },
  },
  Slice: {
    inputs: { x: { shape: [4, 3, 7] } },
    nodes: [node('Slice', ['x', 'starts', 'ends', 'axes', 'steps'])],
    constants: {
      starts: Constant.i64([-1, 1]),
      ends: Constant.i64([-100, 100]),
      axes: Constant.i64([2, 0]),
      steps: Constant.i64([-3, 2]),
    },
  },
  'Slice of nothing': {
    inputs: { x },
    nodes: [
      makeNode('Slice', ['x', 'starts', 'ends'], ['part']),
      node('Concat', ['part', 'x'], { axis: int(0) }),
    ],
    constants: { starts: Constant.i64([2]), ends: Constant.i64([2]) },
  },
  Pad: {
    inputs: { x },
    nodes: [node('Pad', ['x', 'pads', 'value'])],
    constants: { pads: Constant.i64([1, -2, 0, 3]), value: Constant.f32(0.5) },
  },
  'Pad, axes': {
    inputs: { x: image },
    nodes: [node('Pad', ['x', 'pads', '', 'axes'])],
    constants: { pads: Constant.i64([2, -1]), axes: Constant.i64([-1]) },
  },
  Gather: {
    inputs: { x: { shape: [3, 4, 5] } },
    nodes: [node('Gather', ['x', 'indices'], { axis: int(1) })],
    constants: { indices: Constant.from('i64', [2, 3], BigInt64Array.of(0n, -1n, 2n, 0n, 0n, 1n)) },
  },
  'Gather, i32': {
    inputs: { x },
    nodes: [node('Gather', ['x', 'indices'])],
    constants: { indices: Constant.from('i32', [2], Int32Array.of(2, 2)) },
  },
  ReduceSumSquare: {
    inputs: { x: image },
    nodes: [node('ReduceSumSquare', ['x', 'axes'], { keepdims: int(0) })],
    constants: { axes: Constant.i64([1]) },
  },
  ReduceMax: { inputs: { x: image }, nodes: [node('ReduceMax', ['x'])] },
  ReduceMin: {
    inputs: { x: image },
    nodes: [node('ReduceMin', ['x', 'axes'], { keepdims: int(0) })],
    constants: { axes: Constant.i64([1]) },
  },
  'ReduceMax, no axes': {
    inputs: { x: image },
    nodes: [node('ReduceMax', ['x'], { noop_with_empty_axes: int(1) })],
  },
  'ReduceMax, two axes': {
    inputs: { x: { shape: [2, 3, 4, 5] } },
    nodes: [node('ReduceMax', ['x', 'axes'])],
    constants: { axes: Constant.i64([-2, 1]) },
  },
  'a step in between': {
    inputs: { x },
    nodes: [
      makeNode('Floor', ['x'], ['steps']),
      makeNode('Sub', ['x', 'steps'], ['rest']),
      node('Mul', ['rest', 'x']),
    ],
  },
}

for (const [name, checked] of Object.entries(cases)) {
  t.test(name, async t => {
    for (const [input, error] of Object.entries(await gradientError(checked))) {
      t.ok(error < tolerance, `${input}: relative error ${error.toExponential(1)}`)
    }
  })
}

t.test('padding that repeats has no gradient yet', async t => {
  const nodes = [node('Pad', ['x', 'pads'], { mode: string('reflect') })]
  const checked = { inputs: { x }, nodes, constants: { pads: Constant.i64([0, 1, 0, 1]) } }
  await t.rejects(gradientError(checked), { code: 'ERR_UNSUPPORTED' })
})

t.test('only casts to floats pass a gradient on', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3]) }],
    outputs: [{ name: 'loss' }],
    nodes: [
      makeNode('Cast', ['x'], ['half'], { attributes: { to: int(10) } }),
      makeNode('Cast', ['half'], ['whole'], { attributes: { to: int(7) } }),
      makeNode('Cast', ['whole'], ['steps'], { attributes: { to: int(1) } }),
      makeNode('Cast', ['half'], ['wide'], { attributes: { to: int(1) } }),
      makeNode('Mul', ['steps', 'wide'], ['product']),
      makeNode('ReduceSum', ['product'], ['loss']),
    ],
  })
  const { graph: whole } = differentiate(graph, { loss: 'loss', wrt: ['x'] })
  const back = whole.nodes.slice(graph.nodes.length).filter(({ op }) => op === 'CastLike')
  t.same(
    back.map(({ inputs }) => inputs[1]),
    ['half', 'x'],
  )
})
