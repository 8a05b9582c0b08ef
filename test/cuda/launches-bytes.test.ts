// Which kernels the operations on quantized bytes launch, and with what grids, on the fake driver.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { launchesOf } from '../fixtures/fake-driver/launches.js'
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
const launches = (call: string) => launchesOf(fakeDriver, discrete, `${head} await ${call}`)

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

t.test('convolutions', async t => {
  const conv = (filters: number, groups: number, more: string) =>
    launches(`run('convInteger', { batch: 2, groups: ${groups}, image: [9, 8], kernel: [3, 3], out: [9, 8], strides: [1, 1],
      dilations: [1, 1], padsBegin: [1, 1], rows: ${filters}, cols: ${(40 / groups) * 9}, xSigned: false, x: u8(2 * 40 * 72),
      y: new Int32Array(2 * ${filters} * 72), ${more} })`)
  const last = (filters: number, channels: number) =>
    `channelsLast: true, w: new Int8Array(${filters * Math.ceil((9 * channels) / 64) * 64})`
  // 144 pixels and 48 channels in one and two blocks; 2 tiles of filters by 3 of positions
  t.same(await conv(70, 1, last(70, 48)), ['conv_image_bytes 2 256x1', 'conv_integer_u8_64 6 128x1'])
  t.same(await conv(70, 2, last(70, 32)), ['conv_image_bytes 2 256x1', 'conv_integer_u8_64 6 128x1'])
  t.same(await conv(40, 40, 'w: new Int8Array(40 * 64)'), ['conv_integer_direct_u8 23 256x1'])
  await t.rejects(conv(70, 1, 'channelsLast: true, w: new Int8Array(70 * 384)'), /ERR_SHAPE|elements/)
})

t.test('convolutions of images with their channels last', async t => {
  const conv = (more: string) =>
    launches(`run('convInteger', { batch: 2, groups: 1, image: [9, 8], kernel: [3, 3], out: [9, 8], strides: [1, 1],
      dilations: [1, 1], padsBegin: [1, 1], rows: 80, cols: 48 * 9, xSigned: false, x: u8(2 * 48 * 72),
      channelsLast: true, w: new Int8Array(80 * 448), scale: f32(80), yDtype: 'u8', ${more} })`)
  const [product, y] = ['conv_integer_u8_64 6 128x1', 'yChannelsLast: u8(2 * 80 * 72)']
  t.same(await conv(`xOutside: u8(16), y: u8(2 * 80 * 72)`), [product])
  t.same(await conv(`xOutside: u8(16), ${y}`), [product])
  t.same(await conv(`y: u8(2 * 80 * 72), ${y}`), ['conv_image_bytes 2 256x1', product])
  await t.rejects(conv(y.replace('80', '79')), /elements/)
  await t.rejects(conv(`xOutside: u8(15), ${y}`), /elements/)
  await t.rejects(
    conv(`groups: 2, w: new Int8Array(80 * 320), cols: 24 * 9, xOutside: u8(16), ${y}`),
    /groups of 16/,
  )
  await t.rejects(conv(`scale: undefined, ${y}`), /needs a scale/)
})

/** A model of four quantized convolutions. */
const chain = `
  import { Constant, Model, Tensor } from 'dgx-spark'
  import { ints } from '#lib/graph/attributes.js'
  import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
  const initializers = new Map([
    ['s', Constant.f32(0.02)],
    ['z', Constant.from('u8', [], Uint8Array.of(120))],
    ['wz', Constant.from('i8', [], Int8Array.of(0))],
    ['w', Constant.from('i8', [32, 32, 3, 3], new Int8Array(32 * 288))],
  ])
  const nodes = [0, 1, 2, 3].map(i =>
    makeNode('QLinearConv', ['v' + i, 's', 'z', 'w', 's', 'wz', 's', 'z'], ['v' + (i + 1)], {
      attributes: { pads: ints([1, 1, 1, 1]) },
    }),
  )
  const inputs = [{ name: 'v0', type: tensorType('u8', ['batch', 32, 'height', 8]) }]
  const graph = makeGraph({ inputs, outputs: [{ name: 'v4' }], nodes, initializers })
  const model = await Model.fromGraph(graph, { backend: 'cuda' })
  for (const [batch, height] of [[1, 9], [1, 9], [2, 5]])
    await model.run({ v0: Tensor.zeros([batch, 32, height, 8], 'u8') })
  console.log(null)`

t.test('a chain of quantized convolutions packs its first image alone, for all sizes', async t => {
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(chain, env)
  const convs = lines('launch').filter(line => line.includes(' conv_'))
  const run = ['conv_image_bytes', ...Array<string>(4).fill('conv_integer_u8_64')]
  t.strictSame(
    convs.map(line => line.split(' ')[1]),
    [...run, ...run, ...run],
  )
})

/** A model of a quantized convolution between its casts. */
const model = `
  import { Constant, Model } from 'dgx-spark'
  import { ints } from '#lib/graph/attributes.js'
  import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
  const inputs = [{ name: 'x', type: tensorType('f32', [1, 20, 9, 8]) }]
  const initializers = new Map([
    ['s', Constant.f32(0.02)],
    ['z', Constant.from('u8', [], Uint8Array.of(120))],
    ['w', Constant.from('i8', [24, 20, 3, 3], new Int8Array(24 * 180))],
  ])
  const nodes = [
    makeNode('QuantizeLinear', ['x', 's', 'z'], ['q']),
    makeNode('QLinearConv', ['q', 's', 'z', 'w', 's', 'wz', 's', 'z'], ['c'], { attributes: { pads: ints([1, 1, 1, 1]) } }),
    makeNode('MaxPool', ['c'], ['p'], { attributes: { kernel_shape: ints([2, 2]) } }),
    makeNode('DequantizeLinear', ['p', 's', 'z'], ['y']),
  ]
  initializers.set('wz', Constant.from('i8', [], Int8Array.of(0)))
  const opsets = new Map([['', 17]])
  const graph = makeGraph({ inputs, outputs: [{ name: 'y' }], nodes, initializers, opsets })
  const model = await Model.fromGraph(graph, { backend: 'cuda' })
  for (let i = 0; i < 2; ++i) await model.run({ x: new Float32Array(1440) })
  console.log(null)`

t.test('quantized convolutions of models are int8 from end to end', async t => {
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(model, env)
  const launched = lines('launch').map(line => line.split(' ')[1])
  const run = ['quantize_bytes', 'conv_image_bytes', 'conv_integer_u8_64', 'pool_u8', 'dequantize_bytes']
  t.strictSame(launched.slice(-5), run, 'a run, whose weights were laid out before')
})
