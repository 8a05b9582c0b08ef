// Weights that DequantizeLinear makes of codes: kept in blocks where kernels read such, with the same results.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import type { ElementType } from '#lib/core/dtype.js'
import { numel } from '#lib/core/shape.js'
import { int } from '#lib/graph/attributes.js'
import { GraphBuilder } from '#lib/graph/builder.js'
import { Constant, type NumericType } from '#lib/graph/constant.js'
import { type Graph, makeGraph, tensorType } from '#lib/graph/graph.js'
import { readCodes } from '#lib/graph/rewrites/read-codes.js'
import { decodeScaled } from '#lib/graph/scaled-codes.js'
import { decode, encode } from '#lib/precision/casts.js'
import { decodeWeight, weightBytes } from '#lib/weights/encode.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(31)

function codes(dtype: ElementType, shape: readonly number[]): Constant {
  const count = numel(shape)
  if (dtype === 'f8_e4m3') return Constant.from(dtype, shape, encode(uniform(random, count), dtype))
  const bytes = { u2: 1 / 4, i2: 1 / 4, u4: 1 / 2, i4: 1 / 2 }[dtype as 'u4'] ?? 1
  const data = Uint8Array.from({ length: Math.ceil(count * bytes) }, () => random() * 256)
  return Constant.from(dtype as NumericType, shape, data)
}

interface Form {
  readonly dtype: ElementType
  /** Sizes of the codes. */
  readonly shape: readonly number[]
  readonly axis: number
  /** 0: one scale for each index of the axis, or for all where `single`. */
  readonly block: number
  readonly single?: boolean
  readonly zeros?: boolean
  /** Whether scales are numbers of f16. */
  readonly half?: boolean
  readonly reader: 'MatMul' | 'Gemm' | 'Gather'
  readonly format: string | undefined
}

function graphOf({ dtype, shape, axis, block, single, zeros, half, reader }: Form): {
  graph: Graph
  values: Float32Array
} {
  const g = new GraphBuilder(makeGraph({}), 'g')
  const perBlock = shape.map((size, i) => (i === axis ? Math.ceil(size / block) : size))
  const sizes = single ? [] : block > 0 ? perBlock : [shape[axis]!]
  const steps = uniform(random, numel(sizes)).map(value => 0.03 + value / 90)
  const scale = Constant.from('f32', sizes, half ? decode(encode(steps, 'f16'), 'f16') : steps)
  const parts = {
    ...{ codes: codes(dtype, shape), scale, axis, block },
    zero: zeros ? codes(dtype, sizes) : undefined,
  }
  const inputs = [g.constant(parts.codes), g.constant(scale), ...(parts.zero ? [g.constant(parts.zero)] : [])]
  const weight = g.add('DequantizeLinear', inputs, { axis: int(axis), block_size: int(block) })
  const isGather = reader === 'Gather'
  const cols = reader === 'MatMul' ? shape[0]! : shape[1]!
  g.input({ name: 'x', type: isGather ? tensorType('i64', [3]) : tensorType('f32', [3, cols]) })
  const y =
    reader === 'Gather'
      ? g.add('Gather', [weight, 'x'])
      : g.add(reader, ['x', weight], reader === 'Gemm' ? { transB: int(1) } : {})
  return { graph: { ...g.build(), outputs: [{ name: y }] }, values: decodeScaled(parts) }
}

const forms: readonly Form[] = [
  { dtype: 'u4', shape: [35, 96], axis: 1, block: 32, zeros: true, reader: 'Gemm', format: 'u4_32' },
  { dtype: 'i4', shape: [35, 128], axis: 1, block: 64, reader: 'Gemm', format: 'u4_32' },
  { dtype: 'i4', shape: [96, 35], axis: 0, block: 32, zeros: true, reader: 'MatMul', format: 'u4_32' },
  { dtype: 'u4', shape: [256, 33], axis: 0, block: 128, zeros: true, reader: 'MatMul', format: 'u4_128' },
  { dtype: 'i2', shape: [64, 6], axis: 0, block: 32, zeros: true, reader: 'MatMul', format: 'u4_32' },
  { dtype: 'i8', shape: [64, 33], axis: 0, block: 32, zeros: true, reader: 'MatMul', format: 'u8_32' },
  { dtype: 'u8', shape: [40, 128], axis: 1, block: 128, zeros: true, reader: 'Gather', format: 'u8_128' },
  { dtype: 'i8', shape: [7, 64], axis: 0, block: 0, reader: 'Gather', format: 'u8_32' },
  { dtype: 'i8', shape: [128, 9], axis: 1, block: 0, zeros: true, reader: 'MatMul', format: 'u8_128' },
  {
    dtype: 'u8',
    shape: [9, 96],
    axis: 1,
    block: 0,
    single: true,
    zeros: true,
    reader: 'Gemm',
    format: 'u8_32',
  },
  { dtype: 'i4', shape: [35, 96], axis: 1, block: 32, half: true, reader: 'Gemm', format: 'q4_0' },
  { dtype: 'i4', shape: [192, 9], axis: 0, block: 64, half: true, reader: 'MatMul', format: 'q4_0' },
  { dtype: 'i8', shape: [7, 96], axis: 1, block: 32, half: true, reader: 'Gather', format: 'q8_0' },
  {
    dtype: 'u4',
    shape: [5, 64],
    axis: 1,
    block: 32,
    half: true,
    zeros: true,
    reader: 'Gemm',
    format: 'u4_32',
  },
  { dtype: 'f8_e4m3', shape: [64, 9], axis: 0, block: 32, reader: 'MatMul', format: 'f8_32' },
  { dtype: 'i4', shape: [48, 5], axis: 0, block: 16, reader: 'MatMul', format: 'u4_16' },
  { dtype: 'i8', shape: [80, 5], axis: 0, block: 40, reader: 'MatMul', format: undefined },
  { dtype: 'i8', shape: [64, 32], axis: 1, block: 32, reader: 'MatMul', format: undefined },
  { dtype: 'i8', shape: [64, 32], axis: 1, block: 0, reader: 'Gemm', format: undefined },
]

