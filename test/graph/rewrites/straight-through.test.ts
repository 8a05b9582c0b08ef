// Codes that move before they are dequantized: the same results, and gradients that go through.
import t from 'tap'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { straightThrough } from '#lib/graph/rewrites/straight-through.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'
import { identical } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const steps = ['scale', 'zero']
const [rows, cols] = [3, 4]

/** x · w and z become codes, which are put together, turned and cut; loss = Σ y · slope. */
function graphOf(moved: readonly Node[], last: readonly string[] = steps) {
  return makeGraph({
    inputs: ['x', 'z'].map(name => ({ name, type: tensorType('f32', [rows, cols]) })),
    outputs: [{ name: 'y' }, { name: 'loss' }],
    nodes: [
      makeNode('Mul', ['x', 'w'], ['scaled']),
      makeNode('QuantizeLinear', ['scaled', ...steps], ['a']),
      makeNode('QuantizeLinear', ['z', 'scale_again', 'zero'], ['b']),
      ...moved,
      makeNode('DequantizeLinear', ['moved', ...last], ['y']),
      makeNode('Mul', ['y', 'y'], ['squares']),
      makeNode('ReduceSum', ['squares'], ['loss'], { attributes: { keepdims: int(0) } }),
    ],
    initializers: new Map([
      ['w', Constant.f32(1.5)],
      ['scale', Constant.f32(1 / 64)],
      ['scale_again', Constant.f32(1 / 64)],
      ['other', Constant.f32(1 / 32)],
      ['zero', Constant.from('u8', [], Uint8Array.of(128))],
      ['starts', Constant.i64([1])],
      ['ends', Constant.i64([5])],
    ]),
  })
}

const moves = [
  makeNode('Concat', ['a', 'b'], ['joined'], { attributes: { axis: int(0) } }),
  makeNode('Transpose', ['joined'], ['turned'], { attributes: { perm: ints([1, 0]) } }),
  makeNode('Slice', ['turned', 'starts', 'ends', 'starts'], ['moved']),
]
const random = randomGenerator(6)
const feeds = { x: uniform(random, rows * cols), z: uniform(random, rows * cols) }

t.test('the same numbers, and the gradient of those that were kept', async t => {
  const graph = graphOf(moves)
  const made = straightThrough(graph)
  using before = await Plan.create({ ...graph, outputs: [{ name: 'y' }] }, jsKernels)
  const y = Float32Array.from((await before.run(feeds)).y as Float32Array)
  const { graph: both, gradients } = differentiate(made, { loss: 'loss', wrt: ['w'] })
  const name = gradients.get('w')!
  using plan = await Plan.create({ ...both, outputs: [{ name: 'y' }, { name }] }, jsKernels)
  const after = await plan.run(feeds)
  identical(t, Float32Array.from(after.y as Float32Array), y, 'y')
  // y is [4, 4]: columns 1 and 2 are rows 1 and 2 of x · w, quantized; 2 y x is the slope of their squares.
  let expected = 0
  for (let col = 0; col < cols; col++) {
    for (const row of [1, 2]) expected += 2 * y[col * 4 + row - 1]! * feeds.x[row * cols + col]!
  }
  const [slope] = after[name] as Float32Array
  t.ok(Math.abs(slope! - expected) <= 1e-5 * Math.abs(expected), `${slope}, expected ${expected}`)
})

t.test('what stays as it is', async t => {
  const same = (graph: ReturnType<typeof graphOf>, why: string) => t.equal(straightThrough(graph), graph, why)
  same(graphOf(moves, ['other', 'zero']), 'another scale')
  same(
    graphOf([makeNode('Identity', ['a'], ['moved'])].map(node => ({ ...node, op: 'BitwiseNot' }))),
    'no move',
  )
  same(graphOf([makeNode('Transpose', ['codes'], ['moved'])]), 'codes that nobody quantizes')
})
