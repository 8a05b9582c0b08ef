// cases.ts: one call of every operation on odd sizes, for `dgx-spark verify` and the kernel tests.
import { type DType, type DTypeArray, isHalf } from '../../core/dtype.js'
import type { KernelBackend, Kernels, Weight } from '../../kernels/kernels.js'
import type { NVFP4Weight } from '../../precision/nvfp4.js'
import { blockCases, rowsCase } from './blocks.js'
import { byteCases } from './bytes.js'
import { convIntegerCases } from './conv-integer.js'
import { doraCases } from './dora.js'
import { halfCases, roundedCases } from './halves.js'
import { layerCases } from './layer.js'
import { integerCases, packedCases } from './layouts.js'
import { networkCases } from './network.js'
import { pagedCases } from './paged.js'
import { expertCases, productCases, swizzleCases } from './products.js'
import { stridedCases } from './strided.js'
import {
  bf16Tolerance,
  f32,
  halfTolerance,
  nvfp4Tolerance,
  sumTolerance,
  type VerifyCase,
  type VerifySizes,
  values,
  verifyCase,
  verifySizes,
} from './values.js'

/** The weight of the cases in each storage format, made by `reference`. */
function verifyWeights(reference: Kernels, { rows, cols }: VerifySizes): Weight[] {
  const data = values(rows * cols, 11)
  const cast = (dtype: 'f16' | 'bf16'): Weight => {
    const dst = new Uint16Array(data.length)
    const args = {
      srcDtype: 'f32' as const,
      dstDtype: dtype,
      count: data.length,
      saturate: true,
      src: data,
      dst,
    }
    reference.runSync('cast', args)
    return { format: dtype, rows, cols, data: dst }
  }
  const codes = new Uint8Array(rows * cols)
  const rowScale = f32(rows)
  const fp8 = { srcDtype: 'f32' as const, rows, cols, blockRows: 1, blockCols: cols, src: data }
  reference.runSync('fp8Quantize', { ...fp8, codes, scale: rowScale })
  const weights: Weight[] = [
    { format: 'f32', rows, cols, data },
    cast('f16'),
    cast('bf16'),
    { format: 'f8_e4m3', rows, cols, data: codes, rowScale },
    {
      format: 'i8',
      rows,
      cols,
      data: Int8Array.from(data, value => Math.round(127 * value)),
      rowScale: f32(rows).fill(1 / 127),
    },
  ]
  return cols % 16 === 0 ? [...weights, nvfp4Weight(reference, data, rows, cols)] : weights
}

function nvfp4Weight(reference: Kernels, src: Float32Array, rows: number, cols: number): NVFP4Weight {
  const packed = new Uint8Array(src.length / 2)
  const blockScale = new Uint8Array(src.length / 16)
  const tensorScale = Math.fround(1 / 2688)
  const args = { srcDtype: 'f32' as const, rows, cols, tensorScale, src, packed, blockScale }
  reference.runSync('nvfp4Quantize', args)
  return { format: 'nvfp4', rows, cols, data: packed, blockScale, tensorScale }
}

/** Every operation in every storage format; those that only a GPU has where the backend is one. */
export function verifyCases(
  reference: Kernels,
  sizes: VerifySizes = verifySizes,
  backend: KernelBackend = 'cpu',
): VerifyCase[] {
  return allCases(reference, sizes).filter(({ referenceArgs }) => backend === 'cuda' || !referenceArgs)
}

function allCases(reference: Kernels, sizes: VerifySizes): VerifyCase[] {
  const weights = verifyWeights(reference, sizes)
  return [
    ...castCases(reference, sizes),
    ...quantizerCases(weights, sizes),
    ...weights.flatMap(weight => [
      ...linearCases(weight, sizes),
      ...packedCases(weight, sizes),
      rowsCase(weight),
      ...doraCases(reference, weight, sizes),
    ]),
    ...verifyWeights(reference, { ...sizes, rows: 3 * sizes.rows }).flatMap(weight =>
      expertCases(weight, sizes),
    ),
    ...productCases(weights[0]!, sizes),
    ...verifyWeights(reference, { ...sizes, cols: 1040 }).flatMap(batchCases),
    ...verifyWeights(reference, { ...sizes, rows: 133, cols: 320 }).flatMap(nvfp4LinearCases),
    ...integerCases(sizes),
    ...byteCases(sizes),
    ...convIntegerCases(),
    ...blockCases(sizes),
    ...halfCases(sizes),
    ...roundedCases(sizes),
    ...networkCases(weights, sizes),
    ...pagedCases(sizes),
    ...stridedCases(sizes),
    ...layerCases(sizes),
    ...trainingCases(sizes),
  ]
}

