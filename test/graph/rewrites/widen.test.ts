// A model of 16 bits in f32: the same results but for rounding, inputs as they were, and gradients.
import { Tensor } from 'dgx-spark'
import t from 'tap'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { widenHalves } from '#lib/graph/rewrites/widen.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'
import { close } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(21)
const half = (...shape: number[]) => {
  const count = shape.reduce((product, size) => product * size, 1)
  return Tensor.from(uniform(random, count), { shape }).to('f16')
}
const constant = (...shape: number[]) => Constant.from('f16', shape, half(...shape).data as Uint16Array)
const one = Constant.from('f16', [1], Tensor.from(Float32Array.of(1)).to('f16').data as Uint16Array)

const graph: Graph = makeGraph({
  inputs: [
    { name: 'x', type: tensorType('f16', [3, 5]) },
    { name: 'scale', type: tensorType('f32', []) },
  ],
  outputs: [{ name: 'y', type: tensorType('f16', [3, 2]) }],
  nodes: [
    makeNode('Cast', ['scale'], ['scale16'], { attributes: { to: int(10) } }),
    makeNode('Mul', ['x', 'scale16'], ['scaled']),
    makeNode('MatMul', ['scaled', 'w'], ['h']),
    makeNode('ConstantOfShape', ['sizes'], ['ones'], {
      attributes: { value: { type: 'tensor', value: one } },
    }),
    makeNode('Add', ['h', 'ones'], ['moved']),
    makeNode('Softplus', ['moved'], ['y']),
  ],
  initializers: new Map([
    ['w', constant(5, 2)],
    ['sizes', Constant.i64([3, 1])],
  ]),
})

t.test('results', async t => {
  const wide = widenHalves(graph)
  const feeds = { x: half(3, 5).data as Uint16Array, scale: Float32Array.of(0.7) }
  using plan = await Plan.create(graph, jsKernels)
  using widePlan = await Plan.create(wide, jsKernels)
  const expected = (await plan.run(feeds)).y as Uint16Array
  const found = (await widePlan.run(feeds)).y as Float32Array
  t.ok(found instanceof Float32Array)
  close(t, found, Tensor.of(expected, [3, 2], 'f16').toFloat32(), 2e-3, 'y')
})

t.test('it can be differentiated', async t => {
  const loss = makeNode('ReduceSum', ['y'], ['loss'], { attributes: { keepdims: int(0) } })
  const summed = widenHalves({ ...graph, nodes: [...graph.nodes, loss] })
  const made = differentiate(summed, { loss: 'loss', wrt: ['scale'] })
  const name = made.gradients.get('scale')!
  using plan = await Plan.create({ ...made.graph, outputs: [{ name }, { name: 'loss' }] }, jsKernels)
  const x = half(3, 5).data as Uint16Array
  const at = async (scale: number) => ({ ...(await plan.run({ x, scale: Float32Array.of(scale) })) })
  const slope = Number((await at(0.7))[name]![0])
  const [above, below] = [Number((await at(0.71)).loss![0]), Number((await at(0.69)).loss![0])]
  t.ok(Math.abs((above - below) / 0.02 / slope - 1) < 2e-3, `${(above - below) / 0.02}, ${slope}`)
})

t.test('a graph of f32 stays', async t => {
  const plain = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 5]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Transpose', ['x'], ['y'], { attributes: { perm: ints([1, 0]) } })],
  })
  t.equal(widenHalves(plain), plain)
})
