// Operands that do not fit the first one are refused, and the node is named.
import { Model, SparkError } from 'dgx-spark'
import t from 'tap'
import { int, ints, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { inferFacts } from '#lib/graph/shape-inference.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { typed } from '../fixtures/one-node.js'
import { randomFeeds, runOnnxRuntime } from '../fixtures/onnx-runtime.js'
import { tensorsOf } from '../fixtures/random-graph/checks.js'

type Shapes = readonly (readonly number[])[]

const graphOf = (op: string, attributes: Attributes, shapes: Shapes) => {
  const inputs = shapes.map((shape, i) => ({ name: `in${i}`, type: tensorType('f32', shape) }))
  const names = inputs.map(({ name }) => name)
  const nodes = [makeNode(op, names, ['y'], { name: 'it', attributes })]
  return makeGraph({ inputs, outputs: [{ name: 'y' }], nodes })
}

/** An input, and angles of two samples of three rows. */
const rotary = (shape: readonly number[], angles: number): Shapes => [shape, [2, 3, angles], [2, 3, angles]]
const hidden = { hidden_size: int(3) }
const two = { group: int(2) }
const lists: readonly (readonly [string, Attributes, Shapes, RegExp])[] = [
  [
    'RotaryEmbedding',
    { num_heads: int(3) },
    rotary([2, 3, 8], 1),
    /num_heads 3 does not divide .*\[2, 3, 8\]/,
  ],
  ['RotaryEmbedding', { num_heads: int(0) }, rotary([2, 3, 8], 1), /num_heads 0 does not divide/],
  ['RotaryEmbedding', {}, rotary([6, 8], 4), /\[6, 8\]; it must have 3 or 4 dimensions/],
  ['RotaryEmbedding', {}, rotary([2, 2, 3, 5], 2), /cannot rotate 5 elements of heads of 5/],
  [
    'RotaryEmbedding',
    { rotary_embedding_dim: int(6) },
    rotary([2, 2, 3, 4], 3),
    /rotate 6 elements of heads of 4/,
  ],
  ['RotaryEmbedding', {}, rotary([2, 2, 3, 4], 1), /cos_cache is \[2, 3, 1\]; it must be \[2, 3, 2\]/],
  ['RotaryEmbedding', { num_heads: int(4) }, rotary([2, 3, 8], 2), /it must be \[2, 3, 1\]/],
  [
    'PRelu',
    {},
    [
      [3, 4],
      [2, 3, 4],
    ],
    /slope is \[2, 3, 4\]; it must broadcast to \[3, 4\]/,
  ],
  [
    'PRelu',
    {},
    [
      [3, 4],
      [1, 3, 4],
    ],
    /slope/,
  ],
  ['PRelu', {}, [[3, 4], [5]], /slope/],
  ['PRelu', {}, [[3, 1], [4]], /slope/],
  [
    'Gemm',
    {},
    [
      [2, 3],
      [3, 4],
      [2, 2, 4],
    ],
    /C is \[2, 2, 4\]; it must broadcast to \[2, 4\]/,
  ],
  ['Gemm', {}, [[2, 3], [3, 4], [3]], /C is/],
  [
    'Gemm',
    {},
    [
      [1, 3],
      [3, 4],
      [5, 4],
    ],
    /C is/,
  ],
  ['LayerNormalization', {}, [[2, 3, 4], [5]], /scale is/],
  ['LayerNormalization', {}, [[2, 3, 1], [4]], /scale is/],
  ['LayerNormalization', {}, [[2, 3, 4], [4], [3]], /bias is/],
  [
    'RMSNormalization',
    {},
    [
      [2, 3, 4],
      [1, 1, 1, 4],
    ],
    /scale is/,
  ],
  [
    'GroupNormalization',
    { num_groups: int(2) },
    [[2, 4, 3], [2], [2]],
    /scale .* 4 elements, one for each channel/,
  ],
  ['GroupNormalization', { num_groups: int(3) }, [[2, 4, 3], [4], [4]], /num_groups 3 does not divide 4/],
  ['InstanceNormalization', {}, [[2, 4, 3], [4], [1]], /bias is \[1\]/],
  ['BatchNormalization', {}, [[2, 4, 3], [4], [4], [3], [4]], /mean is \[3\]/],
  ['Conv', {}, [[1, 2, 5], [3, 2, 3], [2]], /bias is \[2\]; it must have 3 elements, one for each filter/],
  [
    'Conv',
    two,
    [
      [1, 2, 5],
      [3, 1, 3],
    ],
    /group 2 does not divide the 3 filters/,
  ],
  [
    'Conv',
    { kernel_shape: ints([2]) },
    [
      [1, 2, 5],
      [3, 2, 3],
    ],
    /kernel_shape is \[2\]/,
  ],
  [
    'ConvTranspose',
    {},
    [
      [1, 2, 5],
      [3, 3, 3],
    ],
    /x is \[1, 2, 5\] and the weight \[3, 3, 3\]/,
  ],
  ['ConvTranspose', two, [[1, 2, 5], [2, 3, 3], [3]], /bias is \[3\]; it must have 6/],
  [
    'Attention',
    {},
    [
      [1, 2, 3, 4],
      [1, 2, 5, 4],
      [1, 2, 6, 4],
    ],
    /are no queries, keys and values/,
  ],
  [
    'Attention',
    {},
    [
      [1, 2, 3, 4],
      [1, 2, 5, 3],
      [1, 2, 5, 4],
    ],
    /are no queries, keys and values/,
  ],
  [
    'Attention',
    {},
    [
      [1, 3, 3, 4],
      [1, 2, 5, 4],
      [1, 2, 5, 4],
    ],
    /3 heads of queries cannot share 2/,
  ],
  [
    'Attention',
    {},
    [
      [1, 2, 3, 4],
      [1, 2, 5, 4],
      [1, 2, 5, 4],
      [4, 5],
    ],
    /mask is \[4, 5\]/,
  ],
  [
    'Attention',
    {},
    [
      [1, 3, 4],
      [1, 3, 4],
      [1, 3, 4],
    ],
    /4 dimensions, or 3 and q_num_heads/,
  ],
  [
    'Clip',
    {},
    [
      [2, 3],
      [2, 3],
    ],
    /min is \[2, 3\]; it must have 1 elements/,
  ],
  ['Dropout', {}, [[2, 3], [2]], /ratio is/],
  [
    'GRU',
    hidden,
    [
      [2, 1, 4],
      [1, 9, 5],
      [1, 9, 3],
    ],
    /W is \[1, 9, 5\]; it must be \[1, 9, 4\]/,
  ],
  [
    'GRU',
    hidden,
    [
      [2, 1, 4],
      [1, 9, 4],
      [1, 9, 3],
      [1, 17],
    ],
    /B is/,
  ],
  [
    'LSTM',
    hidden,
    [
      [2, 1, 4],
      [1, 12, 4],
      [1, 12, 2],
    ],
    /R is/,
  ],
  [
    'LSTM',
    hidden,
    [
      [2, 1, 4],
      [2, 12, 4],
      [2, 12, 3],
    ],
    /W is/,
  ],
  [
    'GridSample',
    {},
    [
      [1, 2, 5, 5],
      [2, 3, 3, 2],
    ],
    /grid is/,
  ],
  [
    'GridSample',
    {},
    [
      [1, 2, 5, 5],
      [1, 3, 3, 3],
    ],
    /grid is/,
  ],
  ['LRN', { size: int(0) }, [[1, 2, 3]], /size is 0/],
  ['Softmax', { axis: int(5) }, [[3, 5]], /axis 5 is outside/],
  ['GlobalAveragePool', {}, [[3]], /at least 2 dimensions/],
  ['DepthToSpace', { blocksize: int(2) }, [[1, 4, 3]], /4 dimensions/],
  ['SpaceToDepth', { blocksize: int(0) }, [[1, 4, 3, 3]], /blocksize is 0/],
  ['Trilu', {}, [[3]], /at least 2 dimensions/],
  ['Max', {}, [], /no inputs/],
]

t.test('operands that do not fit', async t => {
  for (const [op, attributes, shapes, message] of lists) {
    const given = shapes.map(shape => `[${shape}]`).join(' ')
    const words = new RegExp(`^node 'it' \\(${op}\\): .*${message.source}`)
    t.throws(() => inferFacts(graphOf(op, attributes, shapes)), { code: 'ERR_SHAPE', message: words }, given)
  }
})

t.test('operands that vary by row, and those of one element', async t => {
  const fitting: readonly (readonly [string, Attributes, Shapes])[] = [
    [
      'LayerNormalization',
      {},
      [
        [2, 3, 4],
        [3, 4],
        [2, 1, 1],
      ],
    ],
    ['LayerNormalization', { axis: int(1) }, [[2, 3, 4], [1], [3, 1]]],
    [
      'Gemm',
      {},
      [
        [2, 3],
        [3, 4],
        [2, 1],
      ],
    ],
    [
      'PRelu',
      {},
      [
        [2, 3, 4],
        [3, 1],
      ],
    ],
  ]
  for (const [op, attributes, shapes] of fitting) {
    const graph = graphOf(op, attributes, shapes)
    const feeds = randomFeeds(graph, 5)
    const expected = await runOnnxRuntime(serializeOnnx(typed(graph)), feeds)
    for (const backend of backends) {
      using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
      const { y } = await model.run(tensorsOf(feeds))
      close(t, y!.data as Float32Array, expected.y!.data as Float32Array, 1e-5, `${op} on ${backend}`)
    }
  }
})

t.test('an operand that only the kernel refuses', async t => {
  const shapes = [
    [1, 2, 5],
    [3, 2, 1],
  ]
  const graph = graphOf('Conv', { dilations: ints([2 ** 31]) }, shapes)
  for (const backend of backends) {
    const run = async (): Promise<void> => {
      using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
      await model.run(tensorsOf(randomFeeds(graph, 5)))
    }
    await t.rejects(run(), { message: /conv of node 'it'/ }, backend)
    await t.rejects(run(), SparkError)
  }
})

t.test('sizes that nothing can have', async t => {
  const cases = [
    {
      node: makeNode('Pad', ['x', 'far'], ['y'], { name: 'it', attributes: { mode: string('edge') } }),
      far: Constant.i64([0, 2 ** 45]),
      message: /the plan needs \d+ bytes, but only \d+ are free/,
    },
    {
      node: makeNode('Resize', ['x', '', '', 'far'], ['y'], { name: 'it' }),
      far: Constant.i64([2 ** 45]),
      message: /node 'it' \(Resize\): it needs a list of 35184372088832 numbers/,
    },
  ]
  for (const { node, far, message } of cases) {
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [1]) }],
      outputs: [{ name: 'y' }],
      nodes: [node],
      initializers: new Map([['far', far]]),
    })
    for (const backend of backends) {
      using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
      const run = model.run(tensorsOf(randomFeeds(graph, 5)))
      await t.rejects(run, { code: 'ERR_OUT_OF_MEMORY', message })
    }
  }
})
