// Convolutions, products and casts of numbers of 8 bits are the same bytes on the CPU as in TypeScript.
import t, { type Test } from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { ByteArray, KernelArgs, KernelOp } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { randomGenerator } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))
const random = randomGenerator(5)

const below = (limit: number): number => Math.floor(random() * limit)
const integers = (count: number, limit: number): Int32Array =>
  Int32Array.from({ length: count }, () => below(2 * limit) - limit)
const bytes = (count: number, signed: boolean): ByteArray => {
  const data = Uint8Array.from({ length: count }, () => below(256))
  return signed ? new Int8Array(data.buffer) : data
}
const floats = (count: number, low: number, high: number): Float32Array =>
  Float32Array.from({ length: count }, () => low + (high - low) * random())

/** Runs an operation on both engines, on 1 and 3 threads, and compares y. */
function agree<Op extends KernelOp>(t: Test, op: Op, args: KernelArgs[Op], name: string): void {
  const { y } = args as unknown as { y: Int32Array }
  const run = (call: (op: Op, args: KernelArgs[Op]) => void) => {
    const out = y.slice().fill(77)
    call(op, { ...args, y: out })
    return out
  }
  const expected = run(jsKernels.runSync)
  for (const threads of [1, 3]) {
    addon.setThreads(threads)
    t.strictSame(run(addon.run), expected, `${name}, ${threads} threads`)
  }
}

/** The results that sums may have, for y of so many elements. */
const results = (features: number, count: number, scale: number) => [
  { y: new Int32Array(count) },
  {
    scale: floats(features, 0, scale),
    yDtype: 'u8' as const,
    yZero: integers(1, 100).map(Math.abs),
    y: new Uint8Array(count),
  },
  {
    scale: floats(features, 0, scale),
    yDtype: 'i8' as const,
    yZero: integers(1, 100),
    y: new Int8Array(count),
  },
]

const numel = (sizes: readonly number[]): number => sizes.reduce((a, b) => a * b, 1)

/** Rows of `cols` weights with zeros up to a multiple of 64. */
function paddedRows(rows: number, cols: number): Int8Array {
  const stride = Math.ceil(cols / 64) * 64
  return new Int8Array(rows * stride).map((_, i) => (i % stride < cols ? below(256) - 128 : 0))
}

const line = { kernel: [1], strides: [1], dilations: [1], padsBegin: [0] }
const plane = { kernel: [3, 3], strides: [1, 1], dilations: [1, 1], padsBegin: [1, 1] }
const shapes = {
  '1x1': { ...line, batch: 2, groups: 1, channels: 13, filters: 67, image: [49], out: [49] },
  'one position': { ...line, batch: 1, groups: 1, channels: 70, filters: 35, image: [1], out: [1] },
  'many channels': { ...line, batch: 1, groups: 1, channels: 2100, filters: 33, image: [37], out: [37] },
  '3x3': { ...plane, batch: 2, groups: 1, channels: 5, filters: 9, image: [7, 11], out: [7, 11] },
  '3x3 / 2': {
    ...plane,
    strides: [2, 2],
    batch: 1,
    groups: 1,
    channels: 3,
    filters: 24,
    image: [23, 37],
    out: [12, 19],
  },
  groups: { ...plane, batch: 2, groups: 2, channels: 6, filters: 10, image: [9, 5], out: [9, 5] },
  depthwise: { ...plane, batch: 2, groups: 7, channels: 7, filters: 7, image: [7, 7], out: [7, 7] },
  'depthwise / 2': {
    ...plane,
    strides: [2, 2],
    batch: 1,
    groups: 5,
    channels: 5,
    filters: 10,
    image: [70, 90],
    out: [35, 45],
  },
  'wide depthwise': {
    kernel: [1, 5],
    strides: [1, 3],
    dilations: [1, 2],
    padsBegin: [0, 3],
    batch: 1,
    groups: 3,
    channels: 6,
    filters: 6,
    image: [2, 13001],
    out: [2, 4333],
  },
  '3-D': {
    kernel: [2, 2, 2],
    strides: [2, 1, 1],
    dilations: [1, 2, 1],
    padsBegin: [1, -1, 1],
    batch: 1,
    groups: 1,
    channels: 3,
    filters: 4,
    image: [3, 6, 5],
    out: [2, 3, 6],
  },
}

