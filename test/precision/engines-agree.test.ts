// The native kernels and the TypeScript ones give the same bits, on every thread count.
import type { DType, DTypeArray } from 'dgx-spark'
import t, { type Test } from 'tap'
import { dtypeArray, dtypes } from '#lib/core/dtype.js'
import { loadAddon } from '#lib/native.js'
import { codesOf, floatFormats } from '#lib/precision/float-formats.js'
import {
  amax,
  cast,
  fp8,
  type Matrix,
  nvfp4,
  runJs,
  runNative,
  sameBits,
} from '../fixtures/precision-engines.js'
import { randomGenerator } from '../fixtures/values/random.js'

const state = loadAddon()
const noAddon = state.addon ? false : `no addon: ${state.reason}`
const wide = ['f32', 'f16', 'bf16'] as const
const seed = 20261120

t.beforeEach(() => state.addon?.setThreads(2))
t.teardown(() => state.addon?.setThreads(0))

/** All codes of a format; for f32 its bit patterns next to every value and every midpoint of the narrower formats. */
function adversarial(dtype: DType): DTypeArray {
  if (dtype !== 'f32') {
    const codes = dtypeArray(dtype, 1 << (8 * (dtypeArray(dtype, 0).BYTES_PER_ELEMENT ?? 1)))
    for (let code = 0; code < codes.length; code++) codes[code] = code
    return codes
  }
  const bits: number[] = [
    0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff, 1, 0x007fffff, 0x00800000,
  ]
  for (const narrow of ['f16', 'bf16', 'f8_e4m3', 'f8_e5m2'] as const) {
    const { decode, limit } = floatFormats[narrow]
    const largest = limit(false)
    const stride = narrow === 'f16' || narrow === 'bf16' ? 3 : 1
    for (let code = 0; code < largest; code += stride) {
      const below = decode(code)
      const above = code + 1 < largest ? decode(code + 1) : below + (below - decode(code - 1))
      const middle = middleBits(below, above)
      for (const center of [below, middle]) bits.push(Math.max(center - 1, 0), center, center + 1)
    }
  }
  return new Float32Array(Uint32Array.from(bits.flatMap(value => [value, (value | 0x80000000) >>> 0])).buffer)
}

/** Bits of (a + b) / 2, exact in double and in f32 for neighbours of a narrower format. */
function middleBits(a: number, b: number): number {
  const values = new Float32Array(new Uint32Array([a, b]).buffer)
  const middle = new Float32Array([(values[0] + values[1]) / 2])
  return new Uint32Array(middle.buffer)[0]
}

/** `count` random bit patterns. */
function randomCodes(dtype: DType, count: number, random: () => number): DTypeArray {
  const codes = dtypeArray(dtype, count)
  const bytes = new Uint8Array(codes.buffer)
  for (let i = 0; i < bytes.length; i++) bytes[i] = random() * 256
  return codes
}

/** Finite values over `decades` powers of ten in the given format. */
function randomMatrix(
  srcDtype: DType,
  rows: number,
  cols: number,
  decades: number,
  random: () => number,
): Matrix {
  const values = Float32Array.from({ length: rows * cols }, () =>
    random() < 0.02 ? 0 : (random() - 0.5) * 10 ** (decades * (random() - 0.5)),
  )
  return { srcDtype, src: cast(runJs, values, 'f32', srcDtype), rows, cols }
}

t.test('casts between all formats', { skip: noAddon }, async t => {
  const random = randomGenerator(seed)
  for (const from of dtypes) {
    const sources = { adversarial: adversarial(from), random: randomCodes(from, 65537, random) }
    for (const [name, src] of Object.entries(sources)) {
      for (const to of dtypes) {
        for (const saturate of [true, false]) {
          const label = `${name} ${from} > ${to}, ${src.length} elements, saturate ${saturate}`
          sameBits(
            t,
            cast(runNative, src, from, to, saturate),
            cast(runJs, src, from, to, saturate),
            label,
            src,
          )
        }
      }
    }
  }
})

