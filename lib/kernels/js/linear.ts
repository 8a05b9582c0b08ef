// linear.ts: the linear layer in plain TypeScript. Weights are decoded row by row; sums are taken in double.
import { argumentError, expectInteger, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Paced } from '../../core/paced.js'
import { nvfp4Block, nvfp4RowScale, precisionKernels } from '../../precision/kernels.js'
import { linearFormats } from '../../weights/formats.js'
import type { KernelArgs, MatrixStrides } from '../kernels.js'
import { depthUnit, roundedUnit } from '../linear-args.js'
import { activations } from './activations.js'
import { expectActivationDType, expectCompute, expectFloatCompute, expectProductCompute } from './compute.js'
import { floatReader, floatWriter } from './elements.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'
import { rowReader } from './weight-rows.js'

/** Σ_i a[aStart + i] · b[bStart + i] for i < count. */
export function dot(a: Float32Array, aStart: number, b: Float32Array, bStart: number, count: number): number {
  let sum = 0
  for (let i = 0; i < count; i++) sum += a[aStart + i]! * b[bStart + i]!
  return sum
}

/** y[start + i] += factor · x[xStart + i] for i < count. */
export function addScaled(
  factor: number,
  x: Float32Array,
  xStart: number,
  y: Float64Array,
  start: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) y[start + i]! += factor * x[xStart + i]!
}

/** x[rows, cols] quantized to NVFP4 with a tensor scale, by default each row with one of its own, and back. */
export function roundedToNvfp4(
  x: Float32Array,
  rows: number,
  cols: number,
  scale?: number | undefined,
): Float32Array {
  const rounded = new Float32Array(rows * cols)
  const amax = new Float32Array(1)
  const packed = new Uint8Array(cols / 2)
  const blockScale = new Uint8Array(cols / nvfp4Block)
  for (let at = 0; at < rows * cols; at += cols) {
    const src = x.subarray(at, at + cols)
    precisionKernels.amax({ dtype: 'f32', count: cols, src, out: amax })
    const row = { rows: 1, cols, tensorScale: scale ?? nvfp4RowScale(amax[0]!), packed, blockScale }
    precisionKernels.nvfp4Quantize({ ...row, srcDtype: 'f32', src })
    precisionKernels.nvfp4Dequantize({ ...row, dst: rounded.subarray(at, at + cols) })
  }
  return rounded
}

/** The same as rounded rows of this backend, numbers in bf16 which hold them exactly. */
export function writeRounded(
  to: Uint16Array,
  x: Float32Array,
  rows: number,
  cols: number,
  scale?: number | undefined,
): void {
  const write = floatWriter('bf16', to)
  for (const [i, value] of roundedToNvfp4(x, rows, cols, scale).entries()) write(i, value)
}

/** Neighbours of a row that share a scale where it is rounded to bytes. */
const integerCols = 32

/** x[count] rounded to signed bytes whose scale is the largest magnitude of 32 neighbours / 127, and back; NaN unless finite. */
export function roundedToIntegers(x: Float32Array, count: number): Float32Array {
  const result = new Float32Array(count)
  for (let i = 0; i < count; i += integerCols) {
    const block = x.subarray(i, i + integerCols)
    const largest = block.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
    const scale = Number.isFinite(largest) ? Math.fround(largest / 127) : Number.NaN
    for (const [j, value] of block.entries()) {
      const code = scale > 0 ? roundHalfToEven(Math.fround(value / scale)) : 0
      result[i + j] = scale * Math.min(Math.max(code, -127), 127)
    }
  }
  return result
}

function roundHalfToEven(value: number): number {
  const rounded = Math.round(value)
  return rounded - value === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded
}

/** The rows that a linear layer multiplies. */
function roundedRows({
  compute,
  x: given,
  xDtype = 'f32',
  tokens,
  weight: { cols },
  xScale,
}: KernelArgs['linear']): Float32Array {
  const read = floatReader(xDtype === 'nvfp4' ? 'bf16' : xDtype, given)
  const x =
    xDtype === 'f32'
      ? (given as Float32Array)
      : Float32Array.from({ length: tokens * cols }, (_, i) => read(i))
  if (xDtype === 'nvfp4') return x
  if (compute === 'nvfp4') return roundedToNvfp4(x, tokens, cols, xScale)
  return compute === 'i8' ? roundedToIntegers(x, tokens * cols) : x
}

