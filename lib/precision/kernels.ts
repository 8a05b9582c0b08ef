// kernels.ts: casts and quantizers in TypeScript, bit-equal to native/backend/cpu/simd/precision_kernels_body.h, and the
// choice between the two. Recipes: docs/numerics.md.
import { loadAddon } from '../native.js'
import { bitsFloat, codesOf, e2m1, e4m3, floatBits, floatFormats } from './float-formats.js'
import type { NVFP4Recipe, PrecisionKernelArgs } from './kernel-args.js'
import { forEachScale, swizzledLength } from './scale-order.js'

/** Elements of an NVFP4 row that share a block scale. */
export const nvfp4Block = 16

/** The largest finite f32. */
export const largestFloat = (2 - 2 ** -23) * 2 ** 127

const e4m3Limit = e4m3.limit(true)
const e2m1Limit = e2m1.limit(true)

/** The TypeScript kernels, by the names of lib/kernels/kernels.ts. */
export const precisionKernels: {
  readonly [Op in keyof PrecisionKernelArgs]: (args: PrecisionKernelArgs[Op]) => void
} = {
  cast({ srcDtype, dstDtype, count, saturate, src, dst }) {
    const { decode } = floatFormats[srcDtype]
    const { encode, limit } = floatFormats[dstDtype]
    const from = codesOf(src)
    const to = codesOf(dst)
    const largest = limit(saturate)
    for (let i = 0; i < count; i++) to[i] = encode(decode(from[i]), largest)
  },

  amax({ dtype, count, src, out }) {
    // Magnitudes are ordered like their codes with the sign cleared, infinity and NaN on top.
    const codes = codesOf(src)
    const mask = dtype === 'f32' ? 0x7fffffff : 0x7fff
    let largest = 0
    for (let i = 0; i < count; i++) {
      const magnitude = codes[i] & mask
      if (magnitude > largest) largest = magnitude
    }
    const { encode, limit } = floatFormats.f32
    codesOf(out)[0] = encode(floatFormats[dtype].decode(largest), limit(false))
  },

  nvfp4Quantize({
    srcDtype,
    rows,
    cols,
    recipe = 'modelopt',
    tensorScale,
    encodeScale,
    src,
    packed,
    blockScale,
  }) {
    const { decode } = floatFormats[srcDtype]
    const { choose, normalize } = nvfp4Recipes[recipe]
    const multiplier = Math.fround((recipe === 'te' ? encodeScale : tensorScale) as number)
    const codes = codesOf(src)
    const values = new Float32Array(nvfp4Block)
    const valueBits = codesOf(values)
    const blocks = (rows * cols) / nvfp4Block
    for (let block = 0; block < blocks; block++) {
      const start = block * nvfp4Block
      for (let i = 0; i < nvfp4Block; i++) valueBits[i] = decode(codes[start + i])
      const scale = choose(values, multiplier)
      blockScale[block] = scale
      normalize(values, scale, multiplier)
      for (let i = 0; i < nvfp4Block; i += 2) {
        packed[(start + i) / 2] = nvfp4Code(values, valueBits, i) | (nvfp4Code(values, valueBits, i + 1) << 4)
      }
    }
  },

  nvfp4Dequantize({ rows, cols, tensorScale, packed, blockScale, dst }) {
    const blocks = (rows * cols) / nvfp4Block
    for (let block = 0; block < blocks; block++) {
      const start = block * nvfp4Block
      const step = nvfp4Step(blockScale[block], Math.fround(tensorScale))
      for (let i = 0; i < nvfp4Block; i += 2) {
        const pair = packed[(start + i) / 2]
        dst[start + i] = nvfp4Values[pair & 15] * step
        dst[start + i + 1] = nvfp4Values[pair >> 4] * step
      }
    }
  },

  fp8Quantize({ srcDtype, rows, cols, blockRows, blockCols, src, codes, scale }) {
    const { decode } = floatFormats[srcDtype]
    const from = codesOf(src)
    let block = 0
    for (let top = 0; top < rows; top += blockRows) {
      const bottom = Math.min(top + blockRows, rows)
      for (let left = 0; left < cols; left += blockCols, block++) {
        const width = Math.min(blockCols, cols - left)
        const values = new Float32Array((bottom - top) * width)
        const valueBits = codesOf(values)
        const indexOf = (i: number): number => (top + Math.trunc(i / width)) * cols + left + (i % width)
        for (let i = 0; i < values.length; i++) valueBits[i] = decode(from[indexOf(i)])
        scale[block] = largestMagnitude(values) / 448
        if (scale[block] === 0) scale[block] = 1
        divideAll(values, scale[block])
        for (let i = 0; i < values.length; i++) codes[indexOf(i)] = e4m3.encode(valueBits[i], e4m3Limit)
      }
    }
  },

  swizzleScales({ rows, cols, inverse, src, dst }) {
    if (!inverse) dst.fill(0, 0, swizzledLength(rows, cols))
    forEachScale(rows, cols, (linear, tiled) => {
      dst[inverse ? linear : tiled] = src[inverse ? tiled : linear]
    })
  },
}

