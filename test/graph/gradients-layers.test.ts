// Gradient rules of attention, formulas, transposed convolutions and resized images against finite differences in double
// precision, on odd shapes and with every option.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int, ints, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Attributes, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { type Checked, type GradientCase, gradientError } from '../fixtures/gradients.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'
import { randomConstants } from '../fixtures/values/random-tensors.js'

/** Central differences with steps of 1e-5 are exact to about 1e-9 for numbers near 1. */
const tolerance = 1e-7

const node = (op: string, inputs: readonly string[], attributes: Attributes = {}): Node =>
  makeNode(op, inputs, ['y'], { attributes })

const einsum = (equation: string, ...shapes: (readonly number[])[]): GradientCase => {
  const inputs = Object.fromEntries(shapes.map((shape, i): [string, Checked] => [`x${i}`, { shape }]))
  return { inputs, nodes: [node('Einsum', Object.keys(inputs), { equation: string(equation) })] }
}

const resize = (
  shape: readonly number[],
  how: { scales?: readonly number[]; sizes?: readonly number[] },
  attributes: Attributes,
): GradientCase => ({
  inputs: { x: { shape } },
  nodes: [node('Resize', ['x', '', how.scales ? 'scales' : '', how.sizes ? 'sizes' : ''], attributes)],
  constants: {
    ...(how.scales && { scales: Constant.f32(how.scales, [how.scales.length]) }),
    ...(how.sizes && { sizes: Constant.i64(how.sizes) }),
  },
})

interface AttentionCase {
  readonly q: readonly number[]
  readonly k: readonly number[]
  readonly v: readonly number[]
  readonly attributes?: Attributes
  readonly mask?: Constant
  readonly past?: readonly [k: Constant, v: Constant]
}

const attention = ({ q, k, v, attributes, mask, past }: AttentionCase): GradientCase => ({
  inputs: { q: { shape: q }, k: { shape: k }, v: { shape: v } },
  nodes: [
    node('Attention', ['q', 'k', 'v', mask ? 'mask' : '', ...(past ? ['pastK', 'pastV'] : [])], attributes),
  ],
  constants: { ...(mask && { mask }), ...(past && { pastK: past[0], pastV: past[1] }) },
})

const f32 = randomConstants(randomGenerator(3))

const cases: Readonly<Record<string, GradientCase>> = {
  PRelu: {
    inputs: { x: { shape: [3, 5, 2] }, slope: { shape: [5, 1] } },
    nodes: [node('PRelu', ['x', 'slope'])],
  },
  Tile: {
    inputs: { x: { shape: [3, 1, 5] } },
    nodes: [node('Tile', ['x', 'repeats'])],
    constants: { repeats: Constant.i64([2, 3, 1]) },
  },
  ConvTranspose: {
    inputs: { x: { shape: [2, 4, 3, 5] }, w: { shape: [4, 3, 3, 2] }, b: { shape: [3] } },
    nodes: [
      node('ConvTranspose', ['x', 'w', 'b'], {
        strides: ints([2, 1]),
        pads: ints([1, 0, 0, 1]),
        output_padding: ints([1, 0]),
      }),
    ],
  },
  'ConvTranspose, in groups, dilated, one axis': {
    inputs: { x: { shape: [1, 6, 5] }, w: { shape: [6, 2, 3] } },
    nodes: [node('ConvTranspose', ['x', 'w'], { group: int(3), dilations: ints([2]) })],
  },
  'ConvTranspose, padded to a shape': {
    inputs: { x: { shape: [1, 2, 3, 3] }, w: { shape: [2, 3, 3, 3] } },
    nodes: [node('ConvTranspose', ['x', 'w'], { strides: ints([3, 2]), output_shape: ints([10, 8]) })],
  },
  'Resize, nearest': resize(
    [1, 2, 3, 5],
    { scales: [1, 1, 2, 1.4] },
    {
      mode: string('nearest'),
      coordinate_transformation_mode: string('asymmetric'),
      nearest_mode: string('floor'),
    },
  ),
  'Resize, linear, larger and smaller': resize(
    [2, 1, 5, 3],
    { sizes: [2, 1, 3, 7] },
    { mode: string('linear') },
  ),
  'Resize, linear, corners aligned': resize(
    [1, 1, 3, 4],
    { sizes: [1, 1, 5, 2] },
    { mode: string('linear'), coordinate_transformation_mode: string('align_corners') },
  ),
  'Resize, cubic': resize([1, 1, 5, 4], { scales: [1, 1, 1.6, 0.5] }, { mode: string('cubic') }),
  'Resize, smoothed': resize(
    [1, 1, 7, 6],
    { sizes: [1, 1, 3, 4] },
    { mode: string('linear'), antialias: int(1) },
  ),
  'Resize, one axis': resize([3, 5], { sizes: [8] }, { mode: string('linear'), axes: ints([-1]) }),
  'Einsum, a product': einsum('ij,jk->ik', [3, 5], [5, 2]),
  'Einsum, scores of heads': einsum('bhqd,bhkd->bhqk', [2, 3, 4, 5], [2, 3, 2, 5]),
  'Einsum, outer': einsum('i,j->ji', [3], [5]),
  'Einsum, a diagonal': einsum('iij->ji', [3, 3, 2]),
  'Einsum, a trace of a product': einsum('ii,ij->', [3, 3], [3, 2]),
  'Einsum, a sum': einsum('ijk->j', [3, 2, 5]),
  'Einsum, implied result': einsum('bi,ij', [3, 2], [2, 5]),
  'Einsum, three operands': einsum('ij,jk,kl->il', [3, 2], [2, 5], [5, 4]),
  'Einsum, a tensor with itself': {
    inputs: { x: { shape: [3, 5] } },
    nodes: [node('Einsum', ['x', 'x'], { equation: string('ij,kj->ik') })],
  },
  'Einsum, an ellipsis that is repeated': einsum('...ij,...jk->...ik', [2, 1, 3, 5], [4, 5, 2]),
  'Einsum, an ellipsis that is summed': einsum('...i,...->i', [2, 3, 5], [1, 3]),
  Attention: attention({ q: [2, 3, 4, 5], k: [2, 3, 6, 5], v: [2, 3, 6, 2] }),
  'Attention, flat, grouped heads': attention({
    q: [2, 3, 8],
    k: [2, 5, 4],
    v: [2, 5, 6],
    attributes: { q_num_heads: int(4), kv_num_heads: int(2), scale: float(0.7) },
  }),
  'Attention, causal, softcap': attention({
    q: [1, 2, 5, 3],
    k: [1, 2, 5, 3],
    v: [1, 2, 5, 3],
    attributes: { is_causal: int(1), softcap: float(1.5) },
  }),
  'Attention, mask': attention({
    q: [2, 2, 3, 4],
    k: [2, 2, 5, 4],
    v: [2, 2, 5, 3],
    mask: f32(2, 1, 3, 5),
  }),
  'Attention, mask of bools': attention({
    q: [1, 1, 2, 3],
    k: [1, 1, 3, 3],
    v: [1, 1, 3, 2],
    mask: Constant.from('bool', [2, 3], Uint8Array.of(1, 1, 0, 0, 1, 1)),
  }),
  'Attention, past': attention({
    q: [1, 2, 3, 4],
    k: [1, 2, 3, 4],
    v: [1, 2, 3, 5],
    past: [f32(1, 2, 2, 4), f32(1, 2, 2, 5)],
    attributes: { is_causal: int(1) },
  }),
  'Attention, flat, past': attention({
    q: [1, 3, 6],
    k: [1, 3, 6],
    v: [1, 3, 4],
    past: [f32(1, 2, 4, 3), f32(1, 2, 4, 2)],
    attributes: { q_num_heads: int(2), kv_num_heads: int(2) },
  }),
}

