import { Tensor } from 'dgx-spark'
import t from 'tap'
import { transfer } from '../fixtures/values/odd-values.js'

t.test('from nested arrays', async t => {
  const x = Tensor.from([
    [1, 2, 3],
    [4, 5, 6],
  ])
  t.strictSame(x.shape, [2, 3])
  t.equal(x.dtype, 'f32')
  t.equal(x.size, 6)
  t.strictSame(x.data, new Float32Array([1, 2, 3, 4, 5, 6]))
  t.strictSame(x.toArray(), [
    [1, 2, 3],
    [4, 5, 6],
  ])
  t.strictSame(Tensor.from([[[7]]]).shape, [1, 1, 1])
  t.strictSame(Tensor.from(5).shape, [])
  t.equal(Tensor.from(5).toArray(), 5)
  t.strictSame(Tensor.from([]).shape, [0])
  t.strictSame(Tensor.from([[], []]).shape, [2, 0])
  t.strictSame(Tensor.from([[], []]).toArray(), [[], []])
  t.strictSame(Tensor.from([1, 2, 3, 4], { shape: [2, 2] }).toArray(), [
    [1, 2],
    [3, 4],
  ])
  t.strictSame(Tensor.from([1, -2], { dtype: 'bf16' }).data, new Uint16Array([0x3f80, 0xc000]))
})

t.test('typed arrays are not copied', async t => {
  const floats = new Float32Array([1, 2])
  t.equal(Tensor.from(floats).data, floats)
  t.equal(Tensor.from(floats).reshape([2, 1]).data, floats)
  t.equal(Tensor.from(floats).toFloat32(), floats)
  const halves = new Uint16Array([0x3c00, 0x7c00])
  const x = Tensor.from(halves, { dtype: 'f16' })
  t.equal(x.data, halves)
  t.strictSame(x.toArray(), [1, Number.POSITIVE_INFINITY])
})

t.test('casts', async t => {
  const x = Tensor.from([[1, -0.5, 1000, 0]])
  for (const dtype of ['f16', 'bf16', 'f8_e4m3', 'f8_e5m2'] as const) {
    const y = x.to(dtype)
    t.equal(y.dtype, dtype)
    t.strictSame(y.shape, [1, 4])
    t.equal(y.to(dtype), y, 'nothing to do')
    const largest = { f16: 1000, bf16: 1000, f8_e4m3: 448, f8_e5m2: 1024 }[dtype]
    t.strictSame(y.toArray(), [[1, -0.5, largest, 0]])
  }
})

t.test('zeros', async t => {
  t.strictSame(Tensor.zeros([2, 3], 'bf16').data, new Uint16Array(6))
  t.strictSame(Tensor.zeros([]).data, new Float32Array(1))
  t.strictSame(Tensor.zeros([5, 0]).size, 0)
  t.throws(() => Tensor.zeros([2 ** 40]), { code: 'ERR_OUT_OF_MEMORY', message: /\[1099511627776\] f32/ })
})

t.test('the shape never changes', async t => {
  const shape = [1, 2]
  const x = Tensor.from([[1, 2]], { shape })
  shape[0] = 7
  t.strictSame(x.shape, [1, 2])
  t.throws(() => (x.shape as number[]).push(1), TypeError)
  t.throws(() => x.reshape([3]), { code: 'ERR_SHAPE', message: '[3] has 3 elements, but 2 were given' })
  t.strictSame(x.reshape([2, 1, 1]).shape, [2, 1, 1])
})

