// network.ts: convolutions, attention, softmax and normalizations among the cases of `dgx-spark verify`.
import { numel } from '../../core/shape.js'
import { channelsLastCopy, tilesCopy, tileTransform } from '../../kernels/js/channels-last.js'
import { jsKernels } from '../../kernels/js/js.js'
import { winogradSize, winogradWeight } from '../../kernels/js/winograd.js'
import type { ConvShape, HeadStrides, KernelArgs, Weight } from '../../kernels/kernels.js'
import {
  bf16Tolerance,
  f32,
  halfTolerance,
  rounded,
  sumTolerance,
  type VerifyCase,
  type VerifySizes,
  values,
  verifyCase,
} from './values.js'

/** Convolutions, attention, softmax and normalizations. */
export function networkCases(weights: readonly Weight[], sizes: VerifySizes): VerifyCase[] {
  return [
    ...convCases(sizes),
    ...weights.flatMap(storedConvCases),
    ...(sizes.tokens > 64 ? wideConvCases() : []),
    ...normCases(sizes),
    ...batchNormCases(sizes),
    ...attentionCases(sizes),
    ...rotaryCases(sizes),
  ]
}

/** Whole heads and parts of them, pairs of both kinds, both layouts. */
function rotaryCases({ tokens, rows, cols }: VerifySizes): VerifyCase[] {
  const [batch, heads, depth] = [2, Math.min(rows, 5), 2 * Math.min(cols, 33)]
  return [false, true].flatMap(interleaved =>
    [false, true].map(headsFirst => {
      const rotary = headsFirst ? depth : 2 * Math.floor(depth / 3)
      const [count, angles] = [batch * tokens * heads * depth, (batch * tokens * rotary) / 2]
      const name = `${interleaved ? 'neighbours' : 'halves'} of ${headsFirst ? 'heads' : 'tokens'}`
      return verifyCase('rotary', name, ['y'], 0, () => ({
        ...{ batch, tokens, heads, depth, rotary, interleaved, headsFirst },
        ...{ x: values(count, 71), cos: values(angles, 72), sin: values(angles, 73), y: f32(count) },
      }))
    }),
  )
}

/** A weight in its format as filters of one tap on all channels, and of as many taps as it has columns on one each. */
function storedConvCases(weight: Weight): VerifyCase[] {
  const { format, rows, cols } = weight
  const line = { strides: [2], dilations: [1], padsBegin: [1], out: [5] }
  const pointwise = { ...line, batch: 2, groups: 1, image: [7], kernel: [1] }
  const depthwise = { ...line, batch: 1, groups: rows, image: [cols + 6], kernel: [cols] }
  return [
    ...convPasses(format, pointwise, cols, weight),
    ...convPasses(`${format}, depthwise`, depthwise, rows, weight),
    ...convPasses(format, pointwise, cols, weight, 'bf16'),
    ...(format === 'f32' || format === 'f16' ? convPasses(format, pointwise, cols, weight, 'f16') : []),
  ]
}

/** Positions enough for large tiles on every processor of a GPU. */
function wideConvCases(): VerifyCase[] {
  const [filters, channels, image] = [65, 66, [50_001]]
  const line = { image, kernel: [1], out: image, strides: [1], dilations: [1], padsBegin: [0] }
  const data = values(filters * channels, 37)
  const weight: Weight = { format: 'f32', rows: filters, cols: channels, data }
  return (['bf16', 'f16'] as const)
    .flatMap(compute => convPasses('wide', { ...line, batch: 1, groups: 1 }, channels, weight, compute))
    .concat(channelsLastCases({ ...line, batch: 1, groups: 1 }, weight))
}