t.test('a cast to f32 and back keeps every number', { skip: noAddon }, async t => {
  for (const dtype of dtypes) {
    const codes = adversarial(dtype)
    const { decode, encode, limit } = floatFormats[dtype]
    const back = cast(runNative, cast(runNative, codes, dtype, 'f32'), 'f32', dtype, false)
    const expected = cast(runJs, codes, dtype, dtype, false)
    sameBits(t, back, expected, `${dtype} round trip`, codes)
    t.equal(encode(decode(limit(true)), limit(true)), limit(true), `${dtype} keeps its largest code`)
  }
})

t.test('odd sizes, unaligned views and thread counts', { skip: noAddon }, async t => {
  const random = randomGenerator(seed + 1)
  const values = randomMatrix('f32', 1, 200_003, 12, random).src as Float32Array
  for (const threads of [1, 2, 3]) {
    state.addon?.setThreads(threads)
    for (const count of [0, 1, 2, 15, 16, 17, 32767, 32769, 200_002]) {
      const src = values.subarray(1, 1 + count)
      for (const to of ['bf16', 'f8_e4m3'] as const) {
        sameBits(
          t,
          cast(runNative, src, 'f32', to),
          cast(runJs, src, 'f32', to),
          `${threads} threads, ${count} ${to}`,
        )
      }
      t.equal(amax(runNative, src, 'f32'), amax(runJs, src, 'f32'), `${threads} threads, amax of ${count}`)
    }
  }
})

t.test('a result that no cache holds', { skip: noAddon }, async t => {
  const count = 2 ** 24 + 1031
  const src = Uint8Array.from({ length: count }, (_, i) => (i * 167) >>> 3)
  const table = cast(runJs, adversarial('f8_e4m3'), 'f8_e4m3', 'f32')
  const expected = codesOf(table)
  for (const shift of [0, 1]) {
    const dst = new Float32Array(count + shift + 16).subarray(shift)
    runNative('cast', { srcDtype: 'f8_e4m3', dstDtype: 'f32', count, saturate: true, src, dst })
    const bits = codesOf(dst)
    t.equal(
      src.findIndex((code, i) => bits[i] !== expected[code]),
      -1,
      `${shift} elements past the start`,
    )
    t.same(dst.subarray(count), new Float32Array(16), 'nothing is written past the end')
  }
})

t.test('amax of every format, with infinity and NaN', { skip: noAddon }, async t => {
  const random = randomGenerator(seed + 2)
  for (const dtype of wide) {
    const { src } = randomMatrix(dtype, 7, 10_001, 6, random)
    const expected = (cast(runJs, src, dtype, 'f32') as Float32Array).reduce(
      (a, b) => Math.max(a, Math.abs(b)),
      0,
    )
    t.ok(expected > 0)
    for (const run of [runNative, runJs]) {
      t.equal(amax(run, src, dtype), expected, `${dtype} amax`)
      const special = src.slice()
      special[70_006] = cast(runJs, Float32Array.of(-Infinity), 'f32', dtype)[0]
      t.equal(amax(run, special, dtype), Infinity, `${dtype} infinity`)
      special[3] = cast(runJs, Float32Array.of(Number.NaN), 'f32', dtype)[0]
      t.ok(Number.isNaN(amax(run, special, dtype)), `${dtype} NaN`)
    }
  }
})

/** All recipes give the same in both engines; what they gave. */
function sameNVFP4(t: Test, matrix: Matrix, tensorScale: number, label: string): { dst: Float32Array }[] {
  const encodeScale = Math.fround(1 / tensorScale)
  return (['modelopt', 'te', 'mse'] as const).map(recipe => {
    const actual = nvfp4(runNative, matrix, { recipe, tensorScale, encodeScale })
    const expected = nvfp4(runJs, matrix, { recipe, tensorScale, encodeScale })
    const name = `${recipe}, ${label}, scale ${tensorScale}`
    sameBits(t, actual.blockScale, expected.blockScale, `${name}: scales`)
    sameBits(t, actual.packed, expected.packed, `${name}: codes`)
    sameBits(t, actual.dst, expected.dst, `${name}: values`)
    return actual
  })
}