for (const [name, { channels, filters, ...shape }] of Object.entries(shapes)) {
  t.test(`convInteger ${name}`, async t => {
    const cols = (channels / shape.groups) * numel(shape.kernel)
    const common = { ...shape, rows: filters, cols, w: paddedRows(filters, cols) }
    const pixels = shape.batch * channels * numel(shape.image)
    for (const xSigned of [false, true]) {
      const x = bytes(pixels, xSigned)
      const xZero = Int32Array.of(xSigned ? -9 : 131)
      const bias = integers(filters, 5000)
      for (const more of [{}, { xZero, bias }, { xZero, wZero: integers(filters, 128) }]) {
        for (const result of results(filters, shape.batch * filters * numel(shape.out), 0.01)) {
          const about = `${xSigned ? 'i8' : 'u8'} ${Object.keys(more)} to ${result.y.constructor.name}`
          agree(t, 'convInteger', { ...common, xSigned, x, ...more, ...result }, about)
        }
      }
    }
  })
}

t.test('the largest sums are exact', async t => {
  const shape = { ...line, batch: 1, groups: 1, image: [3], out: [3], rows: 1, cols: 70016 }
  const common = { ...shape, xSigned: false, x: new Uint8Array(3 * 70016).fill(255), y: new Int32Array(3) }
  addon.run('convInteger', { ...common, w: new Int8Array(70016).fill(-128) })
  t.strictSame([...common.y], Array(3).fill((255 * -128 * 70016) | 0), 'beyond 2^31')
})

t.test('linearInteger with packed weights', async t => {
  for (const [tokens, rows, cols] of [
    [1, 1, 1],
    [1, 100, 131],
    [7, 33, 30],
    [70, 65, 1030],
    [0, 3, 5],
  ] as const) {
    const [panels, lanes] = [Math.ceil(rows / 32), Math.ceil(cols / 4)]
    const w = bytes(panels * lanes * 128, true)
    const wSum = new Int32Array(rows)
    for (let o = 0; o < rows; o++) {
      for (let i = 0; i < cols; i++) {
        wSum[o] += w[((o >> 5) * lanes + (i >> 2)) * 128 + (o & 31) * 4 + (i & 3)]!
      }
    }
    for (const xSigned of [false, true]) {
      const common = { tokens, rows, cols, xSigned, wSigned: true, packed: true, w }
      const x = bytes(tokens * cols, xSigned)
      const zeros = { xZero: integers(tokens, 128), bias: integers(rows, 9999) }
      for (const more of [{}, zeros, { ...zeros, wSum, wZero: integers(rows, 128) }]) {
        for (const result of results(rows, tokens * rows, 0.01)) {
          const about = `${[tokens, rows, cols]} ${Object.keys(more)} to ${result.y.constructor.name}`
          agree(t, 'linearInteger', { ...common, x, ...more, ...result }, about)
        }
      }
    }
  }
})

t.test('casts', async t => {
  for (const [outer, channels, inner] of [
    [1, 1, 40000],
    [2, 3, 5],
    [3, 4, 17],
    [5, 6, 1],
    [0, 1, 3],
  ] as const) {
    const count = outer * channels * inner
    const x = floats(count, -20, 20)
    x.set([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e30, -1e30].slice(0, count))
    const shape = { outer, channels, inner, scale: floats(channels, 0.05, 0.2) }
    const zero = integers(channels, 100)
    for (const [dtype, y, zeros] of [
      ['u8', new Uint8Array(count), zero.map(Math.abs)],
      ['i8', new Int8Array(count), zero],
    ] as const) {
      const about = `${dtype} of ${[outer, channels, inner]}`
      agree(t, 'quantize', { ...shape, dtype, x, y }, about)
      agree(t, 'quantize', { ...shape, dtype, x, zero: zeros, y }, `${about} with zero points`)
      const codes = bytes(count, dtype === 'i8')
      const back = new Float32Array(count)
      agree(t, 'dequantize', { ...shape, dtype, x: codes, y: back }, about)
      agree(t, 'dequantize', { ...shape, dtype, x: codes, zero: zeros, y: back }, `${about} with zero points`)
    }
  }
})

t.test('quotients are rounded to the even integer', async t => {
  const y = new Int8Array(9)
  const x = Float32Array.of(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 127.5, 126.5, -128.5)
  const scale = Float32Array.of(1)
  addon.run('quantize', { dtype: 'i8', outer: 1, channels: 1, inner: 9, x, scale, y })
  t.strictSame([...y], [-2, -2, 0, 0, 2, 2, 127, 126, -128])
})

t.test('lookup', async t => {
  for (const [xSigned, ySigned] of [
    [false, false],
    [true, false],
    [false, true],
    [true, true],
  ] as const) {
    const [x, table] = [bytes(40001, xSigned), bytes(256, ySigned)]
    agree(t, 'lookup', { count: x.length, xSigned, ySigned, x, table, y: bytes(x.length, ySigned) }, '')
  }
})

