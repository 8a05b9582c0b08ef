// array-types.ts: the typed arrays that operations take, as operands.ts checks them.
import { type ElementType, elementArrayOf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { formatInfo } from '../../weights/formats.js'
import type { KernelOp, Weight } from '../kernels.js'

type Args = Readonly<Record<string, unknown>>

/** Element types of arrays by their names; others are f32. */
type Types = Readonly<Record<string, ElementType>>

/** Arrays whose type does not depend on the operation. */
const named: Types = {
  ...{ labels: 'i32', index: 'i32', taps: 'i32', lengths: 'i32', state: 'u32' },
  ...{ indices: 'i64', condition: 'bool', packed: 'u8', blockScale: 'u8', codes: 'u8' },
  ...{ xZero: 'i32', wZero: 'i32', wSum: 'i32', yZero: 'i32', zero: 'i32', aZero: 'i32', bZero: 'i32' },
}

/** The listed arrays have the type that the argument `field` names. */
const typed =
  (field: string, ...names: readonly string[]) =>
  (args: Args): Types =>
    Object.fromEntries(names.map(name => [name, args[field] as ElementType]))

const codes = (signed: unknown): ElementType => (signed ? 'i8' : 'u8')

const products = ({ xSigned, wSigned, scale, yDtype }: Args): Types => ({
  ...{ x: codes(xSigned), w: codes(wSigned), bias: 'i32' },
  y: scale ? (yDtype as ElementType) : 'i32',
})

const predicates: readonly unknown[] = ['is_nan', 'is_inf', 'less', 'less_or_equal', 'equal']

const elementwise =
  (...names: readonly string[]) =>
  (args: Args): Types => ({
    ...typed('dtype', ...names)(args),
    ...(predicates.includes(args.fn) && { y: 'bool' }),
  })

const byOperation: { readonly [Op in KernelOp]?: (args: Args) => Types } = {
  cast: args => ({ ...typed('srcDtype', 'src')(args), ...typed('dstDtype', 'dst')(args) }),
  amax: typed('dtype', 'src'),
  nvfp4Quantize: typed('srcDtype', 'src'),
  fp8Quantize: typed('srcDtype', 'src'),
  swizzleScales: () => ({ src: 'u8', dst: 'u8' }),
  packWeight: ({ weight }) => ({ data: weightType(weight as Weight) }),
  unary: elementwise('x', 'y'),
  binary: elementwise('a', 'b', 'y'),
  select: typed('dtype', 'a', 'b', 'y'),
  reduce: typed('dtype', 'x', 'y'),
  cumulate: typed('dtype', 'x', 'y'),
  topK: typed('dtype', 'x', 'values'),
  copyStrided: typed('dtype', 'src', 'dst'),
  gather: typed('dtype', 'x', 'y'),
  scatter: typed('dtype', 'updates', 'y'),
  pool: typed('dtype', 'x', 'y'),
  poolBackward: typed('dtype', 'x', 'dy', 'dx'),
  linearInteger: products,
  convInteger: args => products({ ...args, wSigned: true }),
  quantize: typed('dtype', 'y'),
  dequantize: typed('dtype', 'x'),
  lookup: ({ xSigned, ySigned }) => ({ x: codes(xSigned), table: codes(ySigned), y: codes(ySigned) }),
  binaryBytes: ({ aDtype, bDtype, yDtype }) => ({ a: aDtype, b: bDtype, y: yDtype }) as Types,
  meanBytes: ({ xDtype, yDtype }) => ({ x: xDtype, y: yDtype }) as Types,
}

/** Element type of the data of a weight: pairs of codes are bytes. */
const weightType = ({ format }: Weight): ElementType => formatInfo(format).dtype

/** The element type of an array of a weight. */
export const weightArrayType = (weight: Weight, name: string): ElementType =>
  name === 'data' ? weightType(weight) : name === 'blockScale' ? 'u8' : 'f32'

/** The element type of an array of an operation, by its name. */
export function arrayTypes(op: KernelOp, args: Args): (name: string) => ElementType {
  const own = byOperation[op]?.(args)
  return name => own?.[name] ?? named[name] ?? 'f32'
}

/**
 * Throws unless an array holds elements of `dtype`; a plan in double precision has f64 in the place of f32.
 * @throws SparkError ERR_DTYPE
 */
export function expectArrayType(name: string, array: ArrayBufferView, dtype: ElementType): void {
  const wanted = elementArrayOf(dtype)
  if (array instanceof wanted || (dtype === 'f32' && array instanceof Float64Array)) return
  const given = array.constructor.name
  throw new SparkError('ERR_DTYPE', `${name} is a ${given}; elements of ${dtype} need a ${wanted.name}`)
}
