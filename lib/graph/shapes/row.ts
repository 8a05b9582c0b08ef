// row.ts: the row of an operator in the tables of shape inference, and rules that several families share.
import type { SymbolicDimension, ValueType } from '../graph.js'
import { type KnownValue, type Rule, type ShapeContext, tensorOrUnknown } from './context.js'
import type { Shape } from './dimensions.js'

/** Elements of the outputs of a node; `types` are the types of the outputs. */
export type ValueRule = (
  ctx: ShapeContext,
  types: readonly (ValueType | undefined)[],
) => readonly (KnownValue | undefined)[]

/** Refuses operands that do not fit together. */
export type Check = (ctx: ShapeContext) => void

/** Values of an attribute that selects one of several ways to compute, by the name of the attribute. */
export type Choices = Readonly<Record<string, readonly (string | number)[]>>

/** What shape inference knows of an operator. */
export interface OperatorRow {
  /** Types of the outputs. */
  readonly shape: Rule
  /** Sizes of the operands; without it they broadcast, or `shape` checks them. */
  readonly check?: Check
  /** Inputs that must be i32 or i64: axes, sizes, indices. */
  readonly integers?: readonly number[]
  /** Inputs that must be bool. */
  readonly conditions?: readonly number[]
  /** Attributes with a fixed set of values. */
  readonly choices?: Choices
  /** Elements of the outputs, where shapes may be computed from them. */
  readonly values?: ValueRule
}

/** Rows by domain and operator. */
export type OperatorTable = Readonly<Record<string, Readonly<Record<string, OperatorRow>>>>

/** The output is like the first input. */
export const sameAsFirst: Rule = ctx => [ctx.type(0)]

/** Output `n` has the type of input `inputs[n]`. */
export const sameAs =
  (...inputs: readonly number[]) =>
  (ctx: ShapeContext): (ValueType | undefined)[] =>
    inputs.map(i => ctx.type(i))

export const f32 = (...shapes: readonly (Shape | undefined)[]): (ValueType | undefined)[] =>
  shapes.map(shape => tensorOrUnknown('f32', shape))

/** Rows of the weight that is input `i`. */
export const rowsOf = (ctx: ShapeContext, i: number): readonly [SymbolicDimension] => [
  ctx.shape(i)?.[0] ?? null,
]

/** A rule for one output of the first input's element type. */
export const moved =
  (shape: (ctx: ShapeContext) => Shape | undefined): Rule =>
  ctx => [tensorOrUnknown(ctx.dtype(0), shape(ctx))]
