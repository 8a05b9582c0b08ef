// losses.ts: appends a training loss to a model.
import { expectNumber, expectOneOf } from '../../core/checks.js'
import { GraphBuilder } from '../builder.js'
import { type Graph, makeNode } from '../graph.js'
import { isGraph, joinLoss } from './losses/graph-loss.js'
import { addHypotheses, addPath } from './losses/hypotheses.js'
import { addFeatures, addPair } from './losses/pairs.js'
import { LossScope } from './losses/scope.js'
import type { Loss, LossTerm } from './losses/terms.js'

export type * from './losses/terms.js'

const types = [
  'cross-entropy',
  'nll',
  'mse',
  'l1',
  'kl',
  'laplacian-nll',
  'gaussian-nll',
  'path-distillation',
  'feature-distillation',
] as const

/** A model with a loss. */
export interface WithLoss {
  /** The model; targets are new inputs, and the loss is a new output behind the others. */
  readonly graph: Graph
  /** Name of the loss: one number. */
  readonly loss: string
  /** Outputs and the targets that must have their shapes. */
  readonly pairs: readonly (readonly [output: string, target: string])[]
}

/**
 * Appends a loss: terms of the library, or a graph as {@link joinLoss} describes it. A target that is no value of the graph becomes an input of that name, which is `target` by default.
 *
 * @param teacher - name in the graph of each value of the teacher, by its name in the teacher
 * @throws SparkError ERR_ARGUMENT for an unknown loss, a weight that is no number, a value that the model has not, or as
 * {@link joinLoss}
 */
export function addLoss(
  graph: Graph,
  loss: Loss | Graph,
  teacher: ReadonlyMap<string, string> = new Map(),
): WithLoss {
  if (isGraph(loss)) {
    const joined = joinLoss(graph, loss, teacher)
    const outputs = [...graph.outputs, { name: joined.loss }]
    return { graph: { ...joined.graph, outputs }, loss: joined.loss, pairs: [] }
  }
  const builder = new GraphBuilder(graph, 'loss')
  const scope = new LossScope(graph, builder, teacher)
  const terms: readonly LossTerm[] =
    typeof loss === 'string' ? [{ type: loss }] : Array.isArray(loss) ? loss : [loss]
  const parts = terms.map(term => {
    expectOneOf('loss.type', term.type, types)
    const { weight = 1 } = term
    expectNumber('loss.weight', weight)
    return scope.scaled(addTerm(scope, term), weight)
  })
  const name = builder.fresh('loss')
  builder.append(makeNode('Sum', parts, [name]))
  const built = builder.build()
  return { graph: { ...built, outputs: [...built.outputs, { name }] }, loss: name, pairs: scope.pairs }
}

function addTerm(scope: LossScope, term: LossTerm): string {
  switch (term.type) {
    case 'laplacian-nll':
    case 'gaussian-nll':
      return addHypotheses(scope, term)
    case 'path-distillation':
      return addPath(scope, term)
    case 'feature-distillation':
      return addFeatures(scope, term)
    default:
      return addPair(scope, term)
  }
}