const weightsOf = (graph: Graph): NonNullable<Constant['weight']>[] =>
  [...readCodes(graph).initializers.values()].flatMap(({ weight }) => weight ?? [])

for (const form of forms) {
  const { dtype, shape, axis, block, reader, format } = form
  t.test(`${reader} of ${dtype} [${shape}] in blocks of ${block} along ${axis}`, async t => {
    const { graph, values } = graphOf(form)
    const weights = weightsOf(graph)
    t.strictSame(
      weights.map(({ shared }) => shared.format),
      format ? [format] : [],
    )
    for (const { shared, transposed } of weights) {
      const { cols } = shared
      const kept = decodeWeight(shared.kept)
      const isSame = values.every((value, i) => {
        const [row, col] = [Math.floor(i / shape[1]!), i % shape[1]!]
        return value === kept[transposed ? col * cols + row : i]
      })
      t.ok(isSame, 'bit for bit the numbers that the codes stand for')
    }
    const rows = reader === 'MatMul' ? shape[0]! : shape[1]!
    const x = reader === 'Gather' ? [5, 0, 3] : uniform(random, 3 * rows)
    const feed =
      reader === 'Gather'
        ? Tensor.of(BigInt64Array.from(x as number[], BigInt), [3], 'i64')
        : Tensor.of(x as Float32Array, [3, rows], 'f32')
    const width = reader === 'Gemm' ? shape[0]! : shape[1]!
    const expected = Float32Array.from({ length: 3 * width }, (_, at) => {
      const [row, col] = [Math.floor(at / width), at % width]
      if (reader === 'Gather') return values[x[row]! * width + col]!
      let sum = 0
      for (let i = 0; i < rows; i++)
        sum += x[row * rows + i]! * values[reader === 'Gemm' ? col * rows + i : i * width + col]!
      return sum
    })
    for (const backend of backends) {
      using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
      const { [graph.outputs[0]!.name]: y } = await model.run<Tensor>({ x: feed })
      close(t, y!.data as Float32Array, expected, 2e-6, backend)
    }
  })
}

t.test('a table and a layer of the same codes are kept once, in a sixth of the memory', async t => {
  const [tokens, width] = [64, 96]
  const g = new GraphBuilder(makeGraph({}), 'g')
  g.input({ name: 'ids', type: tensorType('i64', [4]) })
  const table = codes('u4', [tokens, width])
  const scale = Constant.from('f32', [tokens, 3], uniform(random, 3 * tokens))
  const again = Constant.from('u4', [tokens, width], table.bytes.slice())
  const attributes = { axis: int(1), block_size: int(32) }
  const [first, second] = [table, again].map(each =>
    g.add('DequantizeLinear', [g.constant(each), g.constant(scale)], attributes),
  ) as [string, string]
  const x = g.add('Gather', [first, 'ids'])
  const y = g.add('MatMul', [x, g.add('Transpose', [second])])
  const graph = { ...g.build(), outputs: [{ name: y }] }
  const [one, other, ...more] = weightsOf(graph)
  t.equal(one!.shared, other!.shared)
  t.strictSame(more, [])
  t.equal(weightBytes(one!.shared.kept), (tokens * width * 21) / 32)
  for (const backend of backends) {
    using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
    await model.run({ ids: Tensor.of(BigInt64Array.of(1n, 2n, 3n, 60n), [4], 'i64') })
    const { constantBytes } = model.stats
    t.ok(
      constantBytes < tokens * width * 1.4,
      `${constantBytes} bytes for ${tokens * width} numbers on ${backend}`,
    )
  }
})

t.test('layers between quantized operands stay layers of bytes', async t => {
  const g = new GraphBuilder(makeGraph({}), 'g')
  g.input({ name: 'x', type: tensorType('u8', [3, 64]) })
  const step = [
    g.constant(Constant.f32(0.1)),
    g.constant(Constant.from('u8', [], Uint8Array.of(128))),
  ] as const
  const left = g.add('DequantizeLinear', ['x', ...step])
  const right = g.add('DequantizeLinear', [g.constant(codes('i8', [64, 8])), g.constant(Constant.f32(0.01))])
  const y = g.add('QuantizeLinear', [g.add('MatMul', [left, right]), ...step])
  t.strictSame(weightsOf({ ...g.build(), outputs: [{ name: y }] }), [])
})
