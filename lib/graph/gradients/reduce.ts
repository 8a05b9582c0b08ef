// reduce.ts: gradients of reductions.
import { string } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

/** Inputs of an operator of ours that repeats dy along the axes that are gone. */
const repeated = (at: GradientContext, op: string, dy: string): string => {
  const axes = at.input(1)
  const inputs = [dy, at.input(0), ...(axes ? [axes] : [])]
  return at.add(op, inputs, at.node.attributes, sparkDomain)
}

/** Sums and means: dy is repeated along the axes that are gone. */
const reduction: GradientRule = at => at.give(0, repeated(at, `${at.node.op}Grad`, at.dy()))

/** Σ x²: dx = 2 · x · dy */
const sumSquare: GradientRule = at => {
  const doubled = at.add('Mul', [at.input(0), at.constant(2)])
  at.give(0, at.add('Mul', [doubled, repeated(at, 'ReduceSumGrad', at.dy())]))
}

/** The largest or smallest element, the first of equal ones, gets the gradient. */
const extreme: GradientRule = at => {
  const axes = at.input(1)
  const inputs = [at.dy(), at.input(0), ...(axes ? [axes] : [])]
  const attributes = { ...at.node.attributes, of: string(at.node.op === 'ReduceMax' ? 'max' : 'min') }
  at.give(0, at.add('ReduceExtremeGrad', inputs, attributes, sparkDomain))
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