t.test('nvfp4', { skip: noAddon }, async t => {
  const random = randomGenerator(seed + 3)
  for (const threads of [1, 2]) {
    state.addon?.setThreads(threads)
    for (const [rows, cols] of [
      [0, 32],
      [3, 0],
      [1, 16],
      [3, 48],
      [77, 272],
      [1031, 80],
    ]) {
      for (const dtype of wide) {
        for (const decades of [1, 8]) {
          const matrix = randomMatrix(dtype, rows, cols, decades, random)
          const largest = amax(runJs, matrix.src, dtype)
          for (const tensorScale of [largest / 2688, largest / 500, largest / 30000].map(Math.fround)) {
            const label = `${threads} threads, ${dtype} [${rows}, ${cols}], ${decades} decades`
            sameNVFP4(t, matrix, tensorScale || 1, label)
          }
        }
      }
    }
  }
})

t.test('nvfp4 at the ends of f32', { skip: noAddon }, async t => {
  const src = adversarial('f32').filter((value: number) => Number.isFinite(value)) as Float32Array
  const matrix: Matrix = { srcDtype: 'f32', src, rows: 1, cols: src.length - (src.length % 16) }
  for (const tensorScale of [2 ** -126, 1e-20, 1, 1e20, Math.fround(3.4e38 / 2688), 2 ** 127]) {
    const results = sameNVFP4(t, matrix, Math.fround(tensorScale), 'ends of f32')
    for (const { dst } of results) t.notOk(dst.some(Number.isNaN), 'no NaN')
  }
})

t.test('nvfp4 dequantizes every byte', { skip: noAddon }, async t => {
  const packed = Uint8Array.from({ length: 256 * 8 }, (_, i) => (i * 37) & 255)
  const blockScale = Uint8Array.from({ length: 256 }, (_, i) => i)
  const args = { rows: 256, cols: 16, tensorScale: Math.fround(0.1), packed, blockScale }
  const actual = new Float32Array(256 * 16)
  const expected = new Float32Array(256 * 16)
  runNative('nvfp4Dequantize', { ...args, dst: actual })
  runJs('nvfp4Dequantize', { ...args, dst: expected })
  const bothNaN = (i: number): boolean => Number.isNaN(actual[i]) && Number.isNaN(expected[i])
  t.equal(
    expected.findIndex((value, i) => !Object.is(value, actual[i]) && !bothNaN(i)),
    -1,
  )
  t.ok(bothNaN(127 * 16) && bothNaN(255 * 16), 'a scale that is NaN makes the block NaN')
})

t.test('fp8', { skip: noAddon }, async t => {
  const random = randomGenerator(seed + 4)
  for (const threads of [1, 2]) {
    state.addon?.setThreads(threads)
    for (const [rows, cols] of [
      [0, 5],
      [5, 0],
      [1, 1],
      [33, 17],
      [257, 301],
    ]) {
      for (const dtype of wide) {
        const matrix = randomMatrix(dtype, rows, cols, 10, random)
        for (const [blockRows, blockCols] of [
          [1, Math.max(cols, 1)],
          [Math.max(rows, 1), Math.max(cols, 1)],
          [16, 16],
          [3, 1000],
        ] as const) {
          const actual = fp8(runNative, matrix, blockRows, blockCols)
          const expected = fp8(runJs, matrix, blockRows, blockCols)
          const name = `${threads} threads, ${dtype} [${rows}, ${cols}] by ${blockRows} x ${blockCols}`
          sameBits(t, actual.codes, expected.codes, `${name}: codes`)
          sameBits(t, actual.scale, expected.scale, `${name}: scales`)
        }
      }
    }
  }
})