t.test('what is no tensor is refused', async t => {
  const refused = (values: unknown, options: object, code: string, message?: RegExp) =>
    t.throws(() => Tensor.from(values as number, options), { code, ...(message && { message }) })
  refused([[1, 2], [3]], {}, 'ERR_SHAPE', /ragged: dimension 1 has 2 elements first, then 1/)
  refused([[1], 2], {}, 'ERR_SHAPE', /ragged/)
  refused([1, [2]], {}, 'ERR_SHAPE', /ragged/)
  refused([1, '2'], {}, 'ERR_ARGUMENT', /values\[1\] must be a number, got '2'/)
  refused([1, undefined], {}, 'ERR_ARGUMENT')
  refused('5', { dtype: 'f32' }, 'ERR_ARGUMENT')
  refused(null, {}, 'ERR_ARGUMENT')
  refused([1], { shape: [Number.NaN] }, 'ERR_SHAPE', /NaN/)
  refused([1], { shape: [-1] }, 'ERR_SHAPE')
  refused([1], { shape: [1.5] }, 'ERR_SHAPE')
  refused([1], { shape: [2 ** 30, 2 ** 30] }, 'ERR_SHAPE')
  refused([1], { shape: 1 }, 'ERR_SHAPE')
  refused([1], { shape: [2] }, 'ERR_SHAPE', /\[2\] has 2 elements, but 1 were given/)
  refused([1], { shape: Array(40).fill(1) }, 'ERR_SHAPE')
  refused([1], { dtype: 'string' }, 'ERR_ARGUMENT', /options.dtype/)
  refused([1], { dtype: 'i4' }, 'ERR_DTYPE', /no conversion between i4/)
  refused([1], { shpe: [1] }, 'ERR_ARGUMENT', /no option 'shpe'/)
  refused(
    new Uint16Array(1),
    { dtype: 'f32' },
    'ERR_DTYPE',
    /a Float32Array for dtype f32.*convert: Tensor.from\(values\)\.to\('f32'\)/,
  )
  refused(new Float32Array(1), { dtype: 'i32' }, 'ERR_DTYPE', /must be an Int32Array for dtype i32/)
  refused([1, true], {}, 'ERR_ARGUMENT', /values\[1\] must be a number, got true/)
  refused(['a', 1], {}, 'ERR_ARGUMENT', /values\[1\] must be a string, got 1/)
  refused(Tensor.from([1]), {}, 'ERR_ARGUMENT', /not a tensor/)
  refused(new DataView(new ArrayBuffer(4)), {}, 'ERR_DTYPE', /typed array/)
  refused(new Float32Array(1), { dtype: 'f16' }, 'ERR_DTYPE', /a Uint16Array for dtype f16/)
  refused(new Float64Array(1), { dtype: 'f32' }, 'ERR_DTYPE')
  const cycle: unknown[] = []
  cycle.push(cycle)
  refused(cycle, {}, 'ERR_SHAPE', /deeper than 32/)
})

t.test('integers, bool and f64', t => {
  const wide = Tensor.from([1.75, -2.5], { dtype: 'i64' })
  t.strictSame(wide.data, BigInt64Array.of(1n, -2n))
  t.strictSame(
    Tensor.from([2 ** 53 - 1], { dtype: 'i64' }).data,
    BigInt64Array.of(2n ** 53n - 1n),
    'no rounding to f32',
  )
  t.strictSame(wide.to('f32').data, Float32Array.of(1, -2))
  t.strictSame(wide.to('bool').data, Uint8Array.of(1, 1))
  t.strictSame(wide.toArray(), [1, -2])
  t.strictSame(Tensor.from([0, 3], { dtype: 'bool' }).data, Uint8Array.of(0, 1))
  t.strictSame(Tensor.from([0.1], { dtype: 'f64' }).data, Float64Array.of(0.1))
  t.strictSame(Tensor.from([1.5, 2.5], { dtype: 'bf16' }).to('i32').data, Int32Array.of(1, 2))
  t.strictSame(Tensor.from(Int8Array.of(-1), { dtype: 'i8' }).to('f16').data, Uint16Array.of(0xbc00))
  t.end()
})

t.test('a tensor whose memory has gone', t => {
  const x = Tensor.from(Float32Array.of(1, 2))
  transfer(x.data)
  const gone = {
    code: 'ERR_DISPOSED',
    message: /the tensor lies in memory that has been detached or disposed/,
  }
  t.throws(() => x.reshape([2, 1]), gone)
  t.throws(() => x.to('bf16'), gone)
  t.throws(() => x.toArray(), gone)
  t.throws(() => Tensor.from(x.data), { code: 'ERR_DISPOSED' })
  t.end()
})
