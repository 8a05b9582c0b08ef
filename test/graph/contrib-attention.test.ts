// Contributed attention in its forms: on our engines, and as standard operators in ONNX Runtime, it gives what ONNX
// Runtime's own operator gives.
import { Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { volume } from '#lib/core/shape.js'
import { float, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { typed } from '../fixtures/one-node.js'
import { runOnnxRuntime } from '../fixtures/onnx-runtime.js'
import { randomGenerator, uniform } from '../fixtures/random.js'

const random = randomGenerator(7)
const floats = (...shape: number[]): Constant => Constant.from('f32', shape, uniform(random, volume(shape)))
const i32 = (shape: number[], ...values: number[]): Constant =>
  Constant.from('i32', shape, Int32Array.from(values))

/** A node whose operands are inputs, those that start with a small w initializers; undefined is left out. */
async function same(
  t: Test,
  op: string,
  operands: Readonly<Record<string, Constant | undefined>>,
  attributes: Attributes,
  outputs: readonly string[] = ['y'],
): Promise<void> {
  const given = Object.entries(operands).filter(
    (entry): entry is [string, Constant] => entry[1] !== undefined,
  )
  const feeds = new Map(given.filter(([name]) => !name.startsWith('w')))
  const names = Object.entries(operands).map(([name, value]) => (value ? name : ''))
  const graph = typed(
    makeGraph({
      inputs: [...feeds].map(([name, { dtype, shape }]) => ({ name, type: tensorType(dtype, shape) })),
      outputs: outputs.map(name => ({ name })),
      nodes: [makeNode(op, names, outputs, { domain: 'com.microsoft', attributes })],
      initializers: new Map(given.filter(([name]) => name.startsWith('w'))),
      opsets: new Map([
        ['', 21],
        ['com.microsoft', 1],
      ]),
    }),
  )
  const label = `${op}(${names})`
  const expected = await runOnnxRuntime(serializeOnnx(graph), feeds)
  const standard = await runOnnxRuntime(serializeOnnx(canonicalise(graph)), feeds)
  for (const name of outputs) {
    const wanted = expected[name]!.data as Float32Array
    close(t, standard[name]!.data as Float32Array, wanted, 2e-5, `${label} ${name} as standard operators`)
  }
  for (const backend of backends) {
    using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
    const tensors = Array.from(feeds, ([name, { data, shape, dtype }]) => [
      name,
      Tensor.of(data as never, shape, dtype),
    ])
    const results = await model.run<Tensor>(Object.fromEntries(tensors))
    for (const name of outputs) {
      t.same(results[name]!.shape, expected[name]!.dims, `${label} ${name} on ${backend}`)
      const wanted = expected[name]!.data as Float32Array
      close(t, results[name]!.data as Float32Array, wanted, 2e-5, `${label} ${name} on ${backend}`)
    }
  }
}

const heads = { num_heads: int(2) }
const [q, k, v] = [floats(2, 3, 12), floats(2, 5, 12), floats(2, 5, 12)]

t.test('MultiHeadAttention', async t => {
  const none = undefined
  const lengths = i32([2], 2, 5)
  const seen = i32([2, 5], 1, 0, 1, 1, 0, 1, 1, 1, 1, 1)
  await same(t, 'MultiHeadAttention', { q, k, v, none, lengths }, heads)
  await same(t, 'MultiHeadAttention', { q, k, v, wb: floats(36), seen, added: floats(1, 2, 3, 5) }, heads)
  await same(
    t,
    'MultiHeadAttention',
    { q, k, v, none, seen: i32([2, 3, 5], ...Array.from({ length: 30 }, (_, i) => +(i % 4 > 0))) },
    heads,
  )
  await same(t, 'MultiHeadAttention', { q, k, v, none, seen }, { ...heads, mask_filter_value: float(-5) })
  await same(t, 'MultiHeadAttention', { q, k: q, v: q }, { ...heads, unidirectional: int(1) })
  const cross = { q, k: floats(2, 2, 5, 6), v: floats(2, 2, 5, 6) }
  await same(t, 'MultiHeadAttention', cross, heads)
  const past = { pk: floats(2, 2, 4, 6), pv: floats(2, 2, 4, 6) }
  const all = { q, k: floats(2, 3, 12), v: floats(2, 3, 12), none, none2: none, none3: none, ...past }
  await same(t, 'MultiHeadAttention', all, heads, ['y', 'nk', 'nv'])
  await same(t, 'MultiHeadAttention', all, { ...heads, unidirectional: int(1) }, ['y', 'nk', 'nv'])
})

t.test('Attention', async t => {
  const own = { x: floats(2, 5, 12), w: floats(12, 36), wb: floats(36) }
  await same(t, 'Attention', { ...own, lengths: i32([2], 3, 5) }, heads)
  await same(t, 'Attention', { ...own, seen: i32([2, 5], 1, 0, 1, 1, 0, 1, 1, 1, 1, 1) }, heads)
  await same(t, 'Attention', own, heads, ['y', 'present'])
})

t.test('Attention to a past, as optimized decoders have it', async t => {
  const causal = { ...heads, unidirectional: int(1) }
  const own = { x: floats(2, 3, 12), w: floats(12, 36), wb: floats(36) }
  const past = floats(2, 2, 2, 4, 6)
  const seen = i32([2, 7], 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)
  for (const attributes of [heads, causal]) {
    await same(t, 'Attention', { ...own, none: undefined, past }, attributes, ['y', 'present'])
    await same(t, 'Attention', { ...own, seen, past }, attributes, ['y', 'present'])
  }
})

t.test('QAttention', async t => {
  const bytes = (kind: 'u8' | 'i8', ...shape: number[]): Constant => {
    const codes = Array.from({ length: volume(shape) }, () => Math.floor(random() * 250) - 125)
    return kind === 'i8'
      ? Constant.from(kind, shape, Int8Array.from(codes))
      : Constant.from(
          kind,
          shape,
          Uint8Array.from(codes, code => code + 128),
        )
  }
  const own = { x: bytes('u8', 2, 5, 12), w: bytes('i8', 12, 36), wb: floats(36) }
  const scales = { scale: Constant.f32(0.02), ws: Constant.f32(0.01) }
  const zero = Constant.from('u8', [], Uint8Array.of(120))
  const none = undefined
  const seen = i32([2, 5], 1, 0, 1, 1, 0, 1, 1, 1, 1, 1)
  await same(t, 'QAttention', { ...own, ...scales, none, zero }, heads)
  await same(t, 'QAttention', { ...own, ...scales, seen, zero }, { ...heads, unidirectional: int(1) })
  const columns = Constant.f32(
    Array.from({ length: 36 }, (_, i) => 0.005 + i / 5000),
    [36],
  )
  const zeros = Constant.from('i8', [36], new Int8Array(36).fill(3))
  await same(t, 'QAttention', { ...own, scale: scales.scale, ws: columns, seen, zero, wz: zeros }, heads)
  const past = floats(2, 2, 2, 4, 6)
  const all = { ...own, ...scales, none, zero, none2: none, past }
  await same(t, 'QAttention', all, { ...heads, unidirectional: int(1) }, ['y', 'present'])
})

t.test('RotaryEmbedding', async t => {
  const tables = { cos: floats(9, 3), sin: floats(9, 3) }
  const offset = Constant.from('i64', [1], BigInt64Array.of(2n))
  const places = Constant.from('i64', [2, 3], BigInt64Array.of(0n, 1n, 2n, 5n, 3n, 1n))
  await same(t, 'RotaryEmbedding', { x: floats(2, 3, 12), offset, ...tables }, {})
  await same(t, 'RotaryEmbedding', { x: floats(2, 3, 12), places, ...tables }, {})
  await same(t, 'RotaryEmbedding', { x: floats(2, 2, 3, 6), offset, ...tables }, { interleaved: int(1) })
})

t.test('GatherBlockQuantized', async t => {
  const bytes = (...shape: number[]): Constant =>
    Constant.from(
      'u8',
      shape,
      Uint8Array.from({ length: volume(shape) }, () => random() * 256),
    )
  const ids = Constant.from('i64', [2, 3], BigInt64Array.of(0n, 6n, 2n, 2n, 1n, 5n))
  const block = { block_size: int(16), quantize_axis: int(1), gather_axis: int(0) }
  const scales = floats(7, 2)
  await same(t, 'GatherBlockQuantized', { w: bytes(7, 16), ids, ws: scales }, { ...block, bits: int(4) })
  await same(
    t,
    'GatherBlockQuantized',
    { w: bytes(7, 16), ids, ws: scales, wz: bytes(7, 1) },
    { ...block, bits: int(4) },
  )
  await same(
    t,
    'GatherBlockQuantized',
    { w: bytes(7, 32), ids, ws: scales, wz: bytes(7, 2) },
    { ...block, bits: int(8) },
  )
  const codes = Constant.from('u4', [7, 32], bytes(7, 16).data as Uint8Array)
  await same(t, 'GatherBlockQuantized', { w: codes, ids, ws: scales }, block)
})

t.test('queries, keys and values in one tensor, which ONNX Runtime has on GPUs only', async t => {
  const [batch, length, count, depth] = [2, 3, 2, 6] as const
  const packed = floats(batch, length, count, 3, depth)
  const part = (which: number): Constant => {
    const data = (packed.data as Float32Array).filter((_, i) => Math.floor(i / depth) % 3 === which)
    return Constant.from('f32', [batch, length, count * depth], data)
  }
  const [own, keys, values] = [part(0), part(1), part(2)]
  const pairs = (packed.data as Float32Array).filter((_, i) => Math.floor(i / depth) % 3 > 0)
  const both = Constant.from('f32', [batch, length, count, 2, depth], pairs)
  const run = async (operands: Record<string, Constant>): Promise<Float32Array> => {
    const inputs = Object.entries(operands).map(([name, { dtype, shape }]) => ({
      name,
      type: tensorType(dtype, shape),
    }))
    const options = { domain: 'com.microsoft', attributes: heads }
    const nodes = [makeNode('MultiHeadAttention', Object.keys(operands), ['y'], options)]
    using model = await Model.fromGraph(makeGraph({ inputs, outputs: [{ name: 'y' }], nodes }), {
      backend: 'js',
    })
    const feeds = Object.entries(operands).map(([name, { data, shape }]) => [
      name,
      Tensor.of(data as Float32Array, shape, 'f32'),
    ])
    return (await model.run<Tensor>(Object.fromEntries(feeds))).y!.data as Float32Array
  }
  const expected = await run({ q: own, k: keys, v: values })
  close(t, await run({ packed }), expected, 1e-6, 'all three')
  close(t, await run({ q: own, both }), expected, 1e-6, 'keys and values')
})
