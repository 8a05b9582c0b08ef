// bytes.ts: quantized bytes among the cases of `dgx-spark verify`: casts, tables, sums, means and largest bytes.
import type { ByteArray } from '../../kernels/integer-args.js'
import type { KernelArgs } from '../../kernels/kernels.js'
import { f32, type VerifyCase, type VerifySizes, values, verifyCase } from './values.js'

type ByteType = 'u8' | 'i8'

/** Any bytes. */
export function bytesOf(dtype: ByteType, count: number, seed: number): ByteArray {
  const unsigned = Uint8Array.from(values(count, seed), value => 128 + 128 * value)
  return dtype === 'i8' ? new Int8Array(unsigned.buffer) : unsigned
}

const emptyBytes = (dtype: ByteType, count: number): ByteArray =>
  dtype === 'i8' ? new Int8Array(count) : new Uint8Array(count)

/** Zero points. */
export const zeros = (dtype: ByteType, count: number, seed: number): Int32Array =>
  Int32Array.from(values(count, seed), value => 100 * value + (dtype === 'u8' ? 101 : 0))

const scales = (count: number, seed: number): Float32Array =>
  values(count, seed).map(value => 0.02 + 0.01 * value)

/** Every operation on quantized bytes, of either type. */
export function byteCases(sizes: VerifySizes): VerifyCase[] {
  return (['u8', 'i8'] as const).flatMap(dtype => [
    ...affineCases(dtype, sizes),
    ...lookupCases(dtype, sizes),
    ...binaryCases(dtype, sizes),
    ...meanCases(dtype, sizes),
    poolCase(dtype, sizes),
  ])
}

/** A scale for all, for each row and for each column. Quotients are beyond the range of bytes, infinities and NaN, too. */
function affineCases(dtype: ByteType, { rows, cols }: VerifySizes): VerifyCase[] {
  const count = rows * cols
  const floats = values(count, 61).map(value => 4 * value)
  floats.set([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e30, -0].slice(0, count))
  const codes = bytesOf(dtype, count, 62)
  const shapes = [
    ['', 1, 1, count],
    [' by rows', 1, rows, cols],
    [' by columns', rows, cols, 1],
  ] as const
  return shapes.flatMap(([name, outer, channels, inner]) => {
    const affine = {
      dtype,
      outer,
      channels,
      inner,
      scale: scales(channels, 63),
      zero: zeros(dtype, channels, 64),
    }
    return [
      verifyCase('quantize', `${dtype}${name}`, ['y'], 0, () => {
        return { ...affine, x: floats, y: emptyBytes(dtype, count) }
      }),
      verifyCase('dequantize', `${dtype}${name}`, ['y'], 0, () => ({ ...affine, x: codes, y: f32(count) })),
    ]
  })
}

function lookupCases(dtype: ByteType, { rows, cols }: VerifySizes): VerifyCase[] {
  const count = rows * cols + 5
  const [x, table] = [bytesOf('u8', count, 65), bytesOf(dtype, 256, 66)]
  return [
    verifyCase('lookup', dtype, ['y'], 0, () => {
      return { count, xSigned: false, ySigned: dtype === 'i8', x, table, y: emptyBytes(dtype, count) }
    }),
  ]
}

/** Bytes of dtype and of the other type, with the result in dtype. */
function binaryCases(dtype: ByteType, { rows, cols }: VerifySizes): VerifyCase[] {
  const count = rows * cols + 5
  const bDtype = dtype === 'u8' ? ('i8' as const) : ('u8' as const)
  const args: Omit<KernelArgs['binaryBytes'], 'fn' | 'y'> = {
    count,
    aDtype: dtype,
    a: bytesOf(dtype, count, 67),
    aScale: scales(1, 68),
    aZero: zeros(dtype, 1, 69),
    bDtype,
    b: bytesOf(bDtype, count, 70),
    bScale: scales(1, 71),
    bZero: zeros(bDtype, 1, 72),
    yDtype: dtype,
    yScale: scales(1, 73),
    yZero: zeros(dtype, 1, 74),
  }
  return (['add', 'mul'] as const).map(fn =>
    verifyCase('binaryBytes', `${fn}, ${dtype}`, ['y'], 0, () => ({
      ...args,
      fn,
      y: emptyBytes(dtype, count),
    })),
  )
}

/** Rows, and some that are summed in parts on a GPU. */
function meanCases(dtype: ByteType, { tokens, rows, cols }: VerifySizes): VerifyCase[] {
  const shapes = [
    [rows, cols],
    [Math.min(tokens, 3), 40_001],
  ] as const
  return shapes.map(([count, columns]) => {
    const x = bytesOf(dtype, count * columns, 75)
    const types = { xDtype: dtype, yDtype: dtype } as const
    const of = { xScale: scales(1, 76), xZero: zeros(dtype, 1, 77) }
    const scale = { ...of, yScale: Float32Array.of(0.05), yZero: Int32Array.of(dtype === 'u8' ? 100 : 3) }
    return verifyCase('meanBytes', `${dtype} of ${columns}`, ['y'], 0, () => {
      return { rows: count, cols: columns, ...types, ...scale, x, y: emptyBytes(dtype, count) }
    })
  })
}

function poolCase(dtype: ByteType, { tokens, rows, cols }: VerifySizes): VerifyCase {
  const image = [Math.min(rows, 33), Math.min(cols, 48)] as const
  const out = image.map(size => Math.ceil(size / 2))
  const window = { kernel: [3, 3], strides: [2, 2], dilations: [1, 1], padsBegin: [1, 1], padsEnd: [1, 1] }
  const planes = Math.min(tokens, 5)
  const x = bytesOf(dtype, planes * image[0] * image[1], 78)
  return verifyCase('pool', `largest ${dtype}`, ['y'], 0, () => ({
    fn: 'max',
    dtype,
    planes,
    image,
    out,
    ...window,
    countPad: false,
    x,
    y: emptyBytes(dtype, planes * out[0]! * out[1]!),
  }))
}
