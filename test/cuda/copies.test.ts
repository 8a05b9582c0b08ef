// Which kernels copies and the sums of columns launch, and with what grids, on the fake driver.
import t from 'tap'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { launchesOf } from '../fixtures/fake-driver/launches.js'
import { discrete } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

const head = `
  import { requireAddon } from '#lib/native.js'
  const addon = requireAddon()
  const f32 = count => new Float32Array(count)
  await addon.openDevice(0)
`

/** What an operation launches, as 'kernel blocks threads'. */
const launches = (op: string, args: string) =>
  launchesOf(fakeDriver, discrete, `${head} await addon.runCuda(0, '${op}', { ${args} })`)

const arrays = { u8: 'Uint8Array', f16: 'Uint16Array', f32: 'Float32Array', i64: 'BigInt64Array' }
type Type = keyof typeof arrays

/** What a copy of `shape` between operands of 2^16 elements launches. */
const copy = (
  dtype: Type,
  shape: readonly number[],
  srcStrides: readonly number[],
  dstStrides: readonly number[],
  srcOffset = 0,
) =>
  launches(
    'copyStrided',
    `dtype: '${dtype}', shape: [${shape}], srcOffset: ${srcOffset}, dstOffset: 0, srcStrides: [${srcStrides}],
    dstStrides: [${dstStrides}], src: new ${arrays[dtype]}(65536), dst: new ${arrays[dtype]}(65536)`,
  )

t.test('a copy whose sides are fastest along other axes goes through tiles', async t => {
  for (const [dtype, bits] of [
    ['u8', 8],
    ['f16', 16],
    ['f32', 32],
    ['i64', 64],
  ] as const) {
    t.same(await copy(dtype, [70, 33], [1, 70], [33, 1]), [`copy_transposed_${bits} 6 32x8`])
  }
  t.same(await copy('f32', [3, 33, 70], [2310, 70, 1], [2310, 1, 33]), ['copy_transposed_32 18 32x8'])
  const image = [2, 35, 6, 11] // of which both axes are one of 66
  t.same(await copy('f32', image, [2310, 66, 11, 1], [2310, 1, 385, 35]), ['copy_transposed_32 12 32x8'])
  t.same(await copy('f32', image, [2310, 1, 385, 35], [2310, 66, 11, 1]), ['copy_transposed_32 12 32x8'])
  t.same(await copy('f32', [8, 8], [1, 8], [8, 1]), ['copy_transposed_32 1 32x8'])
  t.same(await copy('f32', [7, 300], [1, 7], [300, 1]), ['copy_strided_32 9 256x1'], 'lines of 7')
  t.same(await copy('f32', [40, 70], [0, 1], [1, 40]), ['copy_strided_32 11 256x1'], 'lines repeat')
  t.same(await copy('f32', [40, 70], [1, 0], [70, 1]), ['copy_strided_32 11 256x1'], 'elements repeat')
  t.same(await copy('f32', [40, 0], [1, 40], [0, 1]), [])
})

t.test('neighbours are copied as larger elements where they lie so', async t => {
  t.same(await copy('u8', [3, 4096], [4096, 1], [4096, 1]), ['copy_strided_64 6 256x1'])
  t.same(await copy('f16', [3, 4096], [4096, 1], [4096, 1]), ['copy_strided_64 12 256x1'])
  t.same(await copy('f32', [3, 4096], [4096, 1], [4096, 1]), ['copy_strided_64 24 256x1'])
  t.same(await copy('i64', [3, 4096], [4096, 1], [4096, 1]), ['copy_strided_64 48 256x1'])
  t.same(await copy('u8', [3, 4096], [4098, 1], [4096, 1]), ['copy_strided_16 24 256x1'])
  t.same(await copy('u8', [3, 4096], [4096, 1], [4096, 1], 4), ['copy_strided_32 12 256x1'])
  t.same(await copy('u8', [3, 4097], [4098, 1], [4098, 1]), ['copy_strided_8 49 256x1'])
  t.same(await copy('u8', [1], [1], [1]), ['copy_strided_8 1 256x1'])
})

/** What the gradients of the scale and bias of a layer normalization launch, or those that are named. */
const gradient = (rows: number, cols: number, groups: number, wanted = 'dscale dbias') =>
  launches(
    'normBackward',
    `rows: ${rows}, cols: ${cols}, groups: ${groups}, inner: 1, centered: false, x: f32(${rows * cols}),
    dy: f32(${rows * cols}), invStd: f32(${rows}),
    ${wanted.split(' ').map(name => `${name}: f32(${groups * cols})`)}`,
  )

t.test('gradients of scales sum columns, in chunks of 256 rows', async t => {
  const sums = 'column_sums_finish_f32 1 256x1'
  t.same(await gradient(256, 70, 1), ['norm_columns_gradient_f32 3 32x8'])
  t.same(await gradient(257, 70, 1), ['norm_columns_gradient_f32 6 32x8', sums, sums])
  t.same(await gradient(257, 70, 1, 'dscale'), ['norm_columns_gradient_f32 6 32x8', sums])
  t.same(await gradient(1024, 30, 4, 'dbias'), ['norm_columns_gradient_f32 4 32x8'])
  t.same(await gradient(0, 70, 1), ['norm_columns_gradient_f32 3 32x8'])
})
