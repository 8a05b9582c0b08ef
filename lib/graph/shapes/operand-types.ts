// operand-types.ts: element types of operands that hold axes, sizes, indices, lengths or conditions.
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../attributes.js'
import type { Call } from './call.js'
import type { OperatorRow } from './row.js'

function expectType(call: Call, inputs: readonly number[], allowed: readonly ElementType[]): void {
  for (const i of inputs) {
    const dtype = call.dtype(i)
    if (!dtype || allowed.includes(dtype)) continue
    const what = `input ${i} is ${dtype}; it must be ${allowed.join(' or ')}: add a Cast`
    throw new SparkError('ERR_DTYPE', `${describeNode(call.node)}: ${what}`)
  }
}

/**
 * Refuses floats, strings and the like where an operator wants integers or conditions. The standard wants i64 for most
 * integers; i32 says the same.
 * @throws SparkError ERR_DTYPE naming the node
 */
export function expectOperandTypes(call: Call, { integers = [], conditions = [] }: OperatorRow): void {
  expectType(call, integers, ['i32', 'i64'])
  expectType(call, conditions, ['bool'])
}
