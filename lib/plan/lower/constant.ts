// constant.ts: tensors made of attributes and sizes.
import type { Size } from '../../core/size.js'
import { int, tensorOf } from '../../graph/attributes.js'
import type { Lowering } from '../lowering.js'
import { constantValue, type Value } from '../value.js'
import { addFill } from './copy.js'
import { pattern } from './positions.js'
import type { LowerTable } from './table.js'

function eyeLike(ctx: Lowering): void {
  const { shape, dtype } = ctx.output()
  const k = ctx.integer('k')
  ctx.give(ctx.cast(pattern(ctx, shape, 'Equal', k), ctx.kernelType(dtype)))
}

/** 0, 1, 2 …: how many ones are in front of each element. */
function counting(ctx: Lowering, count: Size): Value {
  const ones = ctx.call('Expand', [ctx.one(1, 'f64'), ctx.ints([count])])
  return ctx.call('CumSum', [ones, ctx.one(0, 'i64')], { exclusive: int(1) })
}

/** start, limit, delta: start + i · delta, computed in the type of the output. */
function range(ctx: Lowering): void {
  const { shape, dtype } = ctx.output()
  const counts = counting(ctx, shape[0]!)
  const steps = ctx.call('Mul', [ctx.cast(counts, ctx.kernelType(dtype)), ctx.input(2)])
  ctx.give(ctx.call('Add', [steps, ctx.input(0)]))
}

function constantOfShape(ctx: Lowering): void {
  const { shape, dtype } = ctx.output()
  const value = tensorOf(ctx.node, 'value')
  const fill: Value = value ? constantValue(value) : ctx.one(0, ctx.kernelType(dtype))
  addFill(ctx, shape, fill.buffer.read(), ctx.write())
}

/** Lowerings of operators that make tensors. */
export const constants: LowerTable = {
  '': {
    Constant: ctx => ctx.constant(ctx.tensor('value')),
    ConstantOfShape: constantOfShape,
    Range: range,
    EyeLike: eyeLike,
  },
}
