// compute.ts: checks of the precision that operands are rounded to before they are multiplied.
import { expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { hasIntegerCodes, isBlockFormat } from '../../weights/formats.js'
import type { Compute, FloatCompute, Weight } from '../kernels.js'

/** Formats of the weights that products in f16 and nvfp4 are for. */
const computeWeights: Partial<Record<Compute, readonly string[]>> = { f16: ['f16', 'f32'], nvfp4: ['nvfp4'] }

/** Of products with a weight. */
export function expectCompute(compute: Compute = 'f32', { format }: Weight): void {
  expectOneOf('compute', compute, ['f32', 'bf16', 'f16', 'nvfp4', 'i8'])
  if (compute === 'i8' && hasIntegerCodes(format)) return
  if (compute === 'i8')
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `compute i8 is for weights in blocks of integers; this one is ${format}. Use f32`,
    )
  if (compute !== 'f32' && isBlockFormat(format))
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `compute ${compute} is not for weights of ${format}, which need f32`,
    )
  const weights = computeWeights[compute]
  if (!weights || weights.includes(format)) return
  const wanted = weights.join(' and ')
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `compute ${compute} is for weights of ${wanted}; this one is ${format}. Use bf16`,
  )
}

/** Of gradients and convolutions, which have no products of 4-bit codes. */
export function expectFloatCompute({
  compute,
  weight,
}: {
  readonly compute?: FloatCompute | undefined
  readonly weight: Weight
}): void {
  expectCompute(compute, weight)
  if ((compute as Compute) === 'nvfp4' || (compute as Compute) === 'i8') {
    const why = `compute ${compute} is for linear layers, not for gradients. Use bf16`
    throw new SparkError('ERR_UNSUPPORTED', why)
  }
}

/** Of the elements of an activation. */
export const expectActivationDType = (name: string, dtype: string = 'f32'): void =>
  expectOneOf(name, dtype, ['f32', 'bf16', 'f16'])

/** Of products without a weight. */
export function expectProductCompute(compute: string | undefined): void {
  const names = ['f32', 'bf16', 'f16']
  if (compute === undefined || names.includes(compute)) return
  throw new SparkError('ERR_UNSUPPORTED', `compute is '${compute}', not one of ${names.join(', ')}`)
}