/** y[t, o] = activation(gate[t, o] · rowScale[o] · Σ_i x[t, i] W[o, i] + bias[o]) + residual[t, o] */
export function* linear(args: KernelArgs['linear']): Paced<void> {
  const { weight, tokens, rowScale, bias, residual, gate, yDtype = 'f32', xRounded, xScale, yRounded } = args
  const { rows, cols } = weight
  const { y = new Float32Array(tokens * rows) } = args
  const x = roundedRows(args)
  if (xRounded) writeRounded(xRounded, args.x as Float32Array, tokens, cols, xScale)
  const row = rowReader(weight)
  const activate = activations[args.activation ?? 'none']
  const write = floatWriter(yDtype, y)
  for (let o = 0; o < rows; o++) {
    yield
    const w = row(o)
    const factor = rowScale ? rowScale[o]! : 1
    const offset = bias ? bias[o]! : 0
    for (let t = 0; t < tokens; t++) {
      const at = t * rows + o
      const scaled = factor * dot(x, t * cols, w, 0, cols) * (gate ? gate[at]! : 1)
      write(at, activate(scaled + offset) + (residual ? residual[at]! : 0))
    }
  }
  if (yRounded) writeRounded(yRounded, y as Float32Array, tokens, rows, args.yScale)
}

/** Refuses the scale of rounded rows that is no power of two. @throws SparkError ERR_ARGUMENT */
export function expectTensorScale(name: string, scale: number | undefined): void {
  if (scale === undefined || (scale > 0 && Number.isFinite(scale) && Math.log2(scale) % 1 === 0)) return
  throw new SparkError('ERR_ARGUMENT', `${name} is ${scale}, not a power of two`)
}

/** y[i, :] = W[indices[i], :] */
function* gatherRows({ weight, count, indices, y }: KernelArgs['gatherRows']): Paced<void> {
  const { rows, cols } = weight
  const row = rowReader(weight)
  for (let i = 0; i < count; i++) {
    yield
    const index = Number(indices[i])
    if (index < -rows || index >= rows)
      throw new SparkError('ERR_ARGUMENT', `an index is ${index}, not in [-${rows}, ${rows})`)
    y.set(row(index < 0 ? index + rows : index), i * cols)
  }
}

/** y[i, j] = alpha · a[i, j] · b[i, j] */
function* matmul(args: KernelArgs['matmul']): Paced<void> {
  const { outer, inner, m, n, k, alpha, a, aStrides, b, bStrides, y, yStrides } = args
  const at = ([o, i, r, c]: MatrixStrides, ...[outer, inner, row, col]: MatrixStrides): number =>
    outer * o + inner * i + row * r + col * c
  for (let i = 0; i < outer; i++) {
    for (let j = 0; j < inner; j++) {
      for (let row = 0; row < m; row++) {
        yield
        for (let col = 0; col < n; col++) {
          let sum = 0
          for (let l = 0; l < k; l++) sum += a[at(aStrides, i, j, row, l)]! * b[at(bStrides, i, j, l, col)]!
          y[at(yStrides, i, j, row, col)] = alpha * sum
        }
      }
    }
  }
}

/** dx = dy · W, dweight = dyᵀ · x, dbias = Σ_t dy[t, :] */
function* linearBackward(args: KernelArgs['linearBackward']): Paced<void> {
  const { weight, tokens, x, dy, dx, dweight, dbias } = args
  const { rows, cols } = weight
  const row = rowReader(weight)
  const dxSum = new Float64Array(dx ? tokens * cols : 0)
  const rowSum = new Float64Array(cols)
  for (let o = 0; o < rows; o++) {
    yield
    const w = row(o)
    rowSum.fill(0)
    let biasSum = 0
    for (let t = 0; t < tokens; t++) {
      const gradient = dy[t * rows + o]!
      biasSum += gradient
      if (dx) addScaled(gradient, w, 0, dxSum, t * cols, cols)
      if (dweight) addScaled(gradient, x, t * cols, rowSum, 0, cols)
    }
    dweight?.set(rowSum, o * cols)
    if (dbias) dbias[o] = biasSum
  }
  dx?.set(dxSum)
}

