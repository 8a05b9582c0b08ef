// Recurrent layers as single cells: the same numbers as the kernel, and gradients against finite differences.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, floats, int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attribute, type Attributes, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { unroll } from '#lib/graph/rewrites/unroll.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { close } from '../../fixtures/close.js'
import { gradientError } from '../../fixtures/gradients.js'
import { randomGenerator } from '../../fixtures/values/random.js'

const [steps, batch, features, hidden] = [4, 3, 2, 5]
const gates: Record<string, number> = { LSTM: 4, GRU: 3, RNN: 1 }

/** What a layer has besides x, w and r. */
type Part = 'bias' | 'initial' | 'peepholes' | 'lengths'

/** A graph of one layer; every operand is an input, but for the lengths. */
function layer(op: string, attributes: Attributes, parts: readonly Part[]) {
  const directions = attributes.direction?.value === 'bidirectional' ? 2 : 1
  const g = gates[op]!
  const batchFirst = attributes.layout?.value === 1
  const state = batchFirst ? [batch, directions, hidden] : [directions, batch, hidden]
  const has = (part: Part): boolean => parts.includes(part)
  const shapes: Record<string, number[]> = {
    x: batchFirst ? [batch, steps, features] : [steps, batch, features],
    w: [directions, g * hidden, features],
    r: [directions, g * hidden, hidden],
    ...(has('bias') && { b: [directions, 2 * g * hidden] }),
    ...(has('initial') && { h: state }),
    ...(has('initial') && op === 'LSTM' && { c: state }),
    ...(has('peepholes') && { p: [directions, 3 * hidden] }),
  }
  const given = (name: string): string => (shapes[name] ? name : '')
  const lengths = has('lengths') ? 'lengths' : ''
  const inputs = ['x', 'w', 'r', given('b'), lengths, given('h'), given('c'), given('p')]
  const outputs = op === 'LSTM' ? ['all', 'lastH', 'lastC'] : ['all', 'lastH']
  const node = makeNode(op, inputs, outputs, { attributes: { hidden_size: int(hidden), ...attributes } })
  const graph = makeGraph({
    inputs: Object.entries(shapes).map(([name, shape]) => ({ name, type: tensorType('f32', shape) })),
    outputs: outputs.map(name => ({ name })),
    nodes: [node],
    initializers: new Map(lengths ? [[lengths, Constant.from('i32', [batch], Int32Array.of(4, 3, 0))]] : []),
  })
  return { graph, shapes }
}

/** Sums the last states over all axes. */
const axes = [['axes', Constant.i64([0, 1, 2])]] as const

const both = { direction: string('bidirectional') }
const names = (...values: string[]): Attribute => ({ type: 'strings', value: values })

const cases: [name: string, op: string, attributes: Attributes, parts: Part[]][] = [
  ['LSTM', 'LSTM', {}, ['bias', 'initial']],
  ['LSTM, both directions', 'LSTM', both, ['bias']],
  ['LSTM with peepholes', 'LSTM', both, ['bias', 'initial', 'peepholes']],
  ['LSTM, clipped, batch first', 'LSTM', { clip: float(0.2), layout: int(1) }, ['peepholes', 'initial']],
  ['LSTM with coupled gates', 'LSTM', { input_forget: int(1), direction: string('reverse') }, ['peepholes']],
  ['LSTM with lengths', 'LSTM', both, ['bias', 'initial', 'lengths']],
  ['GRU', 'GRU', {}, ['bias', 'initial']],
  ['GRU, reset after the product', 'GRU', { linear_before_reset: int(1) }, ['bias']],
  ['GRU, reverse', 'GRU', { direction: string('reverse') }, ['initial']],
  [
    'GRU with lengths, clipped, batch first',
    'GRU',
    { clip: float(0.3), layout: int(1) },
    ['lengths', 'initial'],
  ],
  ['RNN', 'RNN', both, ['bias', 'initial']],
  ['RNN with lengths', 'RNN', { direction: string('reverse') }, ['lengths']],
  [
    'functions of both directions',
    'LSTM',
    {
      ...both,
      activations: names('HardSigmoid', 'Softsign', 'elu', 'Sigmoid', 'LeakyRelu', 'ThresholdedRelu'),
      activation_alpha: floats([0.3, 0.7, 0.1, 0.05]),
      activation_beta: floats([0.4]),
    },
    ['bias', 'initial'],
  ],
  ['functions without parameters', 'GRU', { activations: names('Sigmoid', 'Softplus') }, ['bias']],
]

for (const [name, op, attributes, parts] of cases) {
  t.test(name, async t => {
    const { graph, shapes } = layer(op, attributes, parts)
    const random = randomGenerator(7)
    const feeds = Object.fromEntries(
      Object.entries(shapes).map(([name, shape]) => {
        const count = numel(shape)
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
  const { graph } = layer('LSTM', {}, [])
  const [node] = graph.nodes
  const refused = (activations: string[], error: { code: string; message: RegExp }) => {
    const changed = { ...node!, attributes: { ...node!.attributes, activations: names(...activations) } }
    for (const use of [unroll, compile]) t.throws(() => use({ ...graph, nodes: [changed] }), error)
  }
  const message = /LSTM.*activation 'Affine'/
  refused(['Sigmoid', 'Affine', 'Tanh'], { code: 'ERR_UNSUPPORTED', message })
  refused(['Sigmoid', 'Tanh'], { code: 'ERR_FORMAT', message: /LSTM.* has 2 of its 3 activations/ })
  const open = { ...graph, inputs: graph.inputs.map(({ name }) => ({ name, type: tensorType('f32') })) }
  t.throws(() => unroll(open), { code: 'ERR_UNSUPPORTED', message: /number of steps/ })
})
