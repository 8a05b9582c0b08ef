// normalizations.ts: softmax and normalizations in plain TypeScript, as their formulas are written. Sums are taken in
// double.
import { expectInteger, expectOneOf } from '../../core/checks.js'
import type { BatchShape, KernelArgs, NormShape } from '../kernels.js'
import { roundedUnit } from '../linear-args.js'
import { expectActivationDType } from './compute.js'
import { floatWriter } from './elements.js'
import { expectTensorScale, writeRounded } from './linear.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'

const sum = (count: number, term: (i: number) => number): number => {
  let total = 0
  for (let i = 0; i < count; i++) total += term(i)
  return total
}

/** y = softmax(x) or log(softmax(x)), by rows. */
function softmax({ rows, cols, log, x, y }: KernelArgs['softmax']): void {
  for (let r = 0; r < rows; r++) {
    const row = Float64Array.from(x.subarray(r * cols, (r + 1) * cols))
    const largest = row.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY)
    const total = sum(cols, c => Math.exp(row[c]! - largest))
    for (let c = 0; c < cols; c++) {
      const shifted = row[c]! - largest
      y[r * cols + c] = log ? shifted - Math.log(total) : Math.exp(shifted) / total
    }
  }
}

/** dx of softmax. */
function softmaxBackward({ rows, cols, log, y, dy, dx }: KernelArgs['softmaxBackward']): void {
  for (let first = 0; first < rows * cols; first += cols) {
    const total = sum(cols, c => dy[first + c]! * (log ? 1 : y[first + c]!))
    for (let at = first; at < first + cols; at++) {
      dx[at] = log ? dy[at]! - Math.exp(y[at]!) * total : y[at]! * (dy[at]! - total)
    }
  }
}

/** Which element of scale an element of x meets. */
const scaleIndex = ({ cols, groups, inner }: NormShape, row: number, col: number): number =>
  Math.floor(((row % groups) * cols + col) / inner)

/** y = (x − mean) / √(variance + eps) · scale + bias, by rows. */
function norm(args: KernelArgs['norm']): void {
  const {
    rows,
    cols,
    centered,
    eps,
    x,
    scale,
    bias,
    yDtype = 'f32',
    yRounded,
    yScale,
    yHalf,
    halfDtype,
  } = args
  const y = args.y ?? new Float32Array(rows * cols)
  const write = floatWriter(yDtype, y)
  const writeHalf = yHalf && floatWriter(halfDtype!, yHalf)
  for (let r = 0; r < rows; r++) {
    const row = Float64Array.from(x.subarray(r * cols, (r + 1) * cols))
    const mean = centered ? sum(cols, c => row[c]!) / cols : 0
    const invStd = 1 / Math.sqrt(sum(cols, c => (row[c]! - mean) ** 2) / cols + eps)
    if (args.mean) args.mean[r] = mean
    if (args.invStd) args.invStd[r] = invStd
    for (let c = 0; c < cols; c++) {
      const j = scaleIndex(args, r, c)
      const value = (row[c]! - mean) * invStd * (scale?.[j] ?? 1) + (bias?.[j] ?? 0)
      write(r * cols + c, value)
      writeHalf?.(r * cols + c, value)
    }
  }
  if (yRounded) writeRounded(yRounded, y as Float32Array, rows, cols, yScale)
}

/** dx, dscale and dbias of norm. */
function normBackward(args: KernelArgs['normBackward']): void {
  const { rows, cols, groups, inner, centered, x, scale, mean, invStd, dy, dx, dscale, dbias } = args
  const scaleSums = new Float64Array((groups * cols) / inner)
  const biasSums = new Float64Array(scaleSums.length)
  for (let r = 0; r < rows; r++) {
    const first = r * cols
    const standard = (c: number) => (x[first + c]! - (centered ? mean![r]! : 0)) * invStd[r]!
    const gradient = (c: number) => dy[first + c]! * (scale?.[scaleIndex(args, r, c)] ?? 1)
    const average = centered ? sum(cols, gradient) / cols : 0
    const slope = sum(cols, c => gradient(c) * standard(c)) / cols
    for (let c = 0; c < cols; c++) {
      if (dx) dx[first + c] = invStd[r]! * (gradient(c) - average - standard(c) * slope)
      scaleSums[scaleIndex(args, r, c)]! += dy[first + c]! * standard(c)
      biasSums[scaleIndex(args, r, c)]! += dy[first + c]!
    }
  }
  dscale?.set(scaleSums)
  dbias?.set(biasSums)
}

/** Calls body(offset of an element of channel c) for all n and p. */
function forEachOf({ batch, channels, positions }: BatchShape, c: number, body: (at: number) => void): void {
  for (let n = 0; n < batch; n++) {
    for (let p = 0; p < positions; p++) body((n * channels + c) * positions + p)
  }
}

/** mean and variance of each channel. */
function batchStatistics(args: KernelArgs['batchStatistics']): void {
  const { batch, channels, positions, x, mean, variance } = args
  const count = batch * positions
  for (let c = 0; c < channels; c++) {
    let [total, squares] = [0, 0]
    forEachOf(args, c, at => {
      total += x[at]!
    })
    forEachOf(args, c, at => {
      squares += (x[at]! - total / count) ** 2
    })
    mean[c] = total / count
    variance[c] = squares / count
  }
}

