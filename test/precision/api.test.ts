// The public functions: shapes, policies for special input, and errors that say what is wrong.
import {
  cast,
  decode,
  dequantizeFP8,
  dequantizeNVFP4,
  encode,
  type NVFP4Weight,
  quantizeFP8,
  quantizeNVFP4,
  swizzleScales,
  Tensor,
  unswizzleScales,
} from 'dgx-spark'
import t from 'tap'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

t.test('encode and decode', async t => {
  const values = new Float32Array([1, -2, 0.1, 1e9, -Infinity, Number.NaN, -0])
  t.same(encode(values, 'f8_e4m3'), new Uint8Array([0x38, 0xc0, 0x1d, 0x7e, 0xfe, 0x7f, 0x80]))
  t.same(
    encode(values, 'f8_e4m3', { saturate: false }),
    new Uint8Array([0x38, 0xc0, 0x1d, 0x7f, 0xff, 0x7f, 0x80]),
  )
  t.same(encode(values, 'f8_e5m2'), new Uint8Array([0x3c, 0xc0, 0x2e, 0x7b, 0xfb, 0x7f, 0x80]))
  t.same(
    encode(values, 'f8_e5m2', { saturate: false }),
    new Uint8Array([0x3c, 0xc0, 0x2e, 0x7c, 0xfc, 0x7f, 0x80]),
  )
  t.same(encode(values, 'f16'), new Uint16Array([0x3c00, 0xc000, 0x2e66, 0x7c00, 0xfc00, 0x7fff, 0x8000]))
  t.same(encode(values, 'bf16'), new Uint16Array([0x3f80, 0xc000, 0x3dcd, 0x4e6e, 0xff80, 0x7fff, 0x8000]))
  t.same(decode(new Uint16Array([0x3c00, 1]), 'f16'), new Float32Array([1, 2 ** -24]))
  t.same(cast(new Uint8Array([0x38]), 'f8_e4m3', 'bf16'), new Uint16Array([0x3f80]))
  t.same(encode(new Float32Array(0), 'f16'), new Uint16Array(0))
  const same = encode(values, 'f32')
  t.not(same.buffer, values.buffer, 'the result is always a new array')
})

t.test('a nvfp4 matrix', async t => {
  const [rows, cols] = [33, 80]
  const values = uniform(randomGenerator(7), rows * cols)
  const matrix = quantizeNVFP4(values, [rows, cols])
  t.match(matrix, {
    rows,
    cols,
    data: { length: (rows * cols) / 2 },
    blockScale: { length: (rows * cols) / 16 },
  })
  const amax = values.reduce((a, b) => Math.max(a, Math.abs(b)), 0)
  t.equal(matrix.tensorScale, Math.fround(amax / 2688))
  const error = dequantizeNVFP4(matrix).reduce((sum, value, i) => sum + (value - values[i]) ** 2, 0)
  const power = values.reduce((sum, value) => sum + value ** 2, 0)
  t.ok(error / power < 0.01, `relative squared error ${(error / power).toFixed(5)}`)
  t.same(quantizeNVFP4(values, [3, 11, 80]).data, matrix.data, 'leading dimensions are rows')
  t.same(
    quantizeNVFP4(Tensor.from(values, { shape: [rows, cols] }), [rows, cols]),
    matrix,
    'a tensor is a source',
  )
  const bf16 = { data: encode(values, 'bf16'), dtype: 'bf16' as const }
  t.same(quantizeNVFP4(bf16, [rows, cols]), quantizeNVFP4(decode(bf16.data, 'bf16'), [rows, cols]))
})

