// row.ts: a kernel and the contract of its arguments, one row for each operation.
import type { ElementType } from '../../core/dtype.js'
import type { Paced } from '../../core/paced.js'
import type { KernelArgs, KernelOp, WeightFormat } from '../kernels.js'

/** What an array must be; an absent one passes if it is optional. */
export interface Operand {
  readonly dtype: ElementType
  /** Elements at least; negative where a loop would start in front of the array. */
  readonly count: number
  readonly isOptional: boolean
}

/** A count stands for so many elements of f32. */
type Counted<Array> = Float32Array extends Array ? number | Operand : Operand

type ArrayNames<Args> = {
  [Name in keyof Args]-?: NonNullable<Args[Name]> extends ArrayBufferView ? Name : never
}[keyof Args]

type SizeNames<Args> = {
  [Name in keyof Args]-?: Args[Name] extends number ? Name : never
}[keyof Args]

/** All arrays of an operation, in the order of their checks; undefined is not checked. */
export type Operands<Args> = {
  readonly [Name in ArrayNames<Args>]-?: undefined extends Args[Name]
    ? Counted<NonNullable<Args[Name]>> | undefined
    : Counted<Args[Name]>
}

/** One operation in TypeScript: kernel and contract. A kernel that may take long pauses. */
export interface KernelRow<Args> {
  readonly kernel: (args: Args) => void | Paced<void>
  /** Arguments that must be integers of at least 0. */
  readonly sizes?: readonly (SizeNames<Args> & string)[]
  /** Rules about arguments other than arrays: functions, modes, axes, strides. */
  readonly check?: (args: Args) => void
  /** Formats of its weight. Default: those that all kernels read. */
  readonly formats?: readonly WeightFormat[]
  /** Sizes and types of the arrays. */
  readonly operands: (args: Args) => Operands<Args>
  /** Rules about elements of arrays whose sizes are right. */
  readonly checkElements?: (args: Args) => void
}

/** The rows of some operations. */
export type KernelRows<Op extends KernelOp> = { readonly [Name in Op]: KernelRow<KernelArgs[Name]> }

/** So many elements of a type. */
export const elements = (dtype: ElementType, count: number): Operand => ({ dtype, count, isOptional: false })

/** An array that may be absent; a count is of f32. */
export const optional = (operand: number | Operand): Operand => ({
  ...(typeof operand === 'number' ? elements('f32', operand) : operand),
  isOptional: true,
})
