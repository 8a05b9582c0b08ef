// Contributed operators that quantizers and optimizers write, against ONNX Runtime's own.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { contributes } from '../../fixtures/contributed.js'
import { randomBytes } from '../../fixtures/values/bytes.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(13)
const floats = (...shape: number[]): Constant => Constant.from('f32', shape, uniform(random, numel(shape)))
const i32 = (shape: number[], ...values: number[]): Constant =>
  Constant.from('i32', shape, Int32Array.from(values))
const codes = (kind: 'u8' | 'i8', ...shape: number[]): Constant => randomBytes(random, kind, shape)
const zero = (kind: 'u8' | 'i8', ...values: number[]): Constant =>
  kind === 'i8'
    ? Constant.from(kind, values.length === 1 ? [] : [values.length], Int8Array.from(values))
    : Constant.from(kind, values.length === 1 ? [] : [values.length], Uint8Array.from(values))
const none = undefined

t.test('DynamicQuantizeLSTM', async t => {
  const [inputs, hidden] = [5, 3]
  // ONNX Runtime rounds inputs and states to bytes, which are 2 / 255 apart.
  const tolerance = 2e-2
  for (const [directions, direction] of [
    [1, 'forward'],
    [2, 'bidirectional'],
  ] as const) {
    const attributes = { hidden_size: int(hidden), direction: string(direction) }
    const weights = {
      x: floats(7, 2, inputs),
      w: codes('i8', directions, inputs, 4 * hidden),
      wr: codes('i8', directions, hidden, 4 * hidden),
      wb: floats(directions, 8 * hidden),
    }
    const each = { none, none2: none, none3: none, none4: none }
    const scale = (value: number): Constant => Constant.f32(Array(directions).fill(value), [directions])
    const zeros = Constant.from('i8', [directions], new Int8Array(directions))
    const scales = { ws: scale(0.01), wz: zeros, wt: scale(0.007), wy: zeros }
    const outputs = ['y', 'h', 'c']
    await contributes(
      t,
      'DynamicQuantizeLSTM',
      { ...weights, ...each, ...scales },
      attributes,
      outputs,
      tolerance,
    )
    const gates = [directions, 4 * hidden]
    const perGate = (): Constant =>
      Constant.from(
        'f32',
        gates,
        uniform(random, numel(gates)).map(value => 0.005 + Math.abs(value) / 200),
      )
    const none256 = Constant.from('i8', gates, new Int8Array(numel(gates)))
    const fine = { ws: perGate(), wz: none256, wt: perGate(), wy: none256 }
    const all = { ...weights, ...each, ...fine }
    await contributes(t, 'DynamicQuantizeLSTM', all, attributes, outputs, tolerance)
  }
})

t.test('embeddings of BERT, with as many words as come', async t => {
  const words = i32([2, 3], 1, 8, 3, 0, 2, 2)
  const segments = i32([2, 3], 0, 1, 1, 0, 0, 1)
  const mask = i32([2, 3], 1, 1, 1, 1, 0, 1)
  const tables = { w: floats(9, 8), wp: floats(5, 8), wt: floats(2, 8), wg: floats(8), wb: floats(8) }
  const attributes = { epsilon: float(1e-5) }
  const outputs = ['y', 'counts', 'sum']
  await contributes(t, 'EmbedLayerNormalization', { words, segments, ...tables, mask }, attributes, outputs)
  const some = { w: tables.w, wp: tables.wp, none2: none, wg: tables.wg, wb: tables.wb }
  await contributes(t, 'EmbedLayerNormalization', { words, none, ...some }, attributes, ['y', 'counts'])
  const bytes = {
    w: codes('u8', 9, 8),
    wp: codes('u8', 5, 8),
    wt: codes('u8', 2, 8),
    wg: codes('u8', 8),
    wb: codes('u8', 8),
    mask,
  }
  const scales = [0.01, 0.02, 0.03, 0.004, 0.006].map(value => Constant.f32(value))
  const zeros = [120, 128, 130, 0, 99].map(value => zero('u8', value))
  const parts = Object.fromEntries([...scales, ...zeros].map((part, i) => [`w_${i}`, part]))
  const all = { words, segments, ...bytes, ...parts }
  await contributes(t, 'QEmbedLayerNormalization', all, attributes, ['y', 'counts'])
})

t.test('MatMulBnb4', async t => {
  const [n, k, block] = [7, 32, 16]
  for (const kind of [0, 1]) {
    const weight = Constant.from(
      'u8',
      [(n * k) / 2],
      Uint8Array.from({ length: (n * k) / 2 }, () => random() * 256),
    )
    const largest = Constant.from('f32', [(n * k) / block], uniform(random, (n * k) / block).map(Math.abs))
    const attributes = { N: int(n), K: int(k), block_size: int(block), quant_type: int(kind) }
    await contributes(t, 'MatMulBnb4', { x: floats(2, 3, k), w: weight, wl: largest }, attributes)
  }
})

t.test('QGemm with a scale for each column', async t => {
  const a = { a: codes('u8', 3, 5), s: Constant.f32(0.02), z: zero('u8', 120) }
  const scales = Constant.f32([0.01, 0.02, 0.03, 0.004, 0.005, 0.006, 0.007], [7])
  const zeros = zero('i8', 0, 0, 0, 0, 0, 0, 0)
  for (const [transB, shape] of [
    [0, [5, 7]],
    [1, [7, 5]],
  ] as const) {
    const b = { w: codes('i8', ...shape), ws: scales, wz: zeros }
    const attributes = { transB: int(transB) }
    await contributes(t, 'QGemm', { ...a, ...b, wc: i32([7], 100, -200, 300, 0, 50, 60, 70) }, attributes)
    await contributes(t, 'QGemm', { ...a, ...b }, attributes)
  }
})

t.test('QLinearWhere', async t => {
  const condition = Constant.from('bool', [2, 1, 5], Uint8Array.of(1, 0, 1, 1, 0, 0, 1, 1, 0, 1))
  const x = { x: codes('u8', 2, 3, 5), xs: Constant.f32(0.02), xz: zero('u8', 120) }
  const y = { y1: codes('u8', 3, 5), ys: Constant.f32(0.03), yz: zero('u8', 99) }
  const z = { zs: Constant.f32(0.025), zz: zero('u8', 128) }
  // Halves between two steps may be rounded either way.
  await contributes(t, 'QLinearWhere', { condition, ...x, ...y, ...z }, {}, ['y'], 1 / 255)
})
