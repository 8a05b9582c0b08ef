// precision-policy.ts: the precision that a matrix product or convolution is computed in.

import type { RoundedRows } from '../core/activation-types.js'
import type { Precision } from '../core/config.js'
import type { DType, HalfType } from '../core/dtype.js'
import { lessThan, type Size } from '../core/size.js'
import { hasIntegerCodes, isBlockFormat } from '../weights/formats.js'
import type { Kernels } from './kernels.js'
import type { Compute, FloatCompute, WeightFormat } from './weight-args.js'

/** What a product is computed on, and the mode that was asked for. */
export interface ComputeTarget {
  readonly backend: Kernels['backend']
  /** The mode that the weights of the model are rounded in. */
  readonly mode: Precision
  /** Whether the CPU has instructions that multiply bf16. */
  readonly multipliesBf16: boolean
  /** Ranks of the communicator that plans call; undefined without one. */
  readonly world?: number | undefined
  /** The device that has constants in its memory; see {@link Kernels.deviceMemory}. */
  readonly device?: number | undefined
}

/** An operand of a product. */
export interface ProductOperand {
  /** The 16-bit type that holds its f32 elements exactly, where it is known to be one. */
  readonly exactIn?: DType | undefined
  /** The format of a frozen weight. */
  readonly format?: WeightFormat | undefined
  /** Whether the other operand must not be rounded: the weight has the codes of the file, not those of a mode. */
  readonly exact?: boolean | undefined
}

/** A product. */
export interface Product {
  /**
   * `layer`: with a weight. `convolution`: a layer whose CPU kernel is faster in bf16 only for large images. `values`:
   * of two activations, or with a weight that no mode has rounded. `adapter`: a layer beside an adapter, which is a `layer` on a
   * GPU unless its weight is in blocks. `exact`: never rounded, as in training.
   */
  readonly kind: 'layer' | 'convolution' | 'values' | 'adapter' | 'exact'
  readonly operands: readonly ProductOperand[]
  /** Positions in an image of the output of a convolution. */
  readonly positions?: Size
}

/** The type that tensor cores multiply in each mode: 8- and 4-bit codes are exact in bf16. */
export const modeCompute = { fp32: 'f32', fp16: 'f16', bf16: 'bf16', fp8: 'bf16', nvfp4: 'bf16' } as const

/** The 16-bit type that holds the codes of a format. */
const codeTypes: Readonly<Partial<Record<WeightFormat, HalfType>>> = {
  f16: 'f16',
  bf16: 'bf16',
  f8_e4m3: 'bf16',
  nvfp4: 'bf16',
  i8: 'bf16',
}

/** Positions that fill a vector of the CPU: with fewer of them in an image it multiplies bf16 no faster than f32. */
const minPositions = 16

/**
 * The precision of a product. A GPU multiplies 16-bit types on tensor cores: operands that such a type holds exactly, in
 * every mode; weights in the type of their codes; activations in that of the mode. A CPU rounds activations for bf16
 * weights only, and decodes all others to f32, which is faster for few rows. The js backend computes in f32.
 */
export function productCompute(target: ComputeTarget, { kind, operands, positions }: Product): FloatCompute {
  const weight = operands.find(({ format }) => format !== undefined && format !== 'f32')
  switch (target.backend) {
    case 'js':
      return 'f32'
    case 'cpu': {
      if (kind !== 'layer' && kind !== 'convolution') return 'f32'
      if (weight?.exact || weight?.format !== 'bf16') return 'f32'
      const isFast = target.multipliesBf16 && !lessThan(positions ?? minPositions, minPositions)
      return kind === 'layer' || isFast ? 'bf16' : 'f32'
    }
    case 'cuda': {
      if (kind === 'layer' || kind === 'convolution' || kind === 'adapter') {
        if (operands.some(({ exact }) => exact)) return 'f32'
        if (weight) return deviceCompute(kind, weight.format!, target.mode)
      }
      const exact = commonType(operands)
      return kind === 'values' ? (exact ?? modeCompute[target.mode]) : (exact ?? 'f32')
    }
  }
}

/** The precision of a linear layer whose rows are rounded; undefined where a backend has no such products of the format. */
export function roundedCompute(
  { backend, multipliesBf16 }: ComputeTarget,
  rows: RoundedRows,
  format: WeightFormat,
): Compute | undefined {
  switch (rows) {
    case 'int8':
      return backend !== 'cuda' && hasIntegerCodes(format) ? 'i8' : undefined
    case 'bf16':
      return backend === 'cpu' && multipliesBf16 && format === 'bf16' ? 'bf16' : undefined
    case 'nvfp4':
      return format === 'nvfp4' ? 'nvfp4' : undefined
  }
}

/** What a GPU multiplies a weight in: blocks are rounded to bf16 where a mode rounds at all. */
function deviceCompute(kind: Product['kind'], format: WeightFormat, mode: Precision): FloatCompute {
  if (isBlockFormat(format)) return kind === 'layer' && mode !== 'fp32' ? 'bf16' : 'f32'
  return format === 'i8' ? 'f32' : (codeTypes[format] ?? 'f32')
}

/** The 16-bit type that holds all operands exactly. */
function commonType(operands: readonly ProductOperand[]): HalfType | undefined {
  const [type, ...others] = operands.map(({ exactIn, format }) => exactIn ?? (format && codeTypes[format]))
  if ((type !== 'f16' && type !== 'bf16') || others.some(other => other !== type)) return undefined
  return type
}
