// Contributed operators (com.microsoft) give the same outputs as the standard operators they become.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, floats, int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import type { Graph } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { type Parts, weights as randomWeights, sameOutputs, single } from '../../fixtures/one-node.js'
import { randomGenerator } from '../../fixtures/values/random.js'

const random = randomGenerator(11)
const weights = (...shape: number[]): Constant => randomWeights(random, ...shape)

const contrib = (op: string, parts: Parts): Graph =>
  single(op, { opset: 17, domain: 'com.microsoft', ...parts })

t.test('contributed operators', async t => {
  await sameOutputs(t, contrib('Gelu', {}))
  await sameOutputs(t, contrib('FastGelu', {}), 1e-5)
  await sameOutputs(t, contrib('BiasGelu', { constants: { b: weights(5) } }))
  await sameOutputs(t, contrib('QuickGelu', { attributes: { alpha: float(1.5) } }))
  await sameOutputs(
    t,
    contrib('FusedMatMul', {
      inputs: { a: [2, 5, 3], b: [2, 7, 5] },
      attributes: { alpha: float(0.5), transA: int(1), transB: int(1) },
    }),
  )
  // With the rows in front of the batch: [rows, batch, columns].
  for (const [transA, transB, a, b] of [
    [0, 0, [3, 2, 5], [5, 2, 7]],
    [1, 0, [5, 2, 3], [5, 2, 7]],
    [0, 1, [3, 2, 5], [7, 2, 5]],
    [1, 1, [5, 2, 4, 3], [7, 2, 4, 5]],
  ] as const) {
    const attributes = { transA: int(transA), transB: int(transB), transBatchA: int(1), transBatchB: int(1) }
    await sameOutputs(t, contrib('FusedMatMul', { inputs: { a, b }, attributes }))
  }
  await sameOutputs(
    t,
    contrib('FusedGemm', {
      inputs: { a: [3, 5] },
      constants: { b: weights(5, 7), c: weights(7) },
      attributes: { activation: string('Relu') },
    }),
  )
  await sameOutputs(
    t,
    contrib('FusedConv', {
      inputs: { x: [1, 2, 5, 5] },
      constants: { w: weights(3, 2, 3, 3) },
      attributes: { activation: string('LeakyRelu'), activation_params: floats([0.3]) },
    }),
  )
  const norm = { inputs: { x: [2, 3, 5], s: [2, 3, 5] }, attributes: { epsilon: float(1e-3) } }
  await sameOutputs(
    t,
    contrib('SkipLayerNormalization', {
      ...norm,
      constants: { g: weights(5), b: weights(5), c: weights(5) },
    }),
  )
  await sameOutputs(
    t,
    contrib('SkipLayerNormalization', {
      ...norm,
      constants: { g: weights(5) },
      outputs: ['y', '', '', 'sum'],
    }),
  )
  await sameOutputs(t, contrib('SkipSimplifiedLayerNormalization', { ...norm, constants: { g: weights(5) } }))
  await sameOutputs(t, single('SimplifiedLayerNormalization', { opset: 17, constants: { g: weights(5) } }))
  const kept = canonicalise(
    contrib('SparseAttention', { inputs: { x: [1, 5, 5, 2] }, constants: { w: weights(3, 3, 3, 2) } }),
  )
  t.same([kept.nodes[0]?.domain, kept.opsets.get('com.microsoft')], ['com.microsoft', 1], 'others stay')
})

