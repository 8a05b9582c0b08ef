// Which kernels the operations on quantized bytes launch, and with what grids, on the fake driver.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
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
  const u8 = count => new Uint8Array(count)
  const affine = (outer, channels, inner) => {
    return { dtype: 'u8', outer, channels, inner, scale: f32(channels), zero: new Int32Array(channels) }
  }
  const scaled = name => ({ [name + 'Dtype']: 'u8', [name + 'Scale']: f32(1) })
  const mean = (rows, cols) => ({ rows, cols, ...scaled('x'), ...scaled('y'), x: u8(rows * cols), y: u8(rows) })
  const run = (op, args) => addon.runCuda(0, op, args)
  await addon.openDevice(0)
`

/** What an operation launches, as 'kernel blocks threads'. */
async function launches(call: string): Promise<string[]> {
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(`${head} await ${call}; console.log(null)`, env)
  return lines('launch').map(line => {
    const [, kernel, , x, y, z, , ...threads] = line.split(' ')
    t.same([y, z], [1, 1], 'grids have one dimension')
    return `${kernel} ${x} ${threads.slice(0, 2).join('x')}`
  })
}

t.test('casts', async t => {
  const quantize = (shape: string, count: number) =>
    launches(`run('quantize', { ...affine(${shape}), x: f32(${count}), y: u8(${count}) })`)
  const dequantize = (shape: string, count: number) =>
    launches(`run('dequantize', { ...affine(${shape}), x: u8(${count}), y: f32(${count}) })`)
  t.same(await quantize('1, 1, 4096', 4096), ['quantize_bytes 1 256x1'])
  t.same(await quantize('3, 1, 1366', 4098), ['quantize_bytes 2 256x1'])
  t.same(await quantize('3, 2, 683', 4098), ['quantize_bytes_channels 2 256x1'])
  t.same(await quantize('0, 2, 683', 0), [])
  t.same(await dequantize('1, 1, 4096', 4096), ['dequantize_bytes 1 256x1'])
  t.same(await dequantize('4097, 1, 1', 4097), ['dequantize_bytes 2 256x1'])
  t.same(await dequantize('1, 4097, 1', 4097), ['dequantize_bytes_channels 2 256x1'])
})

t.test('tables, sums and products', async t => {
  const lookup = (count: number) =>
    launches(
      `run('lookup', { count: ${count}, xSigned: false, ySigned: false, x: u8(${count}), table: u8(256), y: u8(${count}) })`,
    )
  t.same(await lookup(8192), ['lookup_bytes 1 256x1'])
  t.same(await lookup(8193), ['lookup_bytes 2 256x1'])
  t.same(await lookup(0), [])
  const binary = (fn: string, count: number) =>
    launches(`run('binaryBytes', { fn: '${fn}', count: ${count}, ...scaled('a'), ...scaled('b'), ...scaled('y'),
      a: u8(${count}), b: u8(${count}), y: u8(${count}) })`)
  t.same(await binary('add', 2048), ['binary_bytes_add 1 128x1'])
  t.same(await binary('mul', 2049), ['binary_bytes_mul 2 128x1'])
})

t.test('means', async t => {
  const mean = (rows: number, cols: number) => launches(`run('meanBytes', mean(${rows}, ${cols}))`)
  t.same(await mean(17, 4096), ['mean_bytes 3 256x1'], 'a warp for a row')
  t.same(await mean(3, 4097), ['mean_bytes_parts 3 256x1', 'mean_bytes_finish 1 256x1'])
  t.same(await mean(2, 70_000), ['mean_bytes_parts 6 256x1', 'mean_bytes_finish 1 256x1'], 'parts of 32 KiB')
  t.same(await mean(300, 70_000), ['mean_bytes_parts 900 256x1', 'mean_bytes_finish 2 256x1'], 'at most 1024')
  t.same(await mean(0, 5), [])
  t.same(await mean(0, 5000), [])
})

t.test('largest bytes of windows', async t => {
  const windows = `planes: 3, image: [9, 7], kernel: [3, 3], out: [9, 7], strides: [1, 1], dilations: [1, 1],
    padsBegin: [1, 1], padsEnd: [1, 1], countPad: false`
  const pool = (dtype: string, array: string, more = "fn: 'max'") =>
    launches(
      `run('pool', { ${windows}, dtype: '${dtype}', x: new ${array}(189), y: new ${array}(189), ${more} })`,
    )
  t.same(await pool('u8', 'Uint8Array'), ['pool_u8 1 256x1'])
  t.same(await pool('i8', 'Int8Array'), ['pool_i8 1 256x1'])
  await t.rejects(pool('u8', 'Uint8Array', "fn: 'average'"), /no kernel for pool in u8/)
  await t.rejects(
    pool('i8', 'Int8Array', "fn: 'max', indices: new BigInt64Array(189)"),
    /no kernel for pool in i8/,
  )
})
