// operands.ts: checks of kernel arguments by the rows of their operations, the same that the addon makes.
import { argumentError, expectAttached, expectInteger, expectOneOf } from '../../core/checks.js'
import { type ElementType, elementArrayOf, elementBits } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { nvfp4Block } from '../../precision/kernels.js'
import { formatInfo, isBlockFormat, kernelFormats, weightSizes } from '../../weights/formats.js'
import { panelSizes } from '../../weights/panels.js'
import type { Weight, WeightFormat } from '../kernels.js'
import { elements, type KernelRow, type Operand } from './row.js'

type Fields = Readonly<Record<string, unknown>>

/**
 * Throws unless `args` are what an operation takes.
 * @throws SparkError ERR_ARGUMENT, ERR_SHAPE, ERR_DTYPE, ERR_UNSUPPORTED
 */
export function expectOperands<Args extends object>(row: KernelRow<Args>, args: Args): void {
  const given = args as Fields
  for (const name of row.sizes ?? []) expectInteger(name, given[name], 0)
  for (const name of ['dtype', 'srcDtype', 'dstDtype']) expectElementType(name, given[name])
  if ('weight' in given) expectWeight(given.weight as Weight, row.formats ?? kernelFormats)
  row.check?.(args)
  expectArrays('', args, row.operands(args))
  row.checkElements?.(args)
}

/** Throws ERR_DTYPE for what is no type of elements, such as a format of weights. */
function expectElementType(name: string, dtype: unknown): void {
  if (dtype === undefined || Object.hasOwn(elementBits, dtype as string)) return
  const isBlocks = isBlockFormat(dtype as WeightFormat)
  const hint = isBlocks ? ' is a format of weights in blocks; decode them first' : ''
  throw new SparkError('ERR_DTYPE', `${name} is not a dtype of elements: '${dtype}'${hint}`)
}

/** Checks the arrays of an object; a count is one of f32. */
export function expectArrays(
  prefix: string,
  given: object,
  operands: Readonly<Record<string, number | Operand | undefined>>,
): void {
  for (const [name, operand] of Object.entries(operands)) {
    if (operand === undefined) continue
    const { dtype, count, isOptional } = typeof operand === 'number' ? elements('f32', operand) : operand
    const array = (given as Fields)[name]
    if (array === undefined && isOptional) continue
    if (!ArrayBuffer.isView(array)) throw argumentError(prefix + name, 'a typed array', array)
    expectArrayType(prefix + name, array, dtype)
    const { length } = array as Float32Array
    if (count < 0) throw new SparkError('ERR_SHAPE', `${prefix}${name} would be left at its beginning`)
    if (length < count) {
      expectAttached(prefix + name, array)
      throw new SparkError('ERR_SHAPE', `${prefix}${name} has ${length} elements but ${count} are needed`)
    }
  }
}

/** A plan in double precision has f64 in the place of f32. */
function expectArrayType(name: string, array: ArrayBufferView, dtype: ElementType): void {
  const wanted = elementArrayOf(dtype)
  if (array instanceof wanted || (dtype === 'f32' && array instanceof Float64Array)) return
  const given = array.constructor.name
  throw new SparkError('ERR_DTYPE', `${name} is a ${given}; elements of ${dtype} need a ${wanted.name}`)
}

/** Throws ERR_SHAPE unless `what` is so. */
export function expectFits(fits: boolean, what: string): void {
  if (!fits) throw new SparkError('ERR_SHAPE', what)
}

/** Codes and block scales of a matrix in NVFP4. */
export function nvfp4Sizes(rows: number, cols: number): { packed: number; blockScale: number } {
  expectFits(cols % nvfp4Block === 0, `cols is ${cols}, not a multiple of ${nvfp4Block}`)
  return { packed: (rows * cols) / 2, blockScale: (rows * cols) / nvfp4Block }
}

/** Checks the weight of this name, which is in one of the formats. */
export function expectWeight(weight: Weight, formats: readonly WeightFormat[], name = 'weight'): void {
  const { format, rows, cols, layout = 'rows' } = weight
  expectOneOf(`${name}.format`, format, formats)
  expectOneOf(`${name}.layout`, layout, ['rows', 'panels'])
  expectInteger(`${name}.rows`, rows, 0)
  expectInteger(`${name}.cols`, cols, 0)
  const { block, dtype, scales } = formatInfo(format)
  expectFits(cols % block === 0, `cols is ${cols}, not a multiple of ${block}`)
  const sizes = layout === 'panels' ? panelSizes(weight) : weightSizes(format, rows, cols)
  expectArrays(`${name}.`, weight, {
    data: elements(dtype, sizes.data),
    ...(scales === 'block' && { blockScale: elements('u8', sizes.blockScale) }),
    ...(scales === 'row' && { rowScale: sizes.rowScale }),
  })
}