t.test('contributed operators on quantized tensors', async t => {
  const scale = (value: number): Constant => Constant.f32(value)
  const zero = (value: number): Constant => Constant.from('u8', [], new Uint8Array([value]))
  const bytes = (...shape: number[]): Constant =>
    Constant.from(
      'u8',
      shape,
      Uint8Array.from({ length: numel(shape) }, () => random() * 256),
    )
  const a = { a: bytes(3, 5), as: scale(0.02), az: zero(120) }
  const b = { b: bytes(3, 5), bs: scale(0.03), bz: zero(99) }
  const y = { ys: scale(0.04), yz: zero(128) }
  const none = { inputs: {} }
  // ONNX Runtime rounds its fused forms at other places: one step of 255 may differ.
  const step = 1 / 128
  await sameOutputs(t, contrib('QLinearAdd', { ...none, constants: { ...a, ...b, ...y } }), step)
  await sameOutputs(t, contrib('QLinearMul', { ...none, constants: { ...a, ...b, ...y } }), step)
  await sameOutputs(
    t,
    contrib('QLinearConcat', { ...none, constants: { ...y, ...a, ...b }, attributes: { axis: int(1) } }),
    0,
  )
  await sameOutputs(t, contrib('QLinearSigmoid', { ...none, constants: { ...a, ...y } }), step)
  await sameOutputs(
    t,
    contrib('QLinearLeakyRelu', { ...none, constants: { ...a, ...y }, attributes: { alpha: float(0.1) } }),
    step,
  )
  const w = { w: bytes(5, 7), ws: scale(0.01), wz: zero(130) }
  await sameOutputs(
    t,
    contrib('DynamicQuantizeMatMul', { inputs: { x: [3, 5] }, constants: { ...w, bias: weights(7) } }),
    1e-5,
  )
  await sameOutputs(
    t,
    contrib('QLinearSoftmax', { ...none, constants: { ...a, ...y }, attributes: { opset: int(13) } }),
    step,
  )
  const right = { b: bytes(5, 7), bs: scale(0.03), bz: zero(99) }
  const bias = {
    c: Constant.from(
      'i32',
      [7],
      Int32Array.from({ length: 7 }, (_, i) => 100 * i),
    ),
  }
  await sameOutputs(t, contrib('QGemm', { ...none, constants: { ...a, ...right, ...bias } }), 1e-5)
  const coarse = { ys: scale(0.4), yz: zero(128) }
  await sameOutputs(t, contrib('QGemm', { ...none, constants: { ...a, ...right, ...bias, ...coarse } }), step)
  await sameOutputs(t, contrib('DequantizeLinear', { ...none, constants: a }))
  const [n, k, block] = [7, 96, 32]
  for (const bits of [4, 8]) {
    const packed = bytes(n, k / block, (block * bits) / 8)
    const attributes = { N: int(n), K: int(k), bits: int(bits), block_size: int(block) }
    const plain = { w: packed, s: weights(n * 3) }
    await sameOutputs(
      t,
      contrib('MatMulNBits', { inputs: { x: [3, k] }, constants: plain, attributes }),
      1e-4,
    )
    const zeros = { zp: bytes(n * Math.ceil((3 * bits) / 8)) }
    await sameOutputs(
      t,
      contrib('MatMulNBits', { inputs: { x: [3, k] }, constants: { ...plain, ...zeros }, attributes }),
      1e-4,
    )
  }
})

t.test('sizes that no weight has', t => {
  const constants = { w: Constant.from('u8', [2, 2, 16], new Uint8Array(64)), s: weights(4) }
  for (const [n, k, block] of [
    [2, -(2 ** 31), 16],
    [0, 32, 16],
    [2, 32, 0],
    [2 ** 40, 2 ** 20, 16],
  ] as const) {
    const attributes = { N: int(n), K: int(k), bits: int(8), block_size: int(block) }
    t.throws(() => canonicalise(contrib('MatMulNBits', { inputs: { x: [2, 32] }, constants, attributes })), {
      code: 'ERR_UNSUPPORTED',
      message: /node 'it' \(com.microsoft::MatMulNBits\).* are not those of a weight/,
    })
  }
  t.end()
})

t.test('embeddings', async t => {
  const ids = (...values: number[]): Constant => Constant.from('i32', [2, 3], Int32Array.from(values))
  const tables = { w: weights(9, 8), p: weights(5, 8), s: weights(2, 8), g: weights(8), b: weights(8) }
  const constants = { words: ids(1, 8, 3, 0, 2, 2), segments: ids(0, 1, 1, 0, 0, 1), ...tables }
  const attributes = { epsilon: float(1e-5) }
  await sameOutputs(
    t,
    contrib('EmbedLayerNormalization', { inputs: {}, constants, attributes, outputs: ['y', 'mask', 'sum'] }),
    1e-5,
  )
})

t.test('contributed attention', async t => {
  const heads = { num_heads: int(2) }
  const x = { x: [2, 5, 12] }
  const packed = { w: weights(12, 36), b: weights(36) }
  await sameOutputs(t, contrib('Attention', { inputs: x, constants: packed, attributes: heads }))
  const causal = { ...heads, unidirectional: int(1) }
  await sameOutputs(t, contrib('Attention', { inputs: x, constants: packed, attributes: causal }))
  const qkv = { q: [2, 3, 12], k: [2, 5, 12], v: [2, 5, 12] }
  const scaled = { ...heads, scale: float(0.3) }
  await sameOutputs(t, contrib('MultiHeadAttention', { inputs: qkv, attributes: scaled }))
  const bias = { b: weights(36) }
  await sameOutputs(t, contrib('MultiHeadAttention', { inputs: qkv, constants: bias, attributes: heads }))
})