function expectMatmul(args: KernelArgs['matmul']): void {
  expectProductCompute(args.compute)
  for (const name of ['aStrides', 'bStrides', 'yStrides'] as const) {
    const strides = args[name]
    if (!Array.isArray(strides) || strides.length !== 4)
      throw argumentError(name, 'an array of four strides', strides)
    for (const stride of strides) expectInteger(name, stride, 0)
  }
  const { m, n, k, aStrides, bStrides, yStrides } = args
  for (const [name, rows, cols, [, , row, col]] of [
    ['aStrides', m, k, aStrides],
    ['bStrides', k, n, bStrides],
  ] as const) {
    const isAdjacent = rows <= 1 || cols <= 1 || row === 1 || col === 1
    expectFits(isAdjacent, `${name} has neither adjacent rows nor adjacent columns: ${row} and ${col}`)
  }
  expectFits(yStrides[3] === 1, `yStrides[3] is ${yStrides[3]}, not 1`)
}

/** Elements from the first to the last one of a batch of matrices. */
function extent(sizes: readonly number[], strides: MatrixStrides): number {
  if (sizes.includes(0)) return 0
  return 1 + sizes.reduce((last, size, i) => last + (size - 1) * strides[i]!, 0)
}

/** Contracts of linear layers, of rows of tables and of products of matrices. */
export const linearRows: KernelRows<'linear' | 'linearBackward' | 'gatherRows' | 'matmul'> = {
  linear: {
    kernel: linear,
    sizes: ['tokens'],
    formats: linearFormats,
    check(args) {
      const {
        activation = 'none',
        compute,
        weight,
        xDtype = 'f32',
        xRounded,
        yDtype = 'f32',
        yRounded,
      } = args
      expectOneOf('activation', activation, Object.keys(activations))
      expectCompute(compute, weight)
      if (xDtype !== 'nvfp4') expectActivationDType('xDtype', xDtype)
      expectActivationDType('yDtype', yDtype)
      const unit = xDtype === 'nvfp4' ? roundedUnit : depthUnit
      const isRounded = xDtype === compute && weight.cols % unit === 0
      expectFits(
        xDtype === 'f32' || isRounded,
        `xDtype ${xDtype} is for products in it, of ${unit} · n columns`,
      )
      expectFits(
        !xRounded || (xDtype === 'f32' && compute === 'nvfp4' && weight.cols % roundedUnit === 0),
        `xRounded is for products in nvfp4 of x in f32, of ${roundedUnit} · n columns`,
      )
      expectTensorScale('xScale', args.xScale)
      expectTensorScale('yScale', args.yScale)
      const isResult = compute === 'nvfp4' && yDtype === 'f32' && args.yScale !== undefined
      expectFits(
        !yRounded || (isResult && weight.rows % roundedUnit === 0),
        `yRounded is for products in nvfp4 with a yScale, of y in f32 and ${roundedUnit} · n rows of the weight`,
      )
    },
    operands: ({ weight: { rows, cols }, tokens, xDtype = 'f32', yDtype = 'f32', yRounded }) => ({
      x: elements(xDtype === 'nvfp4' ? 'bf16' : xDtype, tokens * cols),
      xRounded: optional(elements('bf16', tokens * cols)),
      rowScale: optional(rows),
      bias: optional(rows),
      residual: optional(tokens * rows),
      gate: optional(tokens * rows),
      y: { ...elements(yDtype, tokens * rows), isOptional: yRounded !== undefined },
      yRounded: optional(elements('bf16', tokens * rows)),
    }),
  },
  linearBackward: {
    kernel: linearBackward,
    sizes: ['tokens'],
    formats: linearFormats,
    check: expectFloatCompute,
    operands: ({ weight: { rows, cols }, tokens }) => ({
      x: tokens * cols,
      dy: tokens * rows,
      dx: optional(tokens * cols),
      dweight: optional(rows * cols),
      dbias: optional(rows),
    }),
  },
  gatherRows: {
    kernel: gatherRows,
    sizes: ['count'],
    formats: linearFormats,
    operands: ({ weight: { cols }, count }) => ({ indices: elements('i64', count), y: count * cols }),
  },
  matmul: {
    kernel: matmul,
    sizes: ['outer', 'inner', 'm', 'n', 'k'],
    check: expectMatmul,
    operands: ({ outer, inner, m, n, k, aStrides, bStrides, yStrides }) => ({
      a: extent([outer, inner, m, k], aStrides),
      b: extent([outer, inner, k, n], bStrides),
      y: extent([outer, inner, m, n], yStrides),
    }),
  },
}