/** One, two and three axes, groups, strides, dilations, pads on one side, a channel for each group. */
function convCases({ tokens, rows, cols }: VerifySizes): VerifyCase[] {
  const batch = Math.min(tokens, 3)
  const filters = 2 * Math.min(rows, 40)
  const channels = 2 * Math.min(cols, 24)
  const plane = {
    image: [9, 11],
    kernel: [3, 2],
    strides: [2, 1],
    dilations: [1, 3],
    padsBegin: [1, 2],
    out: [5, 12],
  }
  const flat = { image: [29], kernel: [5], strides: [3], dilations: [2], padsBegin: [4], out: [10] }
  const one = [1, 1, 1]
  const deep = {
    image: [3, 4, 5],
    kernel: [2, 2, 2],
    strides: one,
    dilations: one,
    padsBegin: one,
    out: [4, 5, 6],
  }
  const weight = (rows: number, cols: number): Weight => {
    return { format: 'f32', rows, cols, data: values(rows * cols, 31) }
  }
  return [
    ...convPasses('2-D', { ...plane, batch, groups: 1 }, channels, weight(filters, channels * 6)),
    ...convPasses('1-D, 2 groups', { ...flat, batch, groups: 2 }, channels, weight(filters, channels * 2.5)),
    ...convPasses('3-D', { ...deep, batch: 1, groups: 1 }, 3, weight(5, 24)),
    ...winogradCases(batch, [13, 18], weight(filters, channels * 9)),
    ...channelsLastCases({ ...plane, batch, groups: 2 }, weight(filters, channels * 3)),
    ...tileCases(batch, [13, 18], weight(80, 32 * 9)),
    pointwiseDepthwiseCase(),
    ...convPasses('depthwise', { ...plane, batch, groups: channels }, channels, weight(channels, 6)),
  ]
}

/** A convolution of 3 x 3 whose output is as large as its image. */
function squareShape(batch: number, image: readonly number[]): ConvShape {
  const [kernel, ones] = [
    [3, 3],
    [1, 1],
  ]
  return { batch, groups: 1, image, kernel, out: image, strides: ones, dilations: ones, padsBegin: ones }
}

/** Filters of 3 x 3, transformed for tiles, and a convolution with them. */
function winogradCases(batch: number, image: readonly number[], weight: Weight): VerifyCase[] {
  const channels = weight.cols / 9
  const shape = squareShape(batch, image)
  const winograd = f32(winogradSize(weight.rows, weight.cols))
  winogradWeight({ weight, data: winograd })
  const x = values(batch * channels * numel(image), 36)
  return [
    verifyCase('winogradWeight', 'f32', ['data'], 1e-6, () => ({ weight, data: f32(winograd.length) })),
    verifyCase('conv', 'in tiles', ['y'], 1e-5, () => ({
      ...shape,
      weight,
      winograd,
      x,
      y: f32(batch * weight.rows * numel(image)),
    })),
  ]
}

/** A weight in 16 bits with its channels side by side, which only a GPU reads. */
function channelsLastCases(shape: ConvShape, weight: Weight): VerifyCase[] {
  const { rows, cols } = weight
  const channels = (cols / numel(shape.kernel)) * shape.groups
  const x = values(shape.batch * channels * numel(shape.image), 41)
  const { count, copy } = channelsLastCopy(rows, cols, numel(shape.kernel))
  return (['bf16', 'f16'] as const).map(compute => {
    const channelsLast = new Uint16Array(count)
    const src = rounded(compute, weight.data as Float32Array)
    jsKernels.runSync('copyStrided', { dtype: compute, ...copy, src, dst: channelsLast })
    const y = (): Float32Array => f32(shape.batch * rows * numel(shape.out))
    return verifyCase(
      'conv',
      `${compute}, channels last, ${shape.groups} groups, ${numel(shape.out)} positions`,
      ['y'],
      tolerances[compute],
      () => ({ ...shape, weight, channelsLast, x, bias: values(rows, 42), compute, y: y() }),
      { channelsLast: undefined },
    )
  })
}

/** Filters of 3 x 3 in 16 bits, transformed for tiles of 2 x 2, which only a GPU reads. */
function tileCases(batch: number, image: readonly number[], weight: Weight): VerifyCase[] {
  const { rows, data } = weight
  const channels = weight.cols / 9
  const shape = squareShape(batch, image)
  const x = values(batch * channels * numel(image), 43)
  const { count, copy } = tilesCopy(rows, channels)
  const numbers = f32(count)
  const matrix: Weight = { format: 'f32', rows: 16, cols: 9, data: tileTransform() }
  jsKernels.runSync('linear', {
    weight: matrix,
    tokens: rows * channels,
    x: data as Float32Array,
    y: numbers,
  })
  return (['bf16', 'f16'] as const).map(compute => {
    const channelsLast = new Uint16Array(count)
    const src = rounded(compute, numbers)
    jsKernels.runSync('copyStrided', { dtype: compute, ...copy, src, dst: channelsLast })
    return verifyCase(
      'conv',
      `${compute}, in tiles of 2 x 2`,
      ['y'],
      2 * tolerances[compute],
      () => ({
        ...shape,
        weight,
        channelsLast,
        inTiles: true,
        x,
        compute,
        y: f32(batch * rows * numel(image)),
      }),
      { channelsLast: undefined, inTiles: undefined },
    )
  })
}

