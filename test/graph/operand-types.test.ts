// Operands that say where or how many have integers, conditions are bool, and attributes name a way to compute that
// there is: whatever else stands there is refused when the model is loaded, and the node is named.
import { Model, SparkError } from 'dgx-spark'
import t from 'tap'
import { float, int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { backends } from '../fixtures/backends.js'

/** A node that reads an f32 input and, in the place `i`, a constant. */
function nodeWith(op: string, i: number, constant: Constant, outputs = 1): Graph {
  const names = Array.from({ length: i + 1 }, (_, at) => (at === i ? 'it' : at === 0 ? 'x' : ''))
  const results = Array.from({ length: outputs }, (_, at) => `y${at}`)
  return makeGraph({
    inputs: names.slice(0, Math.min(i, 1)).map(name => ({ name, type: tensorType('f32', [2, 3]) })),
    outputs: results.map(name => ({ name })),
    nodes: [makeNode(op, names, results, { name: 'wrong' })],
    initializers: new Map([['it', constant]]),
  })
}

const reductions = 'L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare'
  .split(' ')
  .map(name => `Reduce${name}`)
const axes =
  'Squeeze Unsqueeze Reshape Split Expand Tile TopK CumSum CumProd Trilu Gather GatherElements GatherND'
const wrong = [
  ...[...reductions, ...axes.split(' ')].map(op => [op, 1] as const),
  ...([1, 2, 3, 4] as const).map(i => ['Slice', i] as const),
  ...([1, 3] as const).map(i => ['Pad', i] as const),
  ...([
    ['ConstantOfShape', 0],
    ['Resize', 3],
    ['ScatterND', 1],
    ['ScatterElements', 1],
    ['TensorScatter', 2],
  ] as const),
  ...([
    ['ReverseSequence', 1],
    ['Where', 0],
    ['Compress', 1],
    ['SplitToSequence', 1],
  ] as const),
]

for (const backend of backends) {
  t.test(`floats and texts where integers or conditions belong on ${backend}`, async t => {
    for (const [op, i] of wrong) {
      for (const constant of [Constant.f32([0.5]), Constant.strings([1], ['a'])]) {
        const error = {
          code: 'ERR_DTYPE',
          message: new RegExp(`'wrong' \\(${op}\\): input ${i} is ${constant.dtype}`),
        }
        await t.rejects(Model.fromGraph(nodeWith(op, i, constant), { backend }), error, `${op} ${i}`)
      }
    }
  })

  t.test(`axes of i32 on ${backend}`, async t => {
    const axis = Constant.from('i32', [1], Int32Array.of(1))
    for (const op of reductions) {
      using model = await Model.fromGraph(nodeWith(op, 1, axis), { backend })
      const { y0 } = await model.run({ x: Float32Array.of(1, 2, 3, 4, 5, 6) })
      t.same(y0!.shape, [2, 1], op)
    }
  })

  t.test(`a depth that is no integer on ${backend}`, async t => {
    const initializers = new Map([
      ['depth', Constant.f32(2.5)],
      ['values', Constant.f32([0, 1])],
    ])
    const graph = makeGraph({
      initializers,
      inputs: [{ name: 'x', type: tensorType('i64', [2]) }],
      outputs: [{ name: 'y' }],
      nodes: [makeNode('OneHot', ['x', 'depth', 'values'], ['y'])],
    })
    const run = async (): Promise<unknown> => {
      using model = await Model.fromGraph(graph, { backend })
      return model.run({ x: BigInt64Array.of(0n, 1n) })
    }
    await t.rejects(run(), SparkError)
  })
}

const attributes: readonly (readonly [string, Attributes, RegExp])[] = [
  ['Attention', { qk_matmul_output_mode: int(4) }, /qk_matmul_output_mode is '4', not one of 0, 1, 2, 3/],
  ['Attention', { qk_matmul_output_mode: int(-1) }, /qk_matmul_output_mode is '-1'/],
  ['LpNormalization', { p: int(99) }, /p is '99', not one of 1, 2/],
  ['Resize', { mode: string('best') }, /mode is 'best'/],
  ['Resize', { coordinate_transformation_mode: string('') }, /coordinate_transformation_mode is ''/],
  ['GridSample', { padding_mode: string('toString') }, /padding_mode is 'toString'/],
  ['ScatterND', { reduction: string('constructor') }, /reduction is 'constructor'/],
  ['BitShift', { direction: string('UP') }, /direction is 'UP'/],
  ['Conv', { auto_pad: string('SAME') }, /auto_pad is 'SAME'/],
  ['LinearAttention', { update_rule: string('sum') }, /update_rule is 'sum'/],
]

t.test('attributes that name what there is not', async t => {
  for (const [op, given, message] of attributes) {
    const graph = makeGraph({
      inputs: ['a', 'b', 'c'].map(name => ({ name, type: tensorType('f32', [1, 1, 2, 2]) })),
      outputs: [{ name: 'y' }],
      nodes: [makeNode(op, ['a', 'b', 'c'], ['y'], { name: 'it', attributes: given })],
    })
    await t.rejects(Model.fromGraph(graph, { backend: 'js' }), { code: 'ERR_UNSUPPORTED', message }, op)
  }
})

for (const backend of backends) {
  t.test(`a threshold that is no number on ${backend}`, async t => {
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [19]) }],
      outputs: [{ name: 'y' }],
      nodes: [makeNode('ThresholdedRelu', ['x'], ['y'], { attributes: { alpha: float(Number.NaN) } })],
    })
    using model = await Model.fromGraph(graph, { backend })
    const x = Float32Array.from({ length: 19 }, (_, i) => i - 9)
    x[18] = Number.NaN
    const { y } = await model.run({ x })
    t.same([...y!.data], [...new Array(18).fill(0), Number.NaN])
  })
}
