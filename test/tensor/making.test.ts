// Making tensors without saying what is known, and reading them as text.
import { inspect } from 'node:util'
import { Model, quantizeFP8, quantizeNVFP4, Tensor } from 'dgx-spark'
import t from 'tap'

t.test('the element type is that of the values', async t => {
  const arrays = {
    f32: new Float32Array([1, 2]),
    f64: new Float64Array([1, 2]),
    i64: new BigInt64Array([1n, 2n]),
    u64: new BigUint64Array([1n, 2n]),
    i32: new Int32Array([1, 2]),
    u32: new Uint32Array([1, 2]),
    i16: new Int16Array([1, 2]),
    u16: new Uint16Array([1, 2]),
    i8: new Int8Array([1, 2]),
    u8: new Uint8Array([1, 2]),
  }
  for (const [dtype, values] of Object.entries(arrays)) {
    const tensor = Tensor.from(values)
    t.same([tensor.dtype, tensor.shape, tensor.toArray()], [dtype, [2], [1, 2]])
    t.equal(tensor.data, values, 'not copied')
  }
  const wide: Tensor<'i64'> = Tensor.from(arrays.i64)
  const bits: Tensor<'bf16'> = Tensor.from(arrays.u16, { dtype: 'bf16' })
  t.same([wide.data[0], bits.dtype], [1n, 'bf16'])
  t.equal(Tensor.from(new Uint8ClampedArray([7, 8]), { shape: [2, 1] }).dtype, 'u8')
  const buffer = Tensor.from(Buffer.from([1, 2]))
  t.same([buffer.dtype, buffer.data.constructor], ['u8', Uint8Array])
  const flags: Tensor<'bool'> = Tensor.from([[true], [false]])
  t.same([flags.dtype, flags.shape, [...flags.data]], ['bool', [2, 1], [1, 0]])
  const ids: Tensor<'i64'> = Tensor.from([2n ** 60n, -1n])
  t.same([...ids.data], [2n ** 60n, -1n], 'exactly')
  const words: Tensor<'string'> = Tensor.from([['a'], ['b']])
  t.same(
    [words.dtype, words.shape, words.data, words.toArray()],
    ['string', [2, 1], ['a', 'b'], [['a'], ['b']]],
  )
  t.equal(Tensor.from([]).dtype, 'f32')
  t.same(Tensor.from([true, 2, 3n], { dtype: 'f32' }).toArray(), [1, 2, 3])
  t.same([...Tensor.from([2n ** 53n + 1n]).to('u64').data], [2n ** 53n + 1n])
  t.same(Tensor.from([16777217], { dtype: 'i32' }).toArray(), [16777217], 'more than f32 holds')
})

t.test('a Float16Array holds halves', { skip: !('Float16Array' in globalThis) && 'Node 24' }, async t => {
  const { Float16Array } = globalThis as unknown as { Float16Array: { of(...values: number[]): Uint16Array } }
  t.same(Tensor.from(Float16Array.of(1, -0.5)).toArray(), [1, -0.5])
})

