// precision.ts: casts and quantizers of the js backend, and their contracts.
import { expectInteger, expectNumber, expectOneOf } from '../../core/checks.js'
import { arrayBytes } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { isFormat } from '../../precision/float-formats.js'
import type { PrecisionKernelArgs } from '../../precision/kernel-args.js'
import { precisionKernels } from '../../precision/kernels.js'
import { swizzledLength } from '../../precision/scale-order.js'
import type { CastKernelArgs, KernelArgs } from '../kernels.js'
import { floatReader, floatWriter, integerReader, integerWriter, isInteger, toInteger } from './elements.js'
import { nvfp4Sizes } from './operands.js'
import { elements, type KernelRows } from './row.js'

/** dst = src in another format */
function cast(args: KernelArgs['cast']): void {
  const { srcDtype, dstDtype, count, src, dst, ...conversion } = args
  if (args.bits) {
    const bytes = count * src.BYTES_PER_ELEMENT
    const from = new Uint8Array(src.buffer, src.byteOffset, bytes)
    new Uint8Array(dst.buffer, dst.byteOffset, bytes).set(from)
  } else if (isFormat(srcDtype) && isFormat(dstDtype)) {
    precisionKernels.cast(args as PrecisionKernelArgs['cast'])
  } else if (isInteger(srcDtype)) {
    const read = integerReader(srcDtype, src)
    if (isInteger(dstDtype)) {
      const write = integerWriter(dstDtype, dst, conversion)
      for (let i = 0; i < count; i++) write(i, read(i))
    } else {
      const write = floatWriter(dstDtype, dst, conversion)
      for (let i = 0; i < count; i++) write(i, Number(read(i)))
    }
  } else {
    const read = floatReader(srcDtype, src)
    if (dstDtype === 'bool') {
      for (let i = 0; i < count; i++) dst[i] = Number(read(i) !== 0)
    } else if (isInteger(dstDtype)) {
      const write = integerWriter(dstDtype, dst, conversion)
      const unsigned = dstDtype.startsWith('u')
      for (let i = 0; i < count; i++) write(i, toInteger(read(i), unsigned))
    } else {
      const write = floatWriter(dstDtype, dst, conversion)
      for (let i = 0; i < count; i++) write(i, read(i))
    }
  }
}

function expectCast({ bits, srcDtype, dstDtype }: KernelArgs['cast']): void {
  if (!bits || arrayBytes(srcDtype, 1) === arrayBytes(dstDtype, 1)) return
  throw new SparkError('ERR_DTYPE', `${srcDtype} and ${dstDtype} differ in size`)
}

function expectRecipe({ recipe = 'modelopt', encodeScale }: KernelArgs['nvfp4Quantize']): void {
  expectOneOf('recipe', recipe, ['modelopt', 'te', 'mse'])
  if (recipe === 'te') expectNumber('encodeScale', encodeScale)
}

/** Arrays of a matrix in NVFP4. */
function nvfp4Arrays(rows: number, cols: number) {
  const { packed, blockScale } = nvfp4Sizes(rows, cols)
  return { packed: elements('u8', packed), blockScale: elements('u8', blockScale) }
}

/** Contracts of casts and quantizers. */
export const precisionRows: KernelRows<keyof CastKernelArgs> = {
  cast: {
    kernel: cast,
    sizes: ['count'],
    check: expectCast,
    operands: ({ srcDtype, dstDtype, count }) => ({
      src: elements(srcDtype, count),
      dst: elements(dstDtype, count),
    }),
  },
  amax: {
    kernel: precisionKernels.amax,
    sizes: ['count'],
    operands: ({ dtype, count }) => ({ src: elements(dtype, count), out: 1 }),
  },
  nvfp4Quantize: {
    kernel: precisionKernels.nvfp4Quantize,
    sizes: ['rows', 'cols'],
    check: expectRecipe,
    operands: ({ srcDtype, rows, cols }) => ({
      src: elements(srcDtype, rows * cols),
      ...nvfp4Arrays(rows, cols),
    }),
  },
  nvfp4Dequantize: {
    kernel: precisionKernels.nvfp4Dequantize,
    sizes: ['rows', 'cols'],
    operands: ({ rows, cols }) => ({ ...nvfp4Arrays(rows, cols), dst: rows * cols }),
  },
  fp8Quantize: {
    kernel: precisionKernels.fp8Quantize,
    sizes: ['rows', 'cols'],
    check({ blockRows, blockCols }) {
      expectInteger('blockRows', blockRows, 1)
      expectInteger('blockCols', blockCols, 1)
    },
    operands: ({ srcDtype, rows, cols, blockRows, blockCols }) => ({
      src: elements(srcDtype, rows * cols),
      codes: elements('u8', rows * cols),
      scale: Math.ceil(rows / blockRows) * Math.ceil(cols / blockCols),
    }),
  },
  swizzleScales: {
    kernel: precisionKernels.swizzleScales,
    sizes: ['rows', 'cols'],
    operands({ rows, cols, inverse }) {
      const [linear, tiled] = [elements('u8', rows * cols), elements('u8', swizzledLength(rows, cols))]
      return inverse ? { src: tiled, dst: linear } : { src: linear, dst: tiled }
    },
  },
}
