// pairs.ts: losses that compare an output with a target.
import { SparkError } from '../../../core/errors.js'
import { int } from '../../attributes.js'
import type { LossScope } from './scope.js'
import type { FeatureTerm, PairTerm } from './terms.js'

/** Appends a term and returns the name of its value: one number. */
export function addPair(at: LossScope, { type, output: name, target: wanted }: PairTerm): string {
  const output = at.output(name)
  if (type === 'cross-entropy' || type === 'nll') return addClassification(at, output, wanted)
  const target = at.target(wanted, output)
  at.pairs.push([output, target])
  if (type === 'mse') return addSquares(at, output, target)
  if (type === 'l1') return addDistances(at, output, target)
  return addDivergence(at, output, target)
}

/**
 * Logarithms of probabilities are their own log softmax, and the slope of their sum is 0 in every direction in which they
 * stay probabilities, so that one kernel serves scores and logarithms.
 */
function addClassification(at: LossScope, output: string, wanted: string | undefined): string {
  const target = at.target(wanted, 'target', 'i32')
  const shape = at.shape(output)
  if (!shape || shape.length === 2) return at.add('SoftmaxCrossEntropyLoss', [output, target])
  const classes = shape.at(-1)
  if (typeof classes !== 'number') {
    const remedy = 'reshape it to [samples, classes] in the model'
    throw new SparkError('ERR_UNSUPPORTED', `'${output}' has no fixed number of classes: ${remedy}`)
  }
  const rows = at.add('Reshape', [output, at.constant([-1, classes])])
  return at.add('SoftmaxCrossEntropyLoss', [rows, at.add('Reshape', [target, at.constant([-1])])])
}

function addSquares(at: LossScope, output: string, target: string): string {
  const difference = at.add('Sub', [output, target])
  return at.mean(at.add('Mul', [difference, difference]))
}

/** mean |output − target| */
export function addDistances(at: LossScope, output: string, target: string): string {
  return at.mean(at.add('Abs', [at.add('Sub', [output, target])]))
}

/** Σ softmax(target) · (log softmax(target) − log softmax(output)) / B */
export function addDivergence(at: LossScope, output: string, target: string): string {
  const [ours, theirs] = [output, target].map(scores => at.add('LogSoftmax', [scores], { axis: int(-1) }))
  const difference = at.add('Sub', [theirs!, ours!])
  return at.meanOfSums(at.add('Mul', [at.add('Exp', [theirs!]), difference]))
}

/** KL(softmax(teacher / T) ‖ softmax(student / T)) · T² */
export function addFeatures(at: LossScope, term: FeatureTerm): string {
  const { temperature = 4 } = term
  const output = at.output(term.output)
  const target = at.target(term.target, output)
  at.pairs.push([output, target])
  const isImage = at.shape(output)?.length === 4
  const [ours, theirs] = [output, target].map(features => {
    const rows = isImage ? at.add('Reshape', [features, at.constant([0, 0, -1])]) : features
    return at.scaled(rows, 1 / temperature)
  })
  return at.scaled(addDivergence(at, ours!, theirs!), temperature ** 2)
}
