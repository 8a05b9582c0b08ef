// constant.ts: shapes of tensors made of attributes and sizes.
import { numel } from '../../core/shape.js'
import { tensorOf } from '../attributes.js'
import type { Dimension } from '../graph.js'
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
  const [start, limit, delta] = [ctx.numbers(0)?.[0], ctx.numbers(1)?.[0], ctx.numbers(2)?.[0]]
  const known = start !== undefined && limit !== undefined && delta !== undefined
  if (delta === 0) throw ctx.fail('delta is 0')
  return [tensorOrUnknown(ctx.dtype(0), [known ? Math.max(0, Math.ceil((limit - start) / delta)) : null])]
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
  return [{ shape, elements: Array<Dimension>(numel(shape)).fill(element) }]
}

const rangeValues: ValueRule = (ctx, [type]) => {
  const [shape, start, delta] = [smallShape(type), ctx.numbers(0)?.[0], ctx.numbers(2)?.[0]]
  if (!shape || start === undefined || delta === undefined) return []
  return [{ shape, elements: Array.from({ length: shape[0]! }, (_, i) => start + i * delta) }]
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