function pointwiseDepthwiseCase(): VerifyCase {
  const [batch, depth, channels, image] = [2, 7, 33, [130, 131]]
  const shape = {
    batch,
    groups: channels,
    image,
    kernel: [3, 3],
    out: image,
    strides: [1, 1],
    dilations: [1, 1],
    padsBegin: [1, 1],
  }
  const pointwise: Weight = { format: 'f32', rows: channels, cols: depth, data: values(channels * depth, 37) }
  const weight: Weight = { format: 'f32', rows: channels, cols: 9, data: values(channels * 9, 38) }
  const x = values(batch * depth * numel(image), 39)
  return verifyCase('pointwiseDepthwise', 'f32', ['y'], 1e-5, () => {
    const y = f32(batch * channels * numel(image))
    return { ...shape, pointwise, pointwiseActivation: 'relu6', weight, x, bias: values(channels, 40), y }
  })
}

type Shape = Omit<KernelArgs['conv'], 'weight' | 'x' | 'y'>

const tolerances = { f32: 1e-5, bf16: bf16Tolerance, f16: halfTolerance }

function convPasses(
  of: string,
  shape: Shape,
  channels: number,
  weight: Weight,
  compute: keyof typeof tolerances = 'f32',
): VerifyCase[] {
  const { rows: filters, cols } = weight
  const x = values(shape.batch * channels * numel(shape.image), 32)
  const dy = values(shape.batch * filters * numel(shape.out), 33)
  const bias = values(filters, 34)
  const tolerance = tolerances[compute]
  const name = compute === 'f32' ? of : `${of} in ${compute}`
  const activation = 'silu' as const
  const options = { ...shape, weight, compute }
  return [
    verifyCase('conv', name, ['y'], tolerance, () => {
      return { ...options, x, bias, residual: dy, residualFirst: true, activation, y: f32(dy.length) }
    }),
    verifyCase('convBackward', name, ['dx', 'dweight', 'dbias'], tolerance, () => {
      const gradients = { dx: f32(x.length), dweight: f32(filters * cols), dbias: f32(filters) }
      return { ...options, x, dy, ...gradients }
    }),
    verifyCase('convTranspose', name, ['y'], tolerance, () => {
      return { ...options, x: dy, bias: values(channels, 35), y: f32(x.length) }
    }),
  ]
}

function normCases(sizes: VerifySizes): VerifyCase[] {
  const { tokens, cols } = sizes
  const tolerance = 4 * sumTolerance(sizes)
  const x = values(tokens * cols, 41)
  const dy = values(tokens * cols, 42)
  const softmaxes = [false, true].flatMap(log => [
    verifyCase('softmax', log ? 'log' : 'plain', ['y'], tolerance, () => {
      return { rows: tokens, cols, log, x: x.map(value => 20 * value), y: f32(x.length) }
    }),
    verifyCase('softmaxBackward', log ? 'log' : 'plain', ['dx'], tolerance, () => {
      return { rows: tokens, cols, log, y: x.map(value => Math.abs(value) / cols), dy, dx: f32(x.length) }
    }),
  ])
  const layer = { rows: tokens, cols, groups: 1, inner: 1, centered: true }
  const group = { rows: 3 * tokens, cols: 2 * cols, groups: 3, inner: cols, centered: true }
  return [
    ...softmaxes,
    ...normPasses('layer', layer, tolerance),
    ...normPasses('RMS', { ...layer, centered: false }, tolerance),
    ...normPasses('group', group, tolerance),
    ...normPasses(
      '3 groups of columns, many rows',
      { ...layer, rows: 3 * 521, cols: 37, groups: 3 },
      tolerance,
    ),
  ]
}

type NormShape = Pick<KernelArgs['norm'], 'rows' | 'cols' | 'groups' | 'inner' | 'centered'>

