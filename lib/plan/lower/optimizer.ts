// optimizer.ts: AdamW, and the optimizers of the ONNX training domain as compositions.
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering, Value } from '../lowering.js'
import type { LowerTable } from './table.js'

/** Learning rate, step (both one f64), parameter, gradient, first and second moment → the last of these but the gradient */
function adamw(at: Lowering): void {
  at.step('adamw', {
    ...{ count: at.read(2).count, lr: at.read(0), step: at.read(1) },
    ...{ beta1: at.number('beta1', 0.9), beta2: at.number('beta2', 0.999) },
    ...{ eps: at.number('epsilon', 1e-8), weightDecay: at.number('weight_decay', 0.01) },
    ...{ grad: at.read(3), param: at.inPlace(2, 0), m: at.inPlace(4, 1), v: at.inPlace(5, 2) },
  })
}

/** Inputs: learning rate, step, then `states + 2` groups: parameters, gradients and states. Outputs: all but gradients. */
const optimizer =
  (
    states: number,
    update: (at: Lowering, rate: Value, x: Value, gradient: Value, state: Value[]) => Value[],
  ) =>
  (at: Lowering): void => {
    const count = (at.node.inputs.length - 2) / (states + 2)
    for (let i = 0; i < count; i++) {
      const [x, g, ...state] = Array.from({ length: states + 2 }, (_, n) => at.input(2 + n * count + i))
      // The norm of the parameters counts as a part of the loss.
      const decay = at.call('Mul', [x, at.one(at.number('norm_coefficient', 0))])
      const results = update(at, at.input(0), x!, at.call('Add', [g, decay]), state)
      for (const [o, value] of results.entries()) at.give(value, o * count + i)
    }
  }

const times = (at: Lowering, value: Value, factor: number): Value => at.call('Mul', [value, at.one(factor)])

const square = (at: Lowering, value: Value): Value => at.call('Mul', [value, value])

/** x − rate · step */
function descend(at: Lowering, x: Value, rate: Value, step: Value): Value {
  return at.call('Sub', [x, at.call('Mul', [rate, step])])
}

/** The number of updates so far, as f32. */
const updates = (at: Lowering): Value => at.cast(at.input(1), 'f32')

const momentum = optimizer(1, (at, rate, x, gradient, [velocity]) => {
  const [alpha, beta] = [at.number('alpha', 0), at.number('beta', 0)]
  const first = at.call('Equal', [at.cast(at.input(1), 'i64'), at.one(0, 'i64')])
  const adjusted = at.call('Where', [first, at.one(1), at.one(beta)])
  const next = at.call('Add', [times(at, velocity!, alpha), at.call('Mul', [gradient, adjusted])])
  const nesterov = at.text('mode', 'standard') === 'nesterov'
  const step = nesterov ? at.call('Add', [gradient, times(at, next, alpha)]) : next
  return [descend(at, x, rate, step), next]
})

const adagrad = optimizer(1, (at, rate, x, gradient, [squares]) => {
  const decayed = at.call('Add', [times(at, updates(at), at.number('decay_factor', 0)), at.one(1)])
  const next = at.call('Add', [squares!, square(at, gradient)])
  const size = at.call('Add', [at.call('Sqrt', [next]), at.one(at.number('epsilon', 0))])
  return [descend(at, x, at.call('Div', [rate, decayed]), at.call('Div', [gradient, size])), next]
})

const adam = optimizer(2, (at, rate, x, gradient, [mean, squares]) => {
  const [alpha, beta] = [at.number('alpha', 0.9), at.number('beta', 0.999)]
  const blend = (old: Value, fresh: Value, keep: number): Value =>
    at.call('Add', [times(at, old, keep), times(at, fresh, 1 - keep)])
  const [first, second] = [blend(mean!, gradient, alpha), blend(squares!, square(at, gradient), beta)]
  const size = at.call('Add', [at.call('Sqrt', [second]), at.one(at.number('epsilon', 0))])
  // The correction of the start holds from the first update on.
  const correction = (base: number): Value =>
    at.call('Sub', [at.one(1), at.call('Pow', [at.one(base), updates(at)])])
  const corrected = at.call('Mul', [
    rate,
    at.call('Div', [at.call('Sqrt', [correction(beta)]), correction(alpha)]),
  ])
  const started = at.call('Less', [at.one(0, 'i64'), at.cast(at.input(1), 'i64')])
  const adjusted = at.call('Where', [started, corrected, rate])
  const moved = descend(at, x, adjusted, at.call('Div', [first, size]))
  return [times(at, moved, 1 - at.number('norm_coefficient_post', 0)), first, second]
})

/** Lowerings of optimizers. */
export const optimizers: LowerTable = {
  'ai.onnx.preview.training': { Momentum: momentum, Adagrad: adagrad, Adam: adam },
  [sparkDomain]: { AdamW: adamw },
}
