// halves.ts: activations in 16 bits, and rows that are rounded to NVFP4 once, among the cases of `dgx-spark verify`.
import type { HalfType } from '../../core/dtype.js'
import { channelsLastCopy } from '../../kernels/js/channels-last.js'
import { floatReader } from '../../kernels/js/elements.js'
import { jsKernels } from '../../kernels/js/js.js'
import { depthUnit, roundedUnit } from '../../kernels/linear-args.js'
import type { Weight } from '../../kernels/weight-args.js'
import { attentionInputs } from './network.js'
import { pagedArgs } from './paged.js'
import {
  bf16Tolerance,
  f32,
  halfTolerance,
  nvfp4Tolerance,
  rounded,
  sumTolerance,
  type VerifyCase,
  type VerifySizes,
  values,
  verifyCase,
} from './values.js'

const tolerances: Readonly<Record<HalfType, number>> = { bf16: bf16Tolerance, f16: halfTolerance }

/** Products of rows in 16 bits, few and many, convolutions, and results in them, against those in f32. */
export function halfCases(sizes: VerifySizes): VerifyCase[] {
  return (['bf16', 'f16'] as const).flatMap(type => [
    ...linearCases(type, sizes),
    ...normCases(type, sizes),
    convCase(type),
    ...attentionCases(type, sizes),
  ])
}

/** Seeded values in [-1, 1). */
const halfValues = (type: HalfType, count: number, seed: number): Uint16Array =>
  rounded(type, values(count, seed))

function linearCases(type: HalfType, { tokens, rows, cols: atLeast }: VerifySizes): VerifyCase[] {
  const cols = depthUnit * Math.ceil(atLeast / depthUnit)
  const weight: Weight = { format: type, rows, cols, data: halfValues(type, rows * cols, 81) }
  return [tokens, tokens + 17].map(tokens => {
    const x = halfValues(type, tokens * cols, 82)
    const forward = { weight, tokens, x, xDtype: type, yDtype: type, compute: type } as const
    const reference = {
      x: Float32Array.from(x.keys(), floatReader(type, x)),
      y: f32(tokens * rows),
      ...{ xDtype: undefined, yDtype: undefined },
    }
    const args = () => ({ ...forward, y: new Uint16Array(tokens * rows) })
    return verifyCase('linear', `${type} activations, ${tokens}`, ['y'], tolerances[type], args, reference)
  })
}

/** An image with its channels last; outputs have one position, where those of planes lie the same way. */
function convCase(type: HalfType): VerifyCase {
  const [batch, channels, filters, pixels, cols] = [21, 24, 72, 35, 24 * 9]
  const window = { image: [5, 7], kernel: [3, 3], out: [1, 1], strides: [1, 1], dilations: [1, 1] }
  const shape = { ...window, batch, groups: 1, padsBegin: [0, -2], compute: type }
  const data = halfValues(type, filters * cols, 84)
  const weight: Weight = { format: type, rows: filters, cols, data }
  const { count, copy } = channelsLastCopy(filters, cols, 9)
  const channelsLast = new Uint16Array(count)
  jsKernels.runSync('copyStrided', { dtype: type, ...copy, src: data, dst: channelsLast })
  const x = halfValues(type, batch * pixels * channels, 85)
  const read = floatReader(type, x)
  const planes = Float32Array.from(x, (_, at) => {
    const [n, c, p] = [Math.floor(at / (channels * pixels)), Math.floor(at / pixels) % channels, at % pixels]
    return read((n * pixels + p) * channels + c)
  })
  const args = () => {
    const y = new Uint16Array(batch * filters)
    return { ...shape, weight, channelsLast, x, xDtype: type, y, yDtype: type }
  }
  const none = { channelsLast: undefined, xDtype: undefined, yDtype: undefined }
  const reference = { ...none, x: planes, y: f32(batch * filters) }
  return verifyCase('conv', `${type} image`, ['y'], tolerances[type], args, reference)
}

function normCases(yDtype: HalfType, { tokens: rows, cols }: VerifySizes): VerifyCase[] {
  const shape = { rows, cols, groups: 1, inner: 1, centered: false, eps: 1e-2, x: values(rows * cols, 83) }
  const args = () => ({ ...shape, yDtype, y: new Uint16Array(rows * cols) })
  const reference = { yDtype: undefined, y: f32(rows * cols) }
  const beside = () => ({
    ...shape,
    halfDtype: yDtype,
    yHalf: new Uint16Array(rows * cols),
    y: f32(rows * cols),
  })
  const plain = { yHalf: undefined, halfDtype: undefined }
  return [
    verifyCase('norm', `${yDtype} activations`, ['y'], tolerances[yDtype], args, reference),
    verifyCase('norm', `${yDtype} beside f32`, ['y', 'yHalf'], tolerances[yDtype], beside, plain),
  ]
}

