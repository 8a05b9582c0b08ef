// constant.ts: tensors made of attributes and sizes.
import { SparkError } from '../../core/errors.js'
import { tensorOf } from '../../graph/attributes.js'
import { Constant } from '../../graph/constant.js'
import { constantValue, type Lowering, type Value } from '../lowering.js'
import { addFill } from './copy.js'
import { pattern } from './slice.js'
import type { LowerTable } from './table.js'

function eyeLike(ctx: Lowering): void {
  const { shape, dtype } = ctx.output()
  const k = ctx.integer('k')
  const ones = pattern(ctx, shape, (row, col) => col === row + k)
  ctx.give(ctx.constantOf(ctx.kernelType(dtype), shape, ones))
}

/** 0, 1, 2, … */
function counting(count: number): Float64Array {
  try {
    return Float64Array.from({ length: count }, (_, i) => i)
  } catch (cause) {
    throw new SparkError('ERR_OUT_OF_MEMORY', `a list of ${count} numbers does not fit`, { cause })
  }
}

/** start, limit, delta: start + i · delta, computed in the type of the output. */
function range(ctx: Lowering): void {
  const { shape, dtype } = ctx.output()
  const counts = constantValue(Constant.from('f64', shape, counting(shape[0]!)))
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
