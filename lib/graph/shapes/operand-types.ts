// operand-types.ts: element types of operands that hold axes, sizes, indices, lengths or conditions.
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../attributes.js'
import type { ShapeContext } from './context.js'
import type { OperatorRow } from './row.js'

function expectType(ctx: ShapeContext, inputs: readonly number[], allowed: readonly ElementType[]): void {
  for (const i of inputs) {
    const dtype = ctx.dtype(i)
    if (!dtype || allowed.includes(dtype)) continue
    const what = `input ${i} is ${dtype}; it must be ${allowed.join(' or ')}: add a Cast`
    throw new SparkError('ERR_DTYPE', `${describeNode(ctx.node)}: ${what}`)
  }
}

/**
 * Refuses floats, strings and the like where an operator wants integers or conditions. The standard wants i64 for most
 * integers; i32 says the same.
 * @throws SparkError ERR_DTYPE naming the node
 */
export function expectOperandTypes(ctx: ShapeContext, { integers = [], conditions = [] }: OperatorRow): void {
  expectType(ctx, integers, ['i32', 'i64'])
  expectType(ctx, conditions, ['bool'])
}