/** Performs `op` with the addon when one loads, else in TypeScript; the results are the same bits. */
export function runPrecisionKernel<Op extends keyof PrecisionKernelArgs>(
  op: Op,
  args: PrecisionKernelArgs[Op],
): void {
  const { addon } = loadAddon()
  if (addon) addon.run(op, args)
  else precisionKernels[op](args)
}

// Adding 0 makes +0 of the -0 that is code 8, as ModelOpt does.
const nvfp4Values = Float32Array.from({ length: 16 }, (_, code) => bitsFloat(e2m1.decode(code)) + 0)

/** How a recipe chooses the scale of a block and turns its values into quotients, in place. */
interface BlockRecipe {
  /** E4M3 code. `multiplier` is the tensor scale, for te the encode scale. */
  choose(values: Float32Array, multiplier: number): number
  normalize(values: Float32Array, blockScale: number, multiplier: number): void
}

const modelopt: BlockRecipe = {
  choose: (values, tensorScale) => nvfp4BlockScale(largestMagnitude(values), tensorScale),
  normalize: (values, scale, tensorScale) => divideAll(values, nvfp4Step(scale, tensorScale)),
}

const nvfp4Recipes: Readonly<Record<NVFP4Recipe, BlockRecipe>> = {
  modelopt,
  te: {
    choose(values, encodeScale) {
      const factor = Math.fround(encodeScale * Math.fround(1 / 6))
      return e4m3.encode(floatBits(largestMagnitude(values) * factor), e4m3Limit)
    },
    normalize(values, scale, encodeScale) {
      const factor = finiteReciprocal(nvfp4Step(scale, Math.fround(1 / encodeScale)))
      for (let i = 0; i < nvfp4Block; i++) values[i] *= factor
    },
  },
  mse: {
    choose(values, tensorScale) {
      const start = modelopt.choose(values, tensorScale)
      let best = start
      let minError = Infinity
      for (const offset of [0, -2, -1, 1, 2, 3, 4, 5, 6]) {
        const scale = Math.min(Math.max(start + offset, 1), 0x7e)
        const error = nvfp4Error(values, scale, tensorScale)
        if (error < minError) {
          minError = error
          best = scale
        }
      }
      return best
    },
    normalize: modelopt.normalize,
  },
}

/** Squared error of a block with the given scale, in units of the tensor scale. */
function nvfp4Error(values: Float32Array, blockScale: number, tensorScale: number): number {
  const factor = finiteReciprocal(nvfp4Step(blockScale, tensorScale))
  let sum = 0
  for (let i = 0; i < nvfp4Block; i++) {
    const quotient = Math.abs(Math.fround(values[i] * factor))
    const error = Math.fround(quotient - nvfp4Values[e2m1.encode(floatBits(quotient), e2m1Limit)])
    sum = Math.fround(sum + Math.fround(error * error))
  }
  const scale = bitsFloat(e4m3.decode(blockScale))
  return Math.fround(sum * Math.fround(scale * scale))
}

/** 1 / value, at most the largest f32. */
function finiteReciprocal(value: number): number {
  const reciprocal = Math.fround(1 / value)
  return reciprocal < largestFloat ? reciprocal : largestFloat
}

/**
 * The tensor scale of a matrix whose largest magnitude is `amax`. Below the smallest normal number the steps of small
 * blocks would underflow to 0; a zero matrix gets it, too.
 */
export function nvfp4TensorScale(amax: number): number {
  return Math.max(Math.fround(amax / 2688), 2 ** -126)
}

/** The tensor scale of a row of activations with this largest magnitude: a power of two; NaN where that is not finite. */
export function nvfp4RowScale(amax: number): number {
  const least = Math.fround(amax / 2688)
  if (!(least < Number.POSITIVE_INFINITY)) return Number.NaN
  return least < 2 ** -100 ? 2 ** -100 : bitsFloat((floatBits(least) + 0x7fffff) & 0x7f800000)
}

function nvfp4BlockScale(amax: number, tensorScale: number): number {
  const scale = Math.fround(amax / Math.fround(6 * tensorScale))
  return e4m3.encode(floatBits(scale === 0 ? 1 : Math.max(scale, 2 ** -9)), e4m3Limit)
}

function nvfp4Step(blockScale: number, tensorScale: number): number {
  return Math.fround(bitsFloat(e4m3.decode(blockScale)) * tensorScale)
}

/** E2M1 code of quotients[i]. A quotient of -0 has code 0; a negative one that rounds to zero has code 8. */
function nvfp4Code(quotients: Float32Array, bits: ArrayLike<number>, i: number): number {
  return (e2m1.encode(bits[i], e2m1Limit) & 7) | (quotients[i] < 0 ? 8 : 0)
}

function largestMagnitude(values: Float32Array): number {
  let largest = 0
  for (let i = 0; i < values.length; i++) {
    const magnitude = Math.abs(values[i])
    if (magnitude > largest) largest = magnitude
  }
  return largest
}

function divideAll(values: Float32Array, divisor: number): void {
  for (let i = 0; i < values.length; i++) values[i] /= divisor
}