t.test('sums, products and means of bytes', async t => {
  const operand = (name: string, dtype: 'u8' | 'i8', scale: number) => ({
    [`${name}Dtype`]: dtype,
    [`${name}Scale`]: Float32Array.of(scale),
    [`${name}Zero`]: Int32Array.of(dtype === 'u8' ? 131 : -9),
  })
  for (const [aDtype, bDtype, yDtype] of [
    ['u8', 'u8', 'u8'],
    ['i8', 'u8', 'i8'],
    ['u8', 'i8', 'u8'],
  ] as const) {
    const y = (count: number) => bytes(count, yDtype === 'i8')
    for (const count of [0, 1, 17, 70001]) {
      const inputs = { a: bytes(count, aDtype === 'i8'), b: bytes(count, bDtype === 'i8'), y: y(count) }
      for (const fn of ['add', 'mul'] as const) {
        const scales = {
          ...operand('a', aDtype, 0.02),
          ...operand('b', bDtype, 0.03),
          ...operand('y', yDtype, 0.04),
        }
        const args = { fn, count, ...inputs, ...scales } as unknown as KernelArgs['binaryBytes']
        agree(t, 'binaryBytes', args, `${fn} of ${count} ${aDtype}`)
      }
    }
    for (const [rows, cols] of [
      [1, 1],
      [1025, 49],
      [3, 70001],
      [0, 5],
    ] as const) {
      const scales = { ...operand('x', aDtype, 0.02), ...operand('y', yDtype, 0.001) }
      const x = bytes(rows * cols, aDtype === 'i8')
      const args = { rows, cols, x, y: y(rows), ...scales } as unknown as KernelArgs['meanBytes']
      agree(t, 'meanBytes', args, `${rows} means of ${cols} ${aDtype}`)
    }
  }
})

t.test('the largest bytes of windows', async t => {
  const windows = {
    plain: {
      image: [7, 33],
      kernel: [3, 3],
      out: [4, 17],
      strides: [2, 2],
      dilations: [1, 1],
      padsBegin: [1, 1],
    },
    wide: {
      image: [2, 5003],
      kernel: [1, 2],
      out: [2, 5001],
      strides: [1, 1],
      dilations: [1, 2],
      padsBegin: [0, 0],
    },
    outside: { image: [3], kernel: [2], out: [9], strides: [1], dilations: [1], padsBegin: [4] },
  }
  for (const [name, window] of Object.entries(windows)) {
    for (const dtype of ['u8', 'i8'] as const) {
      const signed = dtype === 'i8'
      const x = bytes(3 * numel(window.image), signed)
      const y = bytes(3 * numel(window.out), signed)
      const padsEnd = window.padsBegin.map(pad => pad + 1)
      const args = { fn: 'max' as const, dtype, planes: 3, countPad: false, ...window, padsEnd, x, y }
      agree(t, 'pool', args, `${name} ${dtype}`)
    }
  }
})

t.test('operands that do not fit are refused', async t => {
  const shape = { ...line, batch: 1, groups: 1, image: [3], out: [3], rows: 2, cols: 5, xSigned: false }
  const fits = { ...shape, x: new Uint8Array(15), w: new Int8Array(128), y: new Int32Array(6) }
  const scaled = { ...fits, scale: new Float32Array(2), y: new Uint8Array(6) }
  for (const run of [addon.run, jsKernels.runSync]) {
    t.doesNotThrow(() => run('convInteger', fits))
    t.throws(() => run('convInteger', { ...fits, w: new Int8Array(127) }), { code: 'ERR_SHAPE' })
    t.throws(() => run('convInteger', { ...fits, cols: 0 }), { code: 'ERR_SHAPE' })
    t.throws(() => run('convInteger', { ...fits, groups: 3 }), { code: 'ERR_SHAPE' })
    t.throws(
      () => run('lookup', { count: 3, xSigned: false, ySigned: false, x: fits.x, table: fits.x, y: fits.x }),
      {
        code: 'ERR_SHAPE',
      },
    )
    t.throws(() => run('convInteger', { ...scaled, yDtype: 'f32' as 'u8' }))
  }
  const zeros = new Uint8Array(16)
  for (const image of [{ xOutside: zeros }, { ...scaled, yDtype: 'u8' as const, yChannelsLast: zeros }])
    for (const run of [addon.run, jsKernels.runSync])
      t.throws(() => run('convInteger', { ...fits, ...image }), {
        code: 'ERR_SHAPE',
        message: /for channelsLast/,
      })
  t.throws(() => addon.run('convInteger', { ...fits, w: new Int8Array(new ArrayBuffer(130), 1, 128) }), {
    code: 'ERR_ARGUMENT',
  })
  t.throws(() => addon.run('convInteger', { ...fits, xSigned: true }), { code: 'ERR_DTYPE' })
})
