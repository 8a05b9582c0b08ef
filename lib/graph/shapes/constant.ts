// constant.ts: shapes of tensors made of attributes and sizes.
import { numel } from '../../core/shape.js'
import {
  add,
  areNumbers,
  ceilDivide,
  derive,
  maximum,
  multiply,
  type Size,
  subtract,
} from '../../core/size.js'
import { tensorOf } from '../attributes.js'
import type { SymbolicDimension } from '../graph.js'
import { type Rule, tensorOrUnknown } from './context.js'
import { knownConstant, smallShape } from './known-values.js'
import { shapeFrom } from './reshape.js'
import type { OperatorTable, ValueRule } from './row.js'

const constant: Rule = ctx => {
  const value = tensorOf(ctx.node, 'value')
  return [value && tensorOrUnknown(value.dtype, value.shape)]
}

const constantOfShape: Rule = ctx => [
  tensorOrUnknown(tensorOf(ctx.node, 'value')?.dtype ?? 'f32', shapeFrom(ctx, 0)),
]

const range: Rule = ctx => {
  const [start, limit, delta] = [ctx.sizes(0)?.[0], ctx.sizes(1)?.[0], ctx.sizes(2)?.[0]]
  if (delta === 0) throw ctx.fail('delta is 0')
  const known = start !== undefined && limit !== undefined && delta !== undefined
  return [tensorOrUnknown(ctx.dtype(0), [known ? countOf(start, limit, delta) : null])]
}

/** How many numbers there are from start to limit. */
function countOf(start: Size, limit: Size, delta: Size): Size {
  if (areNumbers([start, limit, delta]) || !Number.isInteger(delta)) {
    const count = (start?: number, limit?: number, delta?: number): number =>
      Math.max(0, Math.ceil((limit! - start!) / delta!))
    return derive('range', count, start, limit, delta)
  }
  const step = delta as number
  const length = step > 0 ? subtract(limit, start) : subtract(start, limit)
  return maximum(0, ceilDivide(length, Math.abs(step)))
}

const eyeLike: Rule = ctx => [tensorOrUnknown(ctx.typeAttribute('dtype', ctx.dtype(0)), ctx.shape(0))]

const constantValues: ValueRule = ctx => {
  const value = tensorOf(ctx.node, 'value')
  return value ? [knownConstant(value)] : []
}

const filled: ValueRule = (ctx, [type]) => {
  const shape = smallShape(type)
  const value = tensorOf(ctx.node, 'value')
  const element = value ? knownConstant(value)?.elements[0] : 0
  if (!shape || element === undefined) return []
  return [{ shape, elements: Array<SymbolicDimension>(numel(shape)).fill(element) }]
}

const rangeValues: ValueRule = (ctx, [type]) => {
  const [shape, start, delta] = [smallShape(type), ctx.sizes(0)?.[0], ctx.sizes(2)?.[0]]
  if (!shape || start === undefined || delta === undefined) return []
  return [{ shape, elements: Array.from({ length: shape[0]! }, (_, i) => add(start, multiply(i, delta))) }]
}

/** Rows of operators that make tensors. */
export const constants: OperatorTable = {
  '': {
    Constant: { shape: constant, values: constantValues },
    ConstantOfShape: { shape: constantOfShape, integers: [0], values: filled },
    Range: { shape: range, values: rangeValues },
    EyeLike: { shape: eyeLike },
  },
}