function castCases(reference: Kernels, { rows, cols }: VerifySizes): VerifyCase[] {
  const formats: DType[] = ['f32', 'f16', 'bf16', 'f8_e4m3', 'f8_e5m2']
  const count = rows * cols + 7
  const wide = values(count, 1).map((value, i) => value * 2 ** ((i % 61) - 30))
  const encoded = (dtype: DType): DTypeArray => {
    const dst = emptyArray(dtype, count)
    reference.runSync('cast', { srcDtype: 'f32', dstDtype: dtype, count, saturate: true, src: wide, dst })
    return dst
  }
  return formats.flatMap(from => {
    const src = encoded(from)
    return formats.map(to =>
      verifyCase('cast', `${from} to ${to}`, ['dst'], 0, () => ({
        srcDtype: from,
        dstDtype: to,
        count,
        saturate: true,
        src,
        dst: emptyArray(to, count),
      })),
    )
  })
}

function emptyArray(dtype: DType, count: number): DTypeArray {
  if (dtype === 'f32') return new Float32Array(count)
  return isHalf(dtype) ? new Uint16Array(count) : new Uint8Array(count)
}

function quantizerCases(weights: readonly Weight[], { rows, cols }: VerifySizes): VerifyCase[] {
  const nvfp4 = weights.find(({ format }) => format === 'nvfp4') as NVFP4Weight | undefined
  const sources = weights.flatMap(({ format, data }) =>
    format === 'f32' || isHalf(format) ? [{ dtype: format, data: data as DTypeArray }] : [],
  )
  const blocks = [[1, cols] as const, [16, 16] as const, [rows, cols] as const]
  const quantize = sources.flatMap(({ dtype: srcDtype, data: src }) => [
    verifyCase('amax', srcDtype, ['out'], 0, () => ({
      dtype: srcDtype,
      count: src.length,
      src,
      out: f32(1),
    })),
    ...blocks.map(([blockRows, blockCols]) =>
      verifyCase('fp8Quantize', `${srcDtype} by ${blockRows}x${blockCols}`, ['codes', 'scale'], 0, () => ({
        srcDtype,
        rows,
        cols,
        blockRows,
        blockCols,
        src,
        codes: new Uint8Array(src.length),
        scale: f32(Math.ceil(rows / blockRows) * Math.ceil(cols / blockCols)),
      })),
    ),
    ...(nvfp4 ? nvfp4QuantizeCases(nvfp4, srcDtype, src) : []),
  ])
  const codes = nvfp4 ? [...quantize, nvfp4DequantizeCase(nvfp4)] : quantize
  return [...codes, ...swizzleCases(rows, cols)]
}

function nvfp4QuantizeCases(weight: NVFP4Weight, srcDtype: DType, src: DTypeArray): VerifyCase[] {
  const { rows, cols } = weight
  const { tensorScale } = weight
  return (['modelopt', 'te', 'mse'] as const).map(recipe =>
    verifyCase('nvfp4Quantize', `${srcDtype} ${recipe}`, ['packed', 'blockScale'], 0, () => ({
      srcDtype,
      rows,
      cols,
      recipe,
      tensorScale,
      encodeScale: Math.fround(1 / tensorScale),
      src,
      packed: new Uint8Array(src.length / 2),
      blockScale: new Uint8Array(src.length / 16),
    })),
  )
}

function nvfp4DequantizeCase(weight: NVFP4Weight): VerifyCase {
  const { rows, cols } = weight
  return verifyCase('nvfp4Dequantize', `${rows}x${cols}`, ['dst'], 0, () => ({
    rows,
    cols,
    tensorScale: weight.tensorScale,
    packed: weight.data,
    blockScale: weight.blockScale,
    dst: f32(rows * cols),
  }))
}