t.test('nvfp4 with a given scale', async t => {
  const values = uniform(randomGenerator(8), 64)
  const amax = values.reduce((a, b) => Math.max(a, Math.abs(b)), 0)
  const wide = quantizeNVFP4(values, [2, 32], { amax: 10 })
  t.equal(wide.tensorScale, Math.fround(10 / 2688))
  t.same(wide, quantizeNVFP4(values, [2, 32], { tensorScale: wide.tensorScale }))
  const narrow = dequantizeNVFP4(quantizeNVFP4(values, [2, 32], { amax: amax / 4 }))
  const largest = narrow.reduce((a, b) => Math.max(a, Math.abs(b)), 0)
  t.ok(Math.abs(largest - amax / 4) < 1e-6, `larger elements saturate at ${largest}`)
})

t.test('nvfp4 recipes', async t => {
  const [rows, cols] = [9, 96]
  const values = uniform(randomGenerator(11), rows * cols)
  values.fill(0, 0, 16)
  const error = (matrix: NVFP4Weight): number =>
    dequantizeNVFP4(matrix).reduce((sum, value, i) => sum + (value - values[i]) ** 2, 0)
  const modelopt = quantizeNVFP4(values, [rows, cols], { recipe: 'modelopt' })
  t.same(modelopt, quantizeNVFP4(values, [rows, cols]), 'modelopt is the default')
  const te = quantizeNVFP4(values, [rows, cols], { recipe: 'te' })
  const mse = quantizeNVFP4(values, [rows, cols], { recipe: 'mse' })
  t.equal(te.tensorScale, modelopt.tensorScale)
  t.equal(te.blockScale[0], 0, 'te gives a zero block the scale 0')
  t.equal(mse.blockScale[0], 0x38, 'mse keeps the scale of modelopt')
  t.ok(Math.abs(error(te) / error(modelopt) - 1) < 0.01, 'te is as precise as modelopt')
  t.ok(error(mse) < 0.85 * error(modelopt), `mse: ${(error(mse) / error(modelopt)).toFixed(3)} of the error`)
  for (const recipe of ['te', 'mse'] as const) {
    const tiny = Float32Array.from({ length: 32 }, (_, i) => (i - 16) * 2 ** -149)
    t.ok(
      dequantizeNVFP4(quantizeNVFP4(tiny, [1, 32], { recipe })).every(Number.isFinite),
      `tiny by ${recipe}`,
    )
    const zero = quantizeNVFP4(new Float32Array(32), [1, 32], { recipe })
    t.same(dequantizeNVFP4(zero), new Float32Array(32), `zeros by ${recipe}`)
    const given = quantizeNVFP4(values, [rows, cols], { recipe, tensorScale: 0.5 })
    t.equal(given.tensorScale, 0.5)
    t.ok(error(given) < 10 * error(te), `${recipe} with a scale that is far too large`)
  }
})

t.test('nvfp4 of zeros and of numbers close to zero stays finite', async t => {
  const zero = quantizeNVFP4(new Float32Array(64), [2, 32])
  t.equal(zero.tensorScale, 2 ** -126)
  t.same(zero.blockScale, new Uint8Array(4).fill(0x38))
  t.same(zero.data, new Uint8Array(32))
  t.same(dequantizeNVFP4(zero), new Float32Array(64))
  const tiny = Float32Array.from({ length: 32 }, (_, i) => (i - 16) * 2 ** -149)
  t.ok(dequantizeNVFP4(quantizeNVFP4(tiny, [1, 32])).every(Number.isFinite))
  t.match(quantizeNVFP4(new Float32Array(0), [0, 16]), { data: { length: 0 }, tensorScale: 2 ** -126 })
})

t.test('a fp8 matrix', async t => {
  const [rows, cols] = [7, 33]
  const values = uniform(randomGenerator(9), rows * cols)
  values.fill(0, 3 * cols, 4 * cols)
  values.fill(2 ** -149, 4 * cols, 5 * cols)
  const matrix = quantizeFP8(values, [rows, cols])
  t.equal(matrix.rowScale[3], 1, 'a zero row has scale 1')
  t.equal(matrix.rowScale[4], 1, 'so has one whose scale underflows')
  const restored = dequantizeFP8(matrix)
  t.same(restored.subarray(3 * cols, 5 * cols), new Float32Array(2 * cols))
  const worst = restored.reduce((max, value, i) => Math.max(max, Math.abs(value - values[i])), 0)
  t.ok(worst < 1 / 28, `largest error ${worst}: half a step below 448 is 16/448`)
  t.match(quantizeFP8(new Float32Array(0), [0, 4]), { data: { length: 0 } })
})