/** y = (x − mean) / √(variance + eps) · scale + bias, by channels. */
function batchNorm(args: KernelArgs['batchNorm']): void {
  const { batch, channels, positions, eps, x, mean, variance, scale, bias, y } = args
  for (let at = 0; at < batch * channels * positions; at++) {
    const c = Math.floor(at / positions) % channels
    const standard = (x[at]! - mean[c]!) / Math.sqrt(variance[c]! + eps)
    y[at] = standard * (scale?.[c] ?? 1) + (bias?.[c] ?? 0)
  }
}

/** dx, dscale and dbias of batchNorm. */
function batchNormBackward(args: KernelArgs['batchNormBackward']): void {
  const { batch, channels, positions, training, eps, x, mean, variance, scale, dy, dx, dscale, dbias } = args
  const count = batch * positions
  for (let c = 0; c < channels; c++) {
    const invStd = 1 / Math.sqrt(variance[c]! + eps)
    let [scaleSum, biasSum] = [0, 0]
    forEachOf(args, c, at => {
      scaleSum += dy[at]! * (x[at]! - mean[c]!) * invStd
      biasSum += dy[at]!
    })
    if (dscale) dscale[c] = scaleSum
    if (dbias) dbias[c] = biasSum
    if (!dx) continue
    const [first, second] = training ? [biasSum / count, scaleSum / count] : [0, 0]
    const factor = (scale?.[c] ?? 1) * invStd
    forEachOf(args, c, at => {
      dx[at] = factor * (dy[at]! - first - (x[at]! - mean[c]!) * invStd * second)
    })
  }
}

function expectNorm({ rows, cols, groups, inner }: NormShape): void {
  expectInteger('cols', cols, 1)
  expectInteger('groups', groups, 1)
  expectInteger('inner', inner, 1)
  expectFits(cols % inner === 0, `cols is ${cols}, not a multiple of inner, ${inner}`)
  expectFits(rows % groups === 0, `rows is ${rows}, not a multiple of groups, ${groups}`)
}

/** Elements of a normalized matrix and of its scale. */
const normSizes = ({ rows, cols, groups, inner }: NormShape) =>
  [rows * cols, (groups * cols) / inner] as const

const batchSizes = ['batch', 'channels', 'positions'] as const

const batchElements = ({ batch, channels, positions }: BatchShape): number => batch * channels * positions

/** Contracts of softmax and normalizations. */
export const normalizationRows: KernelRows<
  | 'softmax'
  | 'softmaxBackward'
  | 'norm'
  | 'normBackward'
  | 'batchStatistics'
  | 'batchNorm'
  | 'batchNormBackward'
> = {
  softmax: {
    kernel: softmax,
    sizes: ['rows', 'cols'],
    operands: ({ rows, cols }) => ({ x: rows * cols, y: rows * cols }),
  },
  softmaxBackward: {
    kernel: softmaxBackward,
    sizes: ['rows', 'cols'],
    operands: ({ rows, cols }) => ({ y: rows * cols, dy: rows * cols, dx: rows * cols }),
  },
  norm: {
    kernel: norm,
    sizes: ['rows'],
    check(args) {
      expectNorm(args)
      expectActivationDType('yDtype', args.yDtype)
      const { cols, groups, inner, yDtype = 'f32', yRounded, yHalf, halfDtype } = args
      const isPlain = groups === 1 && inner === 1 && yDtype === 'f32'
      expectFits(
        !yRounded || (isPlain && cols % roundedUnit === 0),
        `yRounded is for y in f32, groups and inner of 1, and rows of ${roundedUnit} · n columns`,
      )
      expectTensorScale('yScale', args.yScale)
      if (!yHalf) return
      expectOneOf('halfDtype', halfDtype, ['bf16', 'f16'])
      expectFits(yDtype === 'f32' && !yRounded, 'yHalf is for y in f32, without yRounded')
    },
    operands(args) {
      const [all, scales] = normSizes(args)
      return {
        x: all,
        scale: optional(scales),
        bias: optional(scales),
        y: { ...elements(args.yDtype ?? 'f32', all), isOptional: args.yRounded !== undefined },
        yRounded: optional(elements('bf16', all)),
        yHalf: optional(elements(args.halfDtype ?? 'bf16', all)),
        mean: optional(args.rows),
        invStd: optional(args.rows),
      }
    },
  },
  normBackward: {
    kernel: normBackward,
    sizes: ['rows'],
    check: expectNorm,
    operands(args) {
      const [all, scales] = normSizes(args)
      return {
        x: all,
        scale: optional(scales),
        mean: args.centered ? args.rows : optional(args.rows),
        invStd: args.rows,
        dy: all,
        dx: optional(all),
        dscale: optional(scales),
        dbias: optional(scales),
      }
    },
  },
  batchStatistics: {
    kernel: batchStatistics,
    sizes: batchSizes,
    check: ({ batch, positions }) =>
      expectFits(batch > 0 && positions > 0, 'there is nothing to take statistics of'),
    operands: args => ({ x: batchElements(args), mean: args.channels, variance: args.channels }),
  },
  batchNorm: {
    kernel: batchNorm,
    sizes: batchSizes,
    operands(args) {
      const { channels } = args
      const x = batchElements(args)
      const affine = { scale: optional(channels), bias: optional(channels) }
      return { x, mean: channels, variance: channels, ...affine, y: x }
    },
  },
  batchNormBackward: {
    kernel: batchNormBackward,
    sizes: batchSizes,
    operands(args) {
      const { channels } = args
      const x = batchElements(args)
      const gradients = { dx: optional(x), dscale: optional(channels), dbias: optional(channels) }
      return { x, mean: channels, variance: channels, scale: optional(channels), dy: x, ...gradients }
    },
  },
}