t.test('constructors name what makes a tensor or model', async t => {
  const calls = Tensor as unknown as new (...values: unknown[]) => unknown
  t.throws(() => new calls('float32', [1], [1]), { code: 'ERR_ARGUMENT', message: /Tensor\.from\(values/ })
  t.throws(() => new calls(), { code: 'ERR_ARGUMENT' })
  const models = Model as unknown as new (...values: unknown[]) => unknown
  t.throws(() => new models('mnist.onnx'), { code: 'ERR_ARGUMENT', message: /await Model\.load\(/ })
})

t.test('ones, full, random', async t => {
  t.same(Tensor.ones([2, 1]).toArray(), [[1], [1]])
  t.same([...Tensor.full([2], 1.5, 'f16').data], [0x3e00, 0x3e00])
  t.same([...Tensor.full([2], 7n, 'i64').data], [7n, 7n])
  t.same([...Tensor.full([1], true, 'bool').data], [1])
  t.throws(() => Tensor.full([1], '1' as never), { code: 'ERR_ARGUMENT' })
  t.throws(() => Tensor.full([-1], 1), { code: 'ERR_SHAPE' })
  const numbers = Tensor.random([100, 10], { seed: 3 })
  t.same(numbers.data, Tensor.random([1000], { seed: 3 }).data, 'a seed says all')
  t.notSame(numbers.data, Tensor.random([1000], { seed: 4 }).data)
  t.notSame(Tensor.random([50]).data, Tensor.random([50]).data, 'without a seed others each time')
  t.ok(numbers.data.every(value => value >= 0 && value < 1))
  const spread = Tensor.random([1000], { seed: 3, distribution: 'normal', dtype: 'f64' })
  t.equal(spread.dtype, 'f64')
  const mean = spread.data.reduce((a, b) => a + b) / 1000
  const deviation = Math.sqrt(spread.data.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 1000)
  t.ok(Math.abs(mean) < 0.1 && Math.abs(deviation - 1) < 0.1, `${mean}, ${deviation}`)
  t.throws(() => Tensor.random([1], { seed: -1 }), { code: 'ERR_ARGUMENT' })
  t.throws(() => Tensor.random([1], { distribution: 'gauss' as never }), { code: 'ERR_ARGUMENT' })
  t.throws(() => Tensor.random([1], { dtype: 'i32' as never }), { code: 'ERR_ARGUMENT' })
})

t.test('text shows numbers', async t => {
  t.equal(
    String(
      Tensor.from([
        [1, 2.5],
        [-30, 0.1],
      ]),
    ),
    'Tensor f32 [2, 2]\n[[  1, 2.5],\n [-30, 0.1]]',
  )
  t.equal(String(Tensor.from(5)), 'Tensor f32 [] 5')
  t.equal(String(Tensor.from([])), 'Tensor f32 [0] []')
  t.equal(`${Tensor.from([1n, 2n])}`, 'Tensor i64 [2] [1, 2]')
  t.equal(String(Tensor.from([true])), 'Tensor bool [1] [true]')
  t.equal(String(Tensor.from([1, -0.5], { dtype: 'bf16' })), 'Tensor bf16 [2] [1, -0.5]')
  t.equal(
    String(Tensor.from([NaN, -Infinity, -0, 1e20, 1e-9])),
    'Tensor f32 [5] [NaN, -Infinity, -0, 1e+20, 1e-9]',
  )
  const text = String(Tensor.from(['a\x1b[2J\u202e']))
  t.notOk(text.includes('\x1b') || text.includes('\u202e'), 'safe for terminals')
  const large = String(
    Tensor.from(
      new Float32Array(10_000).map((_, i) => i),
      { shape: [100, 100] },
    ),
  )
  t.match(large, /\[\[ {3}0, {4}1, {4}2, …, {3}97, {3}98, {3}99\],\n/)
  t.equal(large.split('\n').length, 8)
  t.ok(String(Tensor.zeros(Array(20).fill(3))).length < 100, 'too many dimensions')
  t.ok(
    String(Tensor.from(new Float32Array(900)))
      .split('\n')
      .every(line => line.length <= 90),
  )
  const tensor = Tensor.from([1, 2])
  t.equal(inspect({ a: tensor }), '{ a: Tensor f32 [2] [1, 2] }')
  t.equal(inspect({ a: { b: { c: tensor } } }), '{ a: { b: { c: Tensor f32 [2] } } }')
  t.equal(inspect(tensor, { depth: null }), 'Tensor f32 [2] [1, 2]')
  structuredClone(tensor.data.buffer, { transfer: [tensor.data.buffer as ArrayBuffer] })
  t.equal(String(tensor), 'Tensor f32 [2] (detached)')
})

t.test('quantizers know the shape of a tensor', async t => {
  const weight = Tensor.random([4, 32], { seed: 1 })
  t.same(quantizeNVFP4(weight), quantizeNVFP4(weight.data, [4, 32]))
  t.same(quantizeNVFP4(weight, { recipe: 'mse' }), quantizeNVFP4(weight, [4, 32], { recipe: 'mse' }))
  t.same(quantizeFP8(weight), quantizeFP8(weight.data, [4, 32]))
  t.equal(quantizeFP8(weight, { scaling: 'block', blockSize: 16 }).blockSize, 16)
  t.throws(() => quantizeNVFP4(weight.data as never), {
    code: 'ERR_SHAPE',
    message: /shape must be \[rows, cols\]/,
  })
})