t.test('fp8 with other scales', async t => {
  const [rows, cols] = [37, 50]
  const values = uniform(randomGenerator(10), rows * cols)
  values.fill(0, 0, cols)
  const worst = (decoded: Float32Array): number =>
    decoded.reduce((max, value, i) => Math.max(max, Math.abs(value - values[i])), 0)
  const tensor = quantizeFP8(values, [rows, cols], { scaling: 'tensor' })
  const amax = values.reduce((a, b) => Math.max(a, Math.abs(b)), 0)
  t.same(tensor.rowScale, new Float32Array(rows).fill(Math.fround(amax / 448)), 'one scale for all rows')
  t.ok(worst(dequantizeFP8(tensor)) < 1 / 28)
  const blocks = quantizeFP8(values, [rows, cols], { scaling: 'block', blockSize: 16 })
  t.match(blocks, { rows, cols, blockSize: 16, scale: { length: 3 * 4 } })
  t.ok(worst(dequantizeFP8(blocks)) < 1 / 28)
  const one = quantizeFP8(values, [rows, cols], { scaling: 'block' })
  t.same(one.data, tensor.data, 'a block of 128 holds this matrix')
  t.equal(one.scale[0], tensor.rowScale[0])
  t.match(quantizeFP8(new Float32Array(0), [3, 0]), { rowScale: new Float32Array(3).fill(1) })
  t.match(quantizeFP8(new Float32Array(0), [0, 3], { scaling: 'tensor' }), { rowScale: { length: 0 } })
  t.match(quantizeFP8(new Float32Array(0), [3, 0], { scaling: 'block' }), { scale: { length: 0 } })
})

t.test('scales in the order of cuBLASLt', async t => {
  const scales = Uint8Array.from({ length: 130 * 5 }, (_, i) => i % 251)
  const swizzled = swizzleScales(scales, 130, 5)
  t.equal(swizzled.length, 2 * 2 * 512)
  t.equal(swizzled[16 + 4 + 1], scales[33 * 5 + 1], 'row 33, column 1')
  t.same(unswizzleScales(swizzled, 130, 5), scales)
  t.same(swizzleScales(new Uint8Array(0), 0, 4), new Uint8Array(0))
  t.throws(() => swizzleScales(scales, 130, 4), {
    code: 'ERR_SHAPE',
    message: /scales must be a Uint8Array of 520/,
  })
  t.throws(() => unswizzleScales(scales, 130, 5), {
    code: 'ERR_SHAPE',
    message: /swizzled must be .* of 2048/,
  })
  t.throws(() => swizzleScales(scales, -1, 5), { code: 'ERR_ARGUMENT', message: /rows must be/ })
})

