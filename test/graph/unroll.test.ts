// Recurrent layers as single cells: the same numbers as the kernel, and gradients against finite differences.
import t from 'tap'
import { volume } from '#lib/core/shape.js'
import { int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { unroll } from '#lib/graph/rewrites/unroll.js'
import { jsKernels } from '#lib/runtime/js/js.js'
import { Plan } from '#lib/runtime/plan/plan.js'
import { close } from '../fixtures/close.js'
import { gradientError } from '../fixtures/gradients.js'
import { randomGenerator } from '../fixtures/random.js'

const [steps, batch, features, hidden] = [4, 2, 3, 5]
const gates: Record<string, number> = { LSTM: 4, GRU: 3, RNN: 1 }

/** A graph of one layer; every operand is an input. */
function layer(op: string, attributes: Attributes, { bias, initial }: { bias: boolean; initial: boolean }) {
  const directions = attributes.direction?.value === 'bidirectional' ? 2 : 1
  const g = gates[op]!
  const batchFirst = attributes.layout?.value === 1
  const state = batchFirst ? [batch, directions, hidden] : [directions, batch, hidden]
  const shapes: Record<string, number[]> = {
    x: batchFirst ? [batch, steps, features] : [steps, batch, features],
    w: [directions, g * hidden, features],
    r: [directions, g * hidden, hidden],
    ...(bias && { b: [directions, 2 * g * hidden] }),
    ...(initial && { h: state }),
    ...(initial && op === 'LSTM' && { c: state }),
  }
  const inputs = ['x', 'w', 'r', bias ? 'b' : '', '', initial ? 'h' : '', shapes.c ? 'c' : '']
  const outputs = op === 'LSTM' ? ['all', 'lastH', 'lastC'] : ['all', 'lastH']
  const node = makeNode(op, inputs, outputs, { attributes: { hidden_size: int(hidden), ...attributes } })
  const graph = makeGraph({
    inputs: Object.entries(shapes).map(([name, shape]) => ({ name, type: tensorType('f32', shape) })),
    outputs: outputs.map(name => ({ name })),
    nodes: [node],
  })
  return { graph, shapes }
}

/** Sums the last states over all axes. */
const axes = [['axes', Constant.i64([0, 1, 2])]] as const

const cases: [
  name: string,
  op: string,
  attributes: Attributes,
  parts: { bias: boolean; initial: boolean },
][] = [
  ['LSTM', 'LSTM', {}, { bias: true, initial: true }],
  ['LSTM, both directions', 'LSTM', { direction: string('bidirectional') }, { bias: true, initial: false }],
  ['GRU', 'GRU', {}, { bias: true, initial: true }],
  ['GRU, reset after the product', 'GRU', { linear_before_reset: int(1) }, { bias: true, initial: false }],
  ['GRU, reverse', 'GRU', { direction: string('reverse') }, { bias: false, initial: true }],
  ['RNN', 'RNN', { direction: string('bidirectional') }, { bias: true, initial: true }],
]

for (const [name, op, attributes, parts] of cases) {
  t.test(name, async t => {
    const { graph, shapes } = layer(op, attributes, parts)
    const random = randomGenerator(7)
    const feeds = Object.fromEntries(
      Object.entries(shapes).map(([name, shape]) => {
        const count = volume(shape)
        return [name, Float32Array.from({ length: count }, () => random() - 0.5)]
      }),
    )
    using plan = await Plan.create(graph, jsKernels)
    using unrolled = await Plan.create(unroll(graph), jsKernels)
    const [expected, results] = [await plan.run(feeds), await unrolled.run(feeds)]
    for (const { name } of graph.outputs) {
      close(t, results[name] as Float32Array, expected[name] as Float32Array, 2e-6, name)
    }
    const { nodes } = unroll(graph)
    const end = [
      makeNode('ReduceSum', ['lastH', 'axes'], ['total']),
      makeNode('Mul', ['all', 'total'], ['y']),
    ]
    const errors = await gradientError({
      inputs: Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name, { shape }])),
      nodes: [...nodes, ...end],
      constants: Object.fromEntries([...unroll(graph).initializers, ...axes]),
    })
    for (const [input, error] of Object.entries(errors)) {
      t.ok(error < 1e-6, `${input}: relative error ${error.toExponential(1)}`)
    }
  })
}

t.test('what cannot be unrolled', async t => {
  const { graph } = layer('LSTM', {}, { bias: false, initial: false })
  const [node] = graph.nodes
  const refused = (change: object, message: RegExp) =>
    t.throws(() => unroll({ ...graph, nodes: [{ ...node!, ...change }] }), {
      code: 'ERR_UNSUPPORTED',
      message,
    })
  refused({ inputs: ['x', 'w', 'r', '', 'x'] }, /lengths/)
  refused({ attributes: { ...node!.attributes, clip: { type: 'float', value: 1 } } }, /clipping/)
  const open = { ...graph, inputs: graph.inputs.map(({ name }) => ({ name, type: tensorType('f32') })) }
  t.throws(() => unroll(open), { code: 'ERR_UNSUPPORTED', message: /number of steps/ })
})
