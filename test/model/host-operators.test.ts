// Operators that run between plans, because the sizes of their outputs depend on data.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { canonicalOpset, type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { hostZeros } from '#lib/model/values.js'
import { backends } from '../fixtures/backends.js'

const opsets = new Map([['', canonicalOpset]])

const uniqueOf = (dtype: 'f16' | 'bf16' | 'f32' | 'string', shape: number[], axis?: number): Graph =>
  makeGraph({
    opsets,
    inputs: [{ name: 'x', type: tensorType(dtype, shape) }],
    outputs: ['y', 'first', 'inverse', 'counts'].map(name => ({ name })),
    nodes: [
      makeNode('Unique', ['x'], ['y', 'first', 'inverse', 'counts'], {
        attributes: axis === undefined ? {} : { axis: int(axis) },
      }),
    ],
  })

const numbers = ({ data }: Tensor): number[] => Array.from(data as ArrayLike<number | bigint>, Number)

for (const backend of backends) {
  t.test(`unique elements in the order of their values on ${backend}`, async t => {
    for (const dtype of ['f32', 'f16', 'bf16'] as const) {
      using model = await Model.fromGraph(uniqueOf(dtype, [7]), { backend })
      const x = Tensor.from([1, -1, -2, 0.5, -1, -0, 0]).to(dtype)
      const { y, first, inverse, counts } = await model.run<Tensor>({ x: x as Tensor })
      t.same(Array.from(y!.toFloat32()), [-2, -1, 0, 0.5, 1], dtype)
      t.same(numbers(first!), [2, 1, 5, 3, 0])
      t.same(numbers(inverse!), [4, 1, 0, 3, 1, 2, 2])
      t.same(numbers(counts!), [1, 2, 2, 1, 1])
    }
  })

  t.test(`slices of texts with commas on ${backend}`, async t => {
    using model = await Model.fromGraph(uniqueOf('string', [3, 2], 0), { backend })
    const x = Tensor.of(['a,b', 'c', 'a', 'b,c', 'a', 'b,c'] as never, [3, 2], 'string' as never)
    const { y, counts } = await model.run<Tensor>({ x: x as Tensor })
    t.same(y!.shape, [2, 2])
    t.same([...(y!.data as unknown as string[])], ['a', 'b,c', 'a,b', 'c'])
    t.same(numbers(counts!), [2, 1])
  })

  t.test(`pieces of a sequence on ${backend}`, async t => {
    const pieces = async (sizes: number | readonly number[]): Promise<number[][]> => {
      const graph = makeGraph({
        opsets,
        outputs: [{ name: 'y' }],
        inputs: [{ name: 'x', type: tensorType('i64', [5]) }],
        nodes: [makeNode('SplitToSequence', ['x', 'sizes'], ['y'], { name: 'it' })],
        initializers: new Map([['sizes', Constant.i64(sizes)]]),
      })
      using model = await Model.fromGraph(graph, { backend })
      const { y } = await model.run<Tensor[]>({ x: BigInt64Array.of(1n, 2n, 3n, 4n, 5n) })
      return y!.map(numbers)
    }
    t.same(await pieces([2, 0, 3]), [[1, 2], [], [3, 4, 5]])
    t.same(await pieces(2), [[1, 2], [3, 4], [5]])
    for (const sizes of [[6], [2, 2], [8, -3], [-1, 6]])
      await t.rejects(pieces(sizes), { code: 'ERR_SHAPE', message: /'it' .* do not add up to 5/ }, `${sizes}`)
    for (const size of [0, -2])
      await t.rejects(pieces(size), { code: 'ERR_SHAPE', message: /'it' .* of -?\d+ elements/ })
  })

  t.test(`boxes of other types and sizes on ${backend}`, async t => {
    const suppressing = (dtype: 'f32' | 'i64', boxes: number[], scores: number[]): Graph =>
      makeGraph({
        opsets,
        outputs: [{ name: 'y' }],
        inputs: [
          { name: 'boxes', type: tensorType(dtype, boxes) },
          { name: 'scores', type: tensorType(dtype, scores) },
        ],
        nodes: [makeNode('NonMaxSuppression', ['boxes', 'scores'], ['y'], { name: 'it' })],
      })
    const zeros = (dtype: 'f32' | 'i64', shape: number[]) => Tensor.zeros(shape, dtype)
    for (const [dtype, boxes, scores, code] of [
      ['i64', [1, 3, 4], [1, 2, 3], 'ERR_DTYPE'],
      ['f32', [1, 3, 4], [1, 2, 5], 'ERR_SHAPE'],
      ['f32', [1, 3, 2], [1, 2, 3], 'ERR_SHAPE'],
      ['f32', [3, 4], [1, 2, 3], 'ERR_SHAPE'],
    ] as const) {
      using model = await Model.fromGraph(suppressing(dtype, [...boxes], [...scores]), { backend })
      const feeds = { boxes: zeros(dtype, [...boxes]), scores: zeros(dtype, [...scores]) }
      await t.rejects(model.run(feeds), { code, message: /node 'it' \(NonMaxSuppression\): boxes/ })
    }
  })
}

t.test('a tensor that does not fit', async t => {
  for (const dtype of ['f32', 'string'] as const)
    t.throws(() => hostZeros(dtype, [2 ** 30, 2 ** 30]), { code: 'ERR_OUT_OF_MEMORY' }, dtype)
})