t.test('what cannot be done is refused by name', async t => {
  const values = new Float32Array(64)
  const refused = (code: string, message: RegExp, action: () => unknown): void => {
    t.throws(action, { name: 'SparkError', code, message })
  }
  refused('ERR_DTYPE', /values must be a Uint16Array \(the elements of f16\)/, () => decode(values, 'f16'))
  refused('ERR_DTYPE', /values must be a Float32Array/, () =>
    encode([1, 2] as unknown as Float32Array, 'f16'),
  )
  refused('ERR_ARGUMENT', /to must be one of f32, f16/, () => encode(values, 'f64' as 'f32'))
  refused('ERR_ARGUMENT', /no option 'saturated'/, () => encode(values, 'f16', { saturated: true } as object))
  refused('ERR_SHAPE', /cols is 8; nvfp4 needs a multiple of 16/, () => quantizeNVFP4(values, [8, 8]))
  refused('ERR_SHAPE', /values has 64 elements; shape \[3, 32\] needs 96/, () =>
    quantizeNVFP4(values, [3, 32]),
  )
  refused('ERR_SHAPE', /shape must be \[rows, cols\]/, () => quantizeFP8(values, [64]))
  refused('ERR_SHAPE', /shape must be/, () => quantizeFP8(values, [-1, -64]))
  refused('ERR_ARGUMENT', /values.dtype must be one of/, () =>
    quantizeFP8(null as unknown as Float32Array, [1, 1]),
  )
  refused('ERR_ARGUMENT', /amax must be a number in/, () => quantizeNVFP4(values, [2, 32], { amax: -1 }))
  refused('ERR_ARGUMENT', /tensorScale must be/, () => quantizeNVFP4(values, [2, 32], { tensorScale: 0 }))
  refused('ERR_ARGUMENT', /exclude each other/, () =>
    quantizeNVFP4(values, [2, 32], { amax: 1, tensorScale: 1 }),
  )
  refused('ERR_ARGUMENT', /recipe must be one of modelopt, te, mse, got 'rtn'/, () =>
    quantizeNVFP4(values, [2, 32], { recipe: 'rtn' as 'te' }),
  )
  refused('ERR_ARGUMENT', /scaling must be one of row, tensor, block/, () =>
    quantizeFP8(values, [2, 32], { scaling: 'col' as 'row' }),
  )
  refused('ERR_ARGUMENT', /blockSize must be an integer >= 1/, () =>
    quantizeFP8(values, [2, 32], { scaling: 'block', blockSize: 0 }),
  )
  refused('ERR_ARGUMENT', /blockSize must be absent when scaling is 'row'/, () =>
    quantizeFP8(values, [2, 32], { blockSize: 16 }),
  )
  values[37] = Number.NaN
  values[50] = Infinity
  refused('ERR_NOT_FINITE', /values\[37\] is NaN/, () => quantizeNVFP4(values, [2, 32], { amax: 1 }))
  values[37] = 0
  refused('ERR_NOT_FINITE', /values\[50\] is Infinity/, () => quantizeFP8(values, [2, 32]))
})

t.test('a broken matrix is refused', async t => {
  const matrix = quantizeNVFP4(new Float32Array(64), [2, 32])
  const changed = (change: Partial<NVFP4Weight>) => () => dequantizeNVFP4({ ...matrix, ...change })
  t.throws(changed({ data: new Uint8Array(31) }), {
    code: 'ERR_SHAPE',
    message: /data must be a Uint8Array of 32/,
  })
  t.throws(changed({ blockScale: new Uint8Array(5) }), { code: 'ERR_SHAPE', message: /blockScale must be/ })
  t.throws(changed({ rows: -1 }), { code: 'ERR_ARGUMENT', message: /rows must be/ })
  t.throws(changed({ cols: 20 }), { code: 'ERR_SHAPE', message: /multiple of 16/ })
  t.throws(changed({ tensorScale: Number.NaN }), { code: 'ERR_ARGUMENT', message: /tensorScale must be/ })
  const fp8 = quantizeFP8(new Float32Array(64), [2, 32])
  t.throws(() => dequantizeFP8({ ...fp8, rows: 3 }), { code: 'ERR_SHAPE', message: /data must be/ })
  const blocks = quantizeFP8(new Float32Array(64), [2, 32], { scaling: 'block', blockSize: 16 })
  t.throws(() => dequantizeFP8({ ...blocks, blockSize: 8 }), { code: 'ERR_SHAPE', message: /scale must be/ })
  t.throws(() => dequantizeFP8({ ...fp8, rowScale: new Float32Array(1) }), { code: 'ERR_SHAPE' })
})
