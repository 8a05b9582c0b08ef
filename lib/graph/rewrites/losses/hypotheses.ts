// hypotheses.ts: losses of predictions with several hypotheses, and of driving models.
import { int } from '../../attributes.js'
import { addDistances, addDivergence } from './pairs.js'
import type { LossScope } from './scope.js'
import type { HypothesesTerm, PathTerm, PathValues } from './terms.js'

/** A likelihood: values of the mean, the scale and the target, [B, H, T, C] and [B, 1, T, C]. */
interface Hypotheses {
  readonly type: HypothesesTerm['type']
  readonly mean: string
  readonly std: string
  readonly target: string
  readonly epsilon: number
}

/** Appends the term and returns the name of its value: one number. */
export function addHypotheses(at: LossScope, { type, epsilon = 1e-6, ...term }: HypothesesTerm): string {
  const [mean, std] = [at.output(term.mean), at.output(term.std)]
  const target = at.add('Unsqueeze', [at.target(term.target, 'target'), at.constant([1])])
  return addBest(at, { type, mean, std, target, epsilon })
}

/** The smallest negative log likelihood of the hypotheses of each sample, averaged over the samples. */
function addBest(at: LossScope, { type, mean, std, target, epsilon }: Hypotheses): string {
  const scale = at.add('Max', [std, at.constant(epsilon)])
  const distance = at.add('Div', [at.add('Sub', [mean, target]), scale])
  const [size, logarithm] =
    type === 'laplacian-nll'
      ? [at.add('Abs', [distance]), at.add('Log', [at.scaled(scale, 2)])]
      : [at.scaled(at.add('Mul', [distance, distance]), 0.5), at.add('Log', [scale])]
  const each = at.add('ReduceSum', [at.add('Add', [size, logarithm]), at.constant([2, 3])], {
    keepdims: int(0),
  })
  return at.mean(at.add('ReduceMin', [each, at.constant([1])], { keepdims: int(0) }))
}

/** Appends the term and returns the name of its value: one number, 0 when no part is there on both sides. */
export function addPath(at: LossScope, term: PathTerm): string {
  const { outputs, targets, pathWeight = 1, probWeight = 0.1, laneWeight = 0.5, edgeWeight = 0.5 } = term
  const parts: string[] = []
  const pair = (key: keyof PathValues): [string, string] | undefined => {
    const [output, target] = [outputs[key], targets[key]]
    return output === undefined || target === undefined
      ? undefined
      : [at.output(output), at.target(target, output)]
  }
  const [path, prob, lanes, edges] = [
    pair('pathMean'),
    pair('pathProb'),
    pair('laneLines'),
    pair('roadEdges'),
  ]
  if (path && outputs.pathStd !== undefined) {
    const [mean, std] = [path[0], at.output(outputs.pathStd)]
    const [starts, ends] = [at.constant([0]), at.constant([1])]
    const target = at.add('Slice', [path[1], starts, ends, at.constant([1])])
    parts.push(
      at.scaled(addBest(at, { type: 'laplacian-nll', mean, std, target, epsilon: 1e-6 }), pathWeight),
    )
  }
  if (prob) parts.push(at.scaled(addDivergence(at, ...prob), probWeight))
  if (lanes) parts.push(at.scaled(addDistances(at, ...lanes), laneWeight))
  if (edges) parts.push(at.scaled(addDistances(at, ...edges), edgeWeight))
  return parts.length === 0 ? at.constant(0) : at.add('Sum', parts)
}