/** The gradients of Σ y² / 2 in f32 on a backend. */
async function gradientsOn(backend: 'js' | 'cpu', { inputs, nodes, constants = {} }: GradientCase) {
  const values = randomGenerator(8)
  const feeds = Object.fromEntries(
    Object.entries(inputs).map(([name, { shape }]) => {
      return [name, uniform(values, numel(shape))]
    }),
  )
  const graph = makeGraph({
    inputs: Object.entries(inputs).map(([name, { shape }]) => ({ name, type: tensorType('f32', shape) })),
    outputs: [],
    nodes: [
      ...nodes,
      makeNode('Mul', ['y', 'y'], ['square']),
      makeNode('ReduceSum', ['square'], ['loss'], { attributes: { keepdims: int(0) } }),
    ],
    initializers: new Map(Object.entries(constants)),
  })
  const made = differentiate(graph, { loss: 'loss', wrt: Object.keys(inputs) })
  const outputs = [...made.gradients.values()].map(name => ({ name }))
  using plan = await Plan.create({ ...made.graph, outputs }, await openKernels({ backend }))
  const results = await plan.run(feeds)
  return outputs.map(({ name }) => Float32Array.from(results[name] as Float32Array))
}

for (const [name, checked] of Object.entries(cases)) {
  t.test(name, async t => {
    for (const [input, error] of Object.entries(await gradientError(checked))) {
      t.ok(error < tolerance, `${input}: relative error ${error.toExponential(1)}`)
    }
    if (!backends.includes('cpu')) return
    const [js, cpu] = [await gradientsOn('js', checked), await gradientsOn('cpu', checked)]
    js.forEach((expected, i) => {
      close(t, cpu[i]!, expected, 1e-5, `cpu and js: gradient ${i}`)
    })
  })
}

t.test('what is refused', async t => {
  const { nodes } = attention({ q: [1, 1, 2, 3], k: [1, 1, 3, 3], v: [1, 1, 3, 2], mask: f32(2, 3) })
  const shapes = { q: [1, 1, 2, 3], k: [1, 1, 3, 3], v: [1, 1, 3, 2], mask: [2, 3] }
  const graph = makeGraph({
    inputs: Object.entries(shapes).map(([name, shape]) => ({ name, type: tensorType('f32', shape) })),
    outputs: [{ name: 'loss' }],
    nodes: [...nodes, makeNode('ReduceSum', ['y'], ['loss'])],
  })
  t.throws(() => differentiate(graph, { loss: 'loss', wrt: ['mask'] }), {
    code: 'ERR_UNSUPPORTED',
    message: /Attention.*mask/,
  })
  t.doesNotThrow(() => differentiate(graph, { loss: 'loss', wrt: ['q', 'v'] }))
})