function linearCases(weight: Weight, sizes: VerifySizes): VerifyCase[] {
  const { tokens, rows, cols } = sizes
  const tolerance = sumTolerance(sizes)
  const x = values(tokens * cols, 3)
  const dy = values(tokens * rows, 4)
  const bias = values(rows, 5)
  const forward = { weight, tokens, x, bias }
  const backward = () => ({ dx: f32(tokens * cols), dweight: f32(rows * cols), dbias: f32(rows) })
  const gradients = ['dx', 'dweight', 'dbias'] as const
  const compute = 'bf16'
  return [
    verifyCase('linear', weight.format, ['y'], tolerance, () => ({ ...forward, y: f32(tokens * rows) })),
    verifyCase('linear', `${weight.format}, bf16`, ['y'], bf16Tolerance, () => {
      return { ...forward, compute, y: f32(tokens * rows) }
    }),
    ...nvfp4LinearCases(weight),
    ...halfLinearCases(weight, sizes),
    verifyCase('linearBackward', weight.format, gradients, tolerance, () => {
      return { weight, tokens, x, dy, ...backward() }
    }),
    verifyCase('linearBackward', `${weight.format}, bf16`, gradients, bf16Tolerance, () => {
      return { weight, tokens, x, dy, compute, ...backward() }
    }),
    verifyCase('weightNorm2', weight.format, ['out'], tolerance, () => ({ weight, out: f32(rows) })),
  ]
}

/** Products of activations that are rounded to NVFP4; more than 16 rows of a multiple of 64 go to FP4 tensor cores. */
function nvfp4LinearCases(weight: Weight): VerifyCase[] {
  const { format, rows, cols } = weight
  if (format !== 'nvfp4') return []
  const compute = 'nvfp4'
  return [5, 22, 150].map(tokens => {
    const forward = { weight, tokens, x: values(tokens * cols, 3), bias: values(rows, 5) }
    return verifyCase('linear', `nvfp4, nvfp4 of ${tokens}x${cols}`, ['y'], nvfp4Tolerance, () => {
      return { ...forward, compute, y: f32(tokens * rows) }
    })
  })
}

/** Products in f16, of the weights that it is for. */
function halfLinearCases(weight: Weight, { tokens, rows, cols }: VerifySizes): VerifyCase[] {
  if (weight.format !== 'f16' && weight.format !== 'f32') return []
  const compute = 'f16'
  const args = { weight, tokens, x: values(tokens * cols, 3), compute } as const
  return [
    verifyCase('linear', `${weight.format}, f16`, ['y'], halfTolerance, () => {
      return { ...args, y: f32(tokens * rows) }
    }),
    verifyCase('linearBackward', `${weight.format}, f16`, ['dx', 'dweight'], halfTolerance, () => {
      return { ...args, dy: values(tokens * rows, 4), dx: f32(tokens * cols), dweight: f32(rows * cols) }
    }),
  ]
}

/** Products in 16 bits of up to 32, 256 and more rows, the former in stripes of K on a GPU. */
function batchCases(weight: Weight): VerifyCase[] {
  const { format, rows, cols } = weight
  const tolerances = { bf16: bf16Tolerance, f16: halfTolerance }
  const computes = format === 'f16' || format === 'f32' ? (['bf16', 'f16'] as const) : (['bf16'] as const)
  return [19, 39, 257].flatMap(tokens =>
    computes.map(compute => {
      const [x, bias] = [values(tokens * cols, 3), values(rows, 5)]
      return verifyCase(
        'linear',
        `${format}, ${compute} of ${tokens}x${cols}`,
        ['y'],
        tolerances[compute],
        () => {
          return { weight, tokens, x, bias, compute, y: f32(tokens * rows) }
        },
      )
    }),
  )
}

function trainingCases(sizes: VerifySizes): VerifyCase[] {
  const { tokens, rows, cols } = sizes
  const classes = rows + 1
  const tolerance = sumTolerance(sizes)
  return [
    verifyCase('softmaxCrossEntropy', `${tokens}x${classes}`, ['loss', 'dlogits'], tolerance, () => ({
      tokens,
      classes,
      logits: values(tokens * classes, 14).map(value => 20 * value),
      labels: Int32Array.from({ length: tokens }, (_, t) => (3 * t) % classes),
      loss: f32(1),
      dlogits: f32(tokens * classes),
    })),
    ...['step 3', 'step 3 in memory'].map((variant, inMemory) =>
      verifyCase('adamw', variant, adamwOutputs, tolerance, () => ({
        step: inMemory ? Float64Array.of(3) : 3,
        lr: inMemory ? Float64Array.of(1e-2) : 1e-2,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weightDecay: 0.01,
        tensors: [rows * cols + 7, 0, cols, 1].map(count => ({
          count,
          grad: values(count, 15),
          param: values(count, 16),
          m: values(count, 17),
          v: values(count, 18).map(Math.abs),
        })),
      })),
    ),
  ]
}

/** Of the tensors that have elements. */
const adamwOutputs = [0, 2, 3].flatMap(i =>
  (['param', 'm', 'v'] as const).map(name => `tensors.${i}.${name}` as const),
)