function normPasses(name: string, shape: NormShape, tolerance: number): VerifyCase[] {
  const { rows, cols, groups, inner } = shape
  const scales = (groups * cols) / inner
  const x = values(rows * cols, 51)
  const scale = values(scales, 52)
  return [
    verifyCase('norm', name, ['y', 'mean', 'invStd'], tolerance, () => {
      const saved = { mean: f32(rows), invStd: f32(rows) }
      return { ...shape, eps: 1e-2, x, scale, bias: values(scales, 53), y: f32(x.length), ...saved }
    }),
    verifyCase('normBackward', name, ['dx', 'dscale', 'dbias'], tolerance, () => {
      const saved = { mean: values(rows, 54), invStd: values(rows, 55) }
      const gradients = { dx: f32(x.length), dscale: f32(scales), dbias: f32(scales) }
      return { ...shape, x, scale, ...saved, dy: values(x.length, 56), ...gradients }
    }),
  ]
}

function batchNormCases(sizes: VerifySizes): VerifyCase[] {
  const shape = {
    batch: Math.min(sizes.tokens, 9),
    channels: Math.min(sizes.rows, 65),
    positions: sizes.cols,
  }
  const { batch, channels, positions } = shape
  const tolerance = 4 * sumTolerance(sizes)
  const x = values(batch * channels * positions, 61)
  const dy = values(x.length, 62)
  const [mean, scale] = [values(channels, 63), values(channels, 64)]
  const known = { ...shape, eps: 1e-2, x, mean, variance: scale.map(Math.abs), scale }
  return [
    verifyCase('batchStatistics', '', ['mean', 'variance'], tolerance, () => {
      return { ...shape, x, mean: f32(channels), variance: f32(channels) }
    }),
    verifyCase('batchNorm', '', ['y'], tolerance, () => ({ ...known, bias: mean, y: f32(x.length) })),
    ...[false, true].map(training =>
      verifyCase(
        'batchNormBackward',
        training ? 'training' : '',
        ['dx', 'dscale', 'dbias'],
        tolerance,
        () => {
          const gradients = { dx: f32(x.length), dscale: f32(channels), dbias: f32(channels) }
          return { ...known, training, dy, ...gradients }
        },
      ),
    ),
  ]
}

/** Grouped heads, causal, with a mask; rows before heads. On tensor cores rows of all lengths that have kernels, too. */
function attentionCases(sizes: VerifySizes): VerifyCase[] {
  const lengths = [
    attentionInputs(sizes, 24, 40),
    attentionInputs(sizes, 72, 100),
    attentionInputs(sizes, 140, 200),
  ]
  return (['f32', 'bf16', 'f16'] as const).flatMap(compute =>
    lengths.flatMap(inputs => {
      const name = `grouped, causal, masked, rows of ${inputs.depth} in ${compute}`
      const count = inputs.batch * inputs.heads * inputs.queries
      const y = values(count * inputs.valueDepth, 75)
      const tolerance = tolerances[compute]
      return [
        verifyCase('attention', name, ['y'], tolerance, () => ({ ...inputs, compute, y: f32(y.length) })),
        verifyCase('attentionBackward', name, ['dq', 'dk', 'dv'], tolerance, () => ({
          ...inputs,
          compute,
          y,
          logSum: f32(count).fill(4),
          dy: values(y.length, 76),
          dq: f32(inputs.q.length),
          dk: f32(inputs.k.length),
          dv: f32(inputs.v.length),
        })),
      ]
    }),
  )
}

/** Inputs of attention whose heads lie behind rows. */
export function attentionInputs({ tokens, rows }: VerifySizes, depth: number, valueDepth: number) {
  const [batch, heads, kvHeads] = [2, 4, 2]
  const queries = Math.min(tokens, 80)
  const keys = Math.min(rows, 150)
  const strides = (heads: number, rows: number, width: number): HeadStrides => {
    return [rows * heads * width, width, heads * width]
  }
  const mask = values(queries * keys, 74).map((value, i) => (i % 5 === 4 ? Number.NEGATIVE_INFINITY : value))
  return {
    batch,
    heads,
    kvHeads,
    queries,
    keys,
    depth,
    valueDepth,
    scale: 0.3,
    softcap: 3,
    causal: true,
    causalOffset: Math.max(0, keys - queries),
    mask,
    q: values(batch * heads * queries * depth, 71),
    k: values(batch * kvHeads * keys * depth, 72),
    v: values(batch * kvHeads * keys * valueDepth, 73),
    qStrides: strides(heads, queries, depth),
    kStrides: strides(kvHeads, keys, depth),
    vStrides: strides(kvHeads, keys, valueDepth),
    yStrides: strides(heads, queries, valueDepth),
    maskStrides: [0, 0, keys] as const,
  }
}
