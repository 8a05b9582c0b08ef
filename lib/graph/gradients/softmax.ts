// softmax.ts: gradients of softmax and its logarithm.
import { int, intOf } from '../attributes.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

const sumOf = (ctx: GradientContext, x: string, axis: number): string =>
  ctx.add('ReduceSum', [x, ctx.constant([axis])], { keepdims: int(1) })

/** dx = y ∘ (dy − Σ dy ∘ y) */
const softmax: GradientRule = ctx => {
  const [dy, y] = [ctx.dy(), ctx.output()]
  const sum = sumOf(ctx, ctx.add('Mul', [dy, y]), intOf(ctx.node, 'axis'))
  ctx.give(0, ctx.add('Mul', [y, ctx.add('Sub', [dy, sum])]))
}

/** dx = dy − e^y · Σ dy */
const logSoftmax: GradientRule = ctx => {
  const dy = ctx.dy()
  const sum = sumOf(ctx, dy, intOf(ctx.node, 'axis'))
  ctx.give(0, ctx.add('Sub', [dy, ctx.add('Mul', [ctx.add('Exp', [ctx.output()]), sum])]))
}

/** Gradients of softmax and its kin. */
export const softmaxes: GradientTable = {
  '': { Softmax: softmax, LogSoftmax: logSoftmax },
}
