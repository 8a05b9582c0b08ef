// reduce.ts: gradients of reductions.
import { string } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

/** Inputs of an operator of ours that repeats dy along the axes that are gone. */
const repeated = (ctx: GradientContext, op: string, dy: string): string => {
  const axes = ctx.input(1)
  const inputs = [dy, ctx.input(0), ...(axes ? [axes] : [])]
  return ctx.add(op, inputs, ctx.node.attributes, sparkDomain)
}

/** Sums and means: dy is repeated along the axes that are gone. */
const reduction: GradientRule = ctx => ctx.give(0, repeated(ctx, `${ctx.node.op}Grad`, ctx.dy()))

/** Σ x²: dx = 2 · x · dy */
const sumSquare: GradientRule = ctx => {
  const doubled = ctx.add('Mul', [ctx.input(0), ctx.constant(2)])
  ctx.give(0, ctx.add('Mul', [doubled, repeated(ctx, 'ReduceSumGrad', ctx.dy())]))
}

/** The largest or smallest element, the first of equal ones, gets the gradient. */
const extreme: GradientRule = ctx => {
  const axes = ctx.input(1)
  const inputs = [ctx.dy(), ctx.input(0), ...(axes ? [axes] : [])]
  const attributes = { ...ctx.node.attributes, of: string(ctx.node.op === 'ReduceMax' ? 'max' : 'min') }
  ctx.give(0, ctx.add('ReduceExtremeGrad', inputs, attributes, sparkDomain))
}

/** Gradients of reductions. */
export const reductions: GradientTable = {
  '': {
    ReduceSum: reduction,
    ReduceMean: reduction,
    ReduceMax: extreme,
    ReduceMin: extreme,
    ReduceSumSquare: sumSquare,
  },
}
