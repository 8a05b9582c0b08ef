// loss.js: the loss of proximal policy optimization (Schulman et al. 2017, equations 7 and 9) as a graph.
import { GraphBuilder } from 'dgx-spark'

/**
 * −mean(min(r·A, clip(r, 1 − ε, 1 + ε)·A)) + valueWeight · mean((value − return)²) − entropyWeight · entropy, where r is the
 * probability of an action now through that when it was taken, and A the advantage.
 * @param {{ clip: number, valueWeight: number, entropyWeight: number }} options
 */
export function ppoLoss({ clip, valueWeight, entropyWeight }) {
  const g = new GraphBuilder()
  const column = (/** @type {string} */ name) => g.input(name, 'f32', ['n', 1])
  const [mean, value, action, before, advantage, wanted] =
    /** @type {[string, string, string, string, string, string]} */ (
      ['mean', 'value', 'sampled', 'logProbability', 'advantage', 'return'].map(column)
    )
  const logDeviation = g.input('logDeviations', 'f32', [1, 1])
  const square = (/** @type {string} */ x) => g.add('Mul', [x, x])
  const average = (/** @type {string} */ x) => g.add('ReduceMean', [x], { keepdims: 0 })

  // The logarithm of the density of the normal distribution, without the constant, which the ratio does not need.
  const deviations = g.add('Mul', [
    g.add('Sub', [action, mean]),
    g.add('Exp', [g.add('Neg', [logDeviation])]),
  ])
  const now = g.add('Sub', [g.add('Mul', [square(deviations), -0.5]), logDeviation])
  const ratio = g.add('Exp', [g.add('Sub', [now, before])])
  const clipped = g.add('Clip', [ratio, 1 - clip, 1 + clip])
  const gain = g.add('Min', [g.add('Mul', [ratio, advantage]), g.add('Mul', [clipped, advantage])])
  const valueError = average(square(g.add('Sub', [value, wanted])))
  // The entropy of a normal distribution is this logarithm plus a constant.
  const bonus = g.add('Add', [average(gain), g.add('Mul', [average(logDeviation), entropyWeight])])
  g.output(g.add('Sub', [g.add('Mul', [valueError, valueWeight]), bonus]), 'loss')
  return g.build()
}

/** The logarithm of the density of an action, as the loss computes it. @param {number} deviations from the mean @param {number} logDeviation */
export const logProbability = (deviations, logDeviation) => -0.5 * deviations ** 2 - logDeviation
