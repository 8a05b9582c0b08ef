// Contributed attention in its forms: on our engines, and as standard operators in ONNX Runtime, it gives what ONNX
// Runtime's own operator gives.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { close } from '../../fixtures/close.js'
import { contributes } from '../../fixtures/contributed.js'
import { randomBytes } from '../../fixtures/values/bytes.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(7)
const floats = (...shape: number[]): Constant => Constant.from('f32', shape, uniform(random, numel(shape)))
const i32 = (shape: number[], ...values: number[]): Constant =>
  Constant.from('i32', shape, Int32Array.from(values))

const heads = { num_heads: int(2) }
const [q, k, v] = [floats(2, 3, 12), floats(2, 5, 12), floats(2, 5, 12)]

t.test('MultiHeadAttention', async t => {
  const none = undefined
  const lengths = i32([2], 2, 5)
  const seen = i32([2, 5], 1, 0, 1, 1, 0, 1, 1, 1, 1, 1)
  await contributes(t, 'MultiHeadAttention', { q, k, v, none, lengths }, heads)
  await contributes(
    t,
    'MultiHeadAttention',
    { q, k, v, wb: floats(36), seen, added: floats(1, 2, 3, 5) },
    heads,
  )
  await contributes(
    t,
    'MultiHeadAttention',
    { q, k, v, none, seen: i32([2, 3, 5], ...Array.from({ length: 30 }, (_, i) => +(i % 4 > 0))) },
    heads,
  )
  await contributes(
    t,
    'MultiHeadAttention',
    { q, k, v, none, seen },
    { ...heads, mask_filter_value: float(-5) },
  )
  await contributes(t, 'MultiHeadAttention', { q, k: q, v: q }, { ...heads, unidirectional: int(1) })
  const cross = { q, k: floats(2, 2, 5, 6), v: floats(2, 2, 5, 6) }
  await contributes(t, 'MultiHeadAttention', cross, heads)
  const past = { pk: floats(2, 2, 4, 6), pv: floats(2, 2, 4, 6) }
  const all = { q, k: floats(2, 3, 12), v: floats(2, 3, 12), none, none2: none, none3: none, ...past }
  await contributes(t, 'MultiHeadAttention', all, heads, ['y', 'nk', 'nv'])
  await contributes(t, 'MultiHeadAttention', all, { ...heads, unidirectional: int(1) }, ['y', 'nk', 'nv'])
})

t.test('Attention', async t => {
  const own = { x: floats(2, 5, 12), w: floats(12, 36), wb: floats(36) }
  await contributes(t, 'Attention', { ...own, lengths: i32([2], 3, 5) }, heads)
  await contributes(t, 'Attention', { ...own, seen: i32([2, 5], 1, 0, 1, 1, 0, 1, 1, 1, 1, 1) }, heads)
  await contributes(t, 'Attention', own, heads, ['y', 'present'])
})

t.test('Attention to a past, as optimized decoders have it', async t => {
  const causal = { ...heads, unidirectional: int(1) }
  const own = { x: floats(2, 3, 12), w: floats(12, 36), wb: floats(36) }
  const past = floats(2, 2, 2, 4, 6)
  const seen = i32([2, 7], 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)
  for (const attributes of [heads, causal]) {
    await contributes(t, 'Attention', { ...own, none: undefined, past }, attributes, ['y', 'present'])
    await contributes(t, 'Attention', { ...own, seen, past }, attributes, ['y', 'present'])
  }
})

t.test('QAttention', async t => {
  const bytes = (kind: 'u8' | 'i8', ...shape: number[]): Constant => randomBytes(random, kind, shape)
  const own = { x: bytes('u8', 2, 5, 12), w: bytes('i8', 12, 36), wb: floats(36) }
  const scales = { scale: Constant.f32(0.02), ws: Constant.f32(0.01) }
  const zero = Constant.from('u8', [], Uint8Array.of(120))
  const none = undefined
  const seen = i32([2, 5], 1, 0, 1, 1, 0, 1, 1, 1, 1, 1)
  await contributes(t, 'QAttention', { ...own, ...scales, none, zero }, heads)
  await contributes(t, 'QAttention', { ...own, ...scales, seen, zero }, { ...heads, unidirectional: int(1) })
  const columns = Constant.f32(
    Array.from({ length: 36 }, (_, i) => 0.005 + i / 5000),
    [36],
  )
  const zeros = Constant.from('i8', [36], new Int8Array(36).fill(3))
  await contributes(
    t,
    'QAttention',
    { ...own, scale: scales.scale, ws: columns, seen, zero, wz: zeros },
    heads,
  )
  const past = floats(2, 2, 2, 4, 6)
  const all = { ...own, ...scales, none, zero, none2: none, past }
  await contributes(t, 'QAttention', all, { ...heads, unidirectional: int(1) }, ['y', 'present'])
})

t.test('RotaryEmbedding', async t => {
  const tables = { cos: floats(9, 3), sin: floats(9, 3) }
  const offset = Constant.from('i64', [1], BigInt64Array.of(2n))
  const places = Constant.from('i64', [2, 3], BigInt64Array.of(0n, 1n, 2n, 5n, 3n, 1n))
  await contributes(t, 'RotaryEmbedding', { x: floats(2, 3, 12), offset, ...tables }, {})
  await contributes(t, 'RotaryEmbedding', { x: floats(2, 3, 12), places, ...tables }, {})
  await contributes(
    t,
    'RotaryEmbedding',
    { x: floats(2, 2, 3, 6), offset, ...tables },
    { interleaved: int(1) },
  )
})

t.test('GatherBlockQuantized', async t => {
  const bytes = (...shape: number[]): Constant =>
    Constant.from(
      'u8',
      shape,
      Uint8Array.from({ length: numel(shape) }, () => random() * 256),
    )
  const ids = Constant.from('i64', [2, 3], BigInt64Array.of(0n, 6n, 2n, 2n, 1n, 5n))
  const block = { block_size: int(16), quantize_axis: int(1), gather_axis: int(0) }
  const scales = floats(7, 2)
  await contributes(
    t,
    'GatherBlockQuantized',
    { w: bytes(7, 16), ids, ws: scales },
    { ...block, bits: int(4) },
  )
  await contributes(
    t,
    'GatherBlockQuantized',
    { w: bytes(7, 16), ids, ws: scales, wz: bytes(7, 1) },
    { ...block, bits: int(4) },
  )
  await contributes(
    t,
    'GatherBlockQuantized',
    { w: bytes(7, 32), ids, ws: scales, wz: bytes(7, 2) },
    { ...block, bits: int(8) },
  )
  const codes = Constant.from('u4', [7, 32], bytes(7, 16).data as Uint8Array)
  await contributes(t, 'GatherBlockQuantized', { w: codes, ids, ws: scales }, block)
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
