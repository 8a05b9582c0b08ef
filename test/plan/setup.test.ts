// What is computed once: all that depends on constants only, and the packing of constant weights.

import assert from 'node:assert'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { SharedWeight } from '#lib/weights/shared-weight.js'
import type { Weight } from '#lib/weights/weight.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const random = randomGenerator(11)
const f32 = (...shape: readonly number[]): Constant =>
  Constant.from(
    'f32',
    shape,
    uniform(
      random,
      shape.reduce((a, b) => a * b, 1),
    ),
  )

const graphOf = (
  shape: readonly number[],
  nodes: readonly Node[],
  constants: Record<string, Constant>,
): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', shape) }],
    outputs: [{ name: 'y' }],
    nodes,
    initializers: new Map(Object.entries(constants)),
  })
const axis = { attributes: { axis: int(0) } }
const ops = (graph: Graph, backend: 'cpu' | 'js' = 'js'): string[] =>
  compile(graph, { backend }).steps.map(({ op }) => op)

/** An LSTM whose weights are put together from constants, as exporters reorder gates. */
const lstm = graphOf(
  [3, 1, 5],
  [
    makeNode('Concat', ['w0', 'w1', 'w0', 'w1'], ['w'], axis),
    makeNode('Concat', ['r0', 'r0', 'r1', 'r1'], ['r'], axis),
    makeNode('Unsqueeze', ['w', 'first'], ['W']),
    makeNode('Unsqueeze', ['r', 'first'], ['R']),
    makeNode('LSTM', ['x', 'W', 'R', 'B'], ['all'], { attributes: { hidden_size: int(7) } }),
    makeNode('Neg', ['all'], ['y']),
  ],
  {
    w0: f32(7, 5),
    w1: f32(7, 5),
    r0: f32(7, 7),
    r1: f32(7, 7),
    B: f32(1, 56),
    first: Constant.i64([0]),
  },
)

t.test('constants that several copies put together are made once', async t => {
  t.same(ops(lstm), ['linear', 'recurrent', 'unary'])
  const half = graphOf(
    [7, 5],
    [makeNode('Concat', ['w', 'x'], ['both'], axis), makeNode('Neg', ['both'], ['y'])],
    {
      w: f32(2, 5),
    },
  )
  t.same(ops(half), ['copyStrided', 'copyStrided', 'unary'], 'one part of two depends on an input')
})

t.test('constant weights are packed once, where only products read them', async t => {
  const layer = (from: string, to: string): Node =>
    makeNode('Gemm', [from, 'w'], [to], { attributes: { transB: int(1) } })
  const twice = graphOf([3, 9], [layer('x', 'h'), layer('h', 'y')], { w: f32(9, 9) })
  const { setup, steps } = compile(twice, { backend: 'cpu' })
  t.same(
    setup.map(({ op }) => op),
    ['packWeight'],
    'one copy for both',
  )
  t.ok(steps.every(step => step.op === 'linear' && step.args.weight.layout === 'panels'))
  const shared = graphOf([9, 9], [layer('x', 'h'), makeNode('Add', ['h', 'w'], ['y'])], { w: f32(9, 9) })
  t.same(compile(shared, { backend: 'cpu' }).setup, [], 'the sum reads the weight as it is')
})

/** A weight of a precision mode as it is for the CPU; nobody reads its elements. */
function panels(format: 'f16' | 'bf16' | 'f8_e4m3', [rows, ...rest]: [number, ...number[]]): Constant {
  const weight = randomWeight(random, format, rows, numel(rest))
  const data = weight.data.slice(0, 0)
  const shared = new SharedWeight({ ...weight, data, layout: 'panels' } as Weight)
  const read = (): never => assert.fail('the constant is read')
  return Constant.lazy('f32', [rows, ...rest], {
    byteLength: 4 * rows * numel(rest),
    read,
    weight: { shared, transposed: false },
  })
}

t.test('constant weights of convolutions are packed, or transformed for tiles', async t => {
  const conv = (weight: Constant, image: number, group = 1): Graph =>
    graphOf(
      [1, weight.shape[1] * group, image, image],
      [makeNode('Conv', ['x', 'w'], ['y'], { attributes: { group: int(group) } })],
      { w: weight },
    )
  const compiled = (graph: Graph, backend: 'cpu' | 'js' = 'cpu') => {
    const { setup, steps } = compile(graph, { backend })
    const step = steps.find(({ op }) => op === 'conv')
    const args = step?.op === 'conv' ? step.args : undefined
    return [setup.map(({ op }) => op).join(), args?.weight.layout === 'panels', args?.winograd !== undefined]
  }
  t.same(compiled(conv(f32(33, 5, 2, 2), 9)), ['packWeight', true, false])
  t.same(
    compiled(conv(f32(65, 16, 3, 3), 26)),
    ['winogradWeight', false, true],
    'an activation is not needed',
  )
  t.same(compiled(conv(f32(65, 16, 3, 3), 9)), ['packWeight', true, false], 'few tiles')
  for (const dtype of ['f16', 'bf16', 'f8_e4m3'] as const) {
    const tiles = dtype !== 'f8_e4m3'
    const made = [tiles ? 'winogradWeight' : '', true, tiles]
    t.same(compiled(conv(panels(dtype, [65, 16, 3, 3]), 26)), made, `panels of ${dtype}`)
    t.same(compiled(conv(panels(dtype, [65, 16, 3, 3]), 9)), ['', true, false], `few tiles, ${dtype}`)
  }
  t.same(compiled(conv(f32(15, 16, 3, 3), 26)), ['', false, false], 'few filters')
  t.same(compiled(conv(f32(34, 5, 2, 2), 9, 2)), ['', false, false], 'groups')
  t.same(compiled(conv(f32(33, 5, 2, 2), 9), 'js'), ['', false, false], 'kernels that do not ask for it')
  const nodes = [makeNode('Conv', ['x', 'w'], ['y']), makeNode('Add', ['x', 'w'], ['z'])]
  const shared = graphOf([33, 16, 3, 3], nodes, { w: f32(33, 16, 3, 3) })
  t.same(
    compiled({ ...shared, outputs: [{ name: 'y' }, { name: 'z' }] }),
    ['', false, false],
    'the sum reads the weight as it is',
  )
})

for (const backend of backends) {
  t.test(`values on ${backend}`, async t => {
    const x = uniform(randomGenerator(12), 15)
    using plan = await Plan.create(lstm, await openKernels({ backend }))
    using exact = await Plan.create(lstm, await openKernels({ backend: 'js' }), { double: true })
    const expected = (await exact.run({ x: Float64Array.from(x) })).y as Float64Array
    for (let run = 0; run < 3; run++)
      close(t, (await plan.run({ x })).y as Float32Array, expected, 1e-6, `run ${run}`)
  })
}