/** On tensor cores and, of long heads, on CUDA cores; over blocks of chunks that are merged, and of one sequence. */
function attentionCases(yDtype: HalfType, sizes: VerifySizes): VerifyCase[] {
  const tolerance = 2 * tolerances[yDtype] // weights are rounded, too
  const dense = [100, 260].map(valueDepth => {
    const inputs = attentionInputs(sizes, 40, valueDepth)
    const count = inputs.batch * inputs.heads * inputs.queries * valueDepth
    const args = () => ({ ...inputs, compute: yDtype, yDtype, y: new Uint16Array(count) })
    const name = `${yDtype} results of ${valueDepth}`
    return verifyCase('attention', name, ['y'], tolerance, args, { yDtype: undefined, y: f32(count) })
  })
  const { tokens } = sizes
  const paged = [[Math.min(tokens, 50)], [80 + tokens], [30, 20, 31]].map(lengths => {
    const past = lengths.map(() => 0)
    const inputs = () => pagedArgs(sizes, false, { lengths, past })
    const count = inputs().y!.length
    const args = () => ({ ...inputs(), compute: yDtype, yDtype, y: new Uint16Array(count) })
    const name = `${yDtype} results of ${lengths.join(' and ')} tokens`
    return verifyCase('pagedAttention', name, ['y'], tolerance, args, { yDtype: undefined, y: f32(count) })
  })
  return [...dense, ...paged]
}

/** Rows up to which rounded ones are in bf16 on every GPU: kTokens of native/kernels/gemm/blocks.h. */
const fewRows = 16

/** Products whose rows have one tensor scale, and one that rounds its results with it. */
function scaledCases({ tokens, rows }: VerifySizes): VerifyCase[] {
  const [cols, xScale, yScale] = [2 * roundedUnit, 2 ** -11, 2 ** -8]
  const data = Uint8Array.from(values((rows * roundedUnit * cols) / 2, 88), value => 128 * (value + 1))
  const blockScale = new Uint8Array((rows * roundedUnit * cols) / 16).fill(0x38)
  const weight: Weight = {
    ...{ format: 'nvfp4', rows: rows * roundedUnit, cols },
    ...{ data, blockScale, tensorScale: 1 / 8 },
  }
  return [Math.min(tokens, 8), fewRows, tokens + 17].map(tokens => {
    const [x, gate] = [values(tokens * cols, 89), values(tokens * weight.rows, 90)]
    const forward = { weight, tokens, x, gate, compute: 'nvfp4', xScale, activation: 'silu' } as const
    const results = tokens * weight.rows
    return verifyCase(
      'linear',
      `rounds ${tokens} rows of results`,
      ['y'],
      nvfp4Tolerance,
      () => ({ ...forward, yScale, yRounded: new Uint16Array(results), y: f32(results) }),
      { yScale: undefined, yRounded: undefined },
    )
  })
}

/** Attention that rounds its results: few rows, some more, and enough for tensor cores. */
function roundingAttention(sizes: VerifySizes): VerifyCase[] {
  return [[2, 1], [30, 3], [80 + sizes.tokens], [30, 20, 31]].map(lengths => {
    const inputs = () => pagedArgs(sizes, false, { lengths, past: lengths.map(() => 0), depth: roundedUnit })
    const rounded = () => ({ yScale: 2 ** -10, yRounded: new Uint16Array(inputs().y!.length) })
    return verifyCase(
      'pagedAttention',
      `rounds results of ${lengths.join(' and ')} tokens`,
      ['y'],
      2 * tolerances.bf16, // weights are rounded, too
      () => ({ ...inputs(), compute: 'bf16', ...rounded() }),
      { yScale: undefined, yRounded: undefined },
    )
  })
}

/** Products and a normalization that round rows for others, and a product of such rows. */
export function roundedCases(sizes: VerifySizes): VerifyCase[] {
  const { tokens, rows } = sizes
  const cols = 3 * roundedUnit
  const data = Uint8Array.from(values((rows * cols) / 2, 84), value => 128 * (value + 1))
  const blockScale = new Uint8Array((rows * cols) / 16).fill(0x38)
  const weight: Weight = { format: 'nvfp4', rows, cols, data, blockScale, tensorScale: 1 / 8 }
  const compute = 'nvfp4'
  const giving = [tokens, tokens + 17].map(tokens => {
    const forward = { weight, tokens, x: values(tokens * cols, 85), compute } as const
    return verifyCase(
      'linear',
      `rounds ${tokens} rows`,
      ['y'],
      nvfp4Tolerance,
      () => ({ ...forward, xRounded: new Uint16Array(tokens * cols), y: f32(tokens * rows) }),
      { xRounded: undefined },
    )
  })
  const few = Math.min(tokens, fewRows)
  // What codes stand for, the largest of them in each block: they are rounded to themselves.
  const x = values(few * cols, 86).map((value, i) => (i % 16 === 0 ? 6 : Math.round(3 * value)))
  const taking = verifyCase(
    'linear',
    `${few} rounded rows`,
    ['y'],
    nvfp4Tolerance,
    () => {
      const forward = { weight, tokens: few, compute, y: f32(few * rows) } as const
      return { ...forward, x: rounded('bf16', x), xDtype: 'nvfp4' }
    },
    { x, xDtype: undefined },
  )
  const norms = [tokens, tokens + 17].map(rows => {
    const shape = { rows, cols, groups: 1, inner: 1, centered: true, eps: 1e-2, x: values(rows * cols, 87) }
    return verifyCase(
      'norm',
      `rounds ${rows} rows`,
      ['y'],
      sumTolerance({ ...sizes, cols }),
      () => ({ ...shape, yRounded: new Uint16Array(rows * cols), y: f32(rows * cols) }),
      { yRounded: undefined },
    )
  })
  return [...giving, taking, ...norms, ...scaledCases(sizes), ...roundingAttention(sizes)]
}
