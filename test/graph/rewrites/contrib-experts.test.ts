// Mixtures of experts of com.microsoft, against ONNX Runtime's own where it has them, else against another form of them.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { close } from '../../fixtures/close.js'
import { contributes } from '../../fixtures/contributed.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(17)
const floats = (...shape: number[]): Constant => Constant.from('f32', shape, uniform(random, numel(shape)))
const [tokens, experts, hidden, inner] = [7, 5, 12, 20]

/** Operands of a mixture, whose first layers are `wide` times as wide as the second ones. */
const operandsOf = (wide = 1): Record<string, Constant> => ({
  x: floats(tokens, hidden),
  router: floats(tokens, experts),
  w1: floats(experts, wide * inner, hidden),
  wb1: floats(experts, wide * inner),
  w2: floats(experts, hidden, inner),
  wb2: floats(experts, hidden),
})
const swiglu = { activation_type: string('swiglu'), k: int(2), normalize_routing_weights: int(1) }
const clamped = { swiglu_limit: float(0.9), activation_alpha: float(1.702), activation_beta: float(1) }

t.test("as ONNX Runtime's", async t => {
  for (const type of ['relu', 'silu', 'gelu', 'identity'])
    for (const [k, normalized] of [
      [1, 0],
      [3, 0],
      [2, 1],
    ] as const) {
      const attributes = {
        activation_type: string(type),
        k: int(k),
        normalize_routing_weights: int(normalized),
      }
      await contributes(t, 'MoE', operandsOf(), attributes)
    }
  await contributes(t, 'MoE', operandsOf(2), { ...swiglu, ...clamped, swiglu_fusion: int(1) })
  await contributes(t, 'MoE', operandsOf(2), { ...swiglu, swiglu_fusion: int(1) })
  const { router, w1, w2 } = operandsOf()
  const plain = { x: floats(1, tokens, hidden), router, w1, none: undefined, w2 }
  await contributes(t, 'MoE', plain, { activation_type: string('relu'), k: int(2) })
})

/** What a mixture gives on the js backend. */
async function outputOf(operands: Readonly<Record<string, Constant | undefined>>, attributes: Attributes) {
  const { x, router, ...weights } = operands
  const names = Object.entries(operands).map(([name, value]) => (value ? name : ''))
  const graph = makeGraph({
    inputs: [
      { name: 'x', type: tensorType('f32', x!.shape) },
      { name: 'router', type: tensorType('f32', router!.shape) },
    ],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MoE', names, ['y'], { domain: 'com.microsoft', attributes })],
    initializers: new Map(Object.entries(weights).filter((entry): entry is [string, Constant] => !!entry[1])),
    opsets: new Map([
      ['', 21],
      ['com.microsoft', 1],
    ]),
  })
  using model = await Model.fromGraph(graph, { backend: 'js', precision: 'fp32' })
  const tensor = (value: Constant): Tensor => Tensor.of(value.data as Float32Array, value.shape, 'f32')
  const { y } = await model.run<Tensor>({ x: tensor(x!), router: tensor(router!) })
  return y!.data as Float32Array
}

/** Rows of each expert in another order. */
function rowsBy(weight: Constant, rowAt: (row: number) => number, count: number): Constant {
  const [all = 0, rows = 0, cols = 1] = weight.shape
  const data = weight.data as Float32Array
  const result = Float32Array.from({ length: all * count * cols }, (_, at) => {
    const [expert, row, col] = [Math.floor(at / cols / count), Math.floor(at / cols) % count, at % cols]
    return data[(expert * rows + rowAt(row)) * cols + col]!
  })
  return Constant.from('f32', weight.shape.length === 3 ? [all, count, cols] : [all, count], result)
}

t.test('gates and values one behind the other, and in matrices of their own', async t => {
  const operands = operandsOf(2)
  const expected = await outputOf(operands, { ...swiglu, ...clamped, swiglu_fusion: int(1) })
  const part = (name: string, rowAt: (row: number) => number, count: number): Constant =>
    rowsBy(operands[name]!, rowAt, count)
  const behind = (row: number): number => (row < inner ? 2 * row : 2 * (row - inner) + 1)
  const block = { ...operands, w1: part('w1', behind, 2 * inner), wb1: part('wb1', behind, 2 * inner) }
  close(t, await outputOf(block, { ...swiglu, ...clamped, swiglu_fusion: int(2) }), expected, 1e-6, 'blocks')
  const [gate, value] = [0, 1].map(
    first =>
      (row: number): number =>
        2 * row + first,
  ) as [(row: number) => number, (row: number) => number]
  const apart = {
    ...operands,
    w1: part('w1', gate, inner),
    wb1: part('wb1', gate, inner),
    w3: part('w1', value, inner),
    wb3: part('wb1', value, inner),
  }
  close(t, await outputOf(apart, { ...swiglu, ...clamped }), expected, 1e-6, 'a third layer')
  const silu = { activation_type: string('silu'), k: int(2), normalize_routing_weights: int(1) }
  const plain = await outputOf(operands, { ...swiglu, swiglu_fusion: int(1) })
  close(t, await outputOf(apart, silu), plain, 1e-6, 'silu with a third layer')
})

t.test('what is refused', async t => {
  const refused = (attributes: Attributes, message: RegExp): void => {
    const graph = makeGraph({
      inputs: ['x', 'router', 'w1', 'b1', 'w2'].map(name => ({ name, type: tensorType('f32', [2, 3, 4]) })),
      outputs: [{ name: 'y' }],
      nodes: [
        makeNode('MoE', ['x', 'router', 'w1', 'b1', 'w2'], ['y'], { domain: 'com.microsoft', attributes }),
      ],
      opsets: new Map([
        ['', 21],
        ['com.microsoft', 1],
      ]),
    })
    t.throws(() => canonicalise(graph), { code: 'ERR_UNSUPPORTED', message })
  }
  refused({ use_sparse_mixer: int(1) }, /use_sparse_mixer is not supported/)
  refused({ num_shared_experts: int(1) }, /num_shared_experts is not supported/)
  refused({ activation_type: string('tanh') }, /the activation 'tanh' is not known/)
})
