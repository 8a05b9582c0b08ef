// optimizer.ts: AdamW, and the optimizers of the ONNX training domain as compositions.
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import type { Value } from '../value.js'
import type { LowerTable } from './table.js'

/** Learning rate, step (both one f64), parameter, gradient, first and second moment → the last of these but the gradient */
function adamw(ctx: Lowering): void {
  ctx.step('adamw', {
    lr: ctx.read(0),
    step: ctx.read(1),
    beta1: ctx.number('beta1'),
    beta2: ctx.number('beta2'),
    eps: ctx.number('epsilon'),
    weightDecay: ctx.number('weight_decay'),
    tensors: [
      {
        count: ctx.read(2).count,
        grad: ctx.read(3),
        param: ctx.inPlace(2, 0),
        m: ctx.inPlace(4, 1),
        v: ctx.inPlace(5, 2),
      },
    ],
  })
}

/** Inputs: learning rate, step, then `states + 2` groups: parameters, gradients and states. Outputs: all but gradients. */
const optimizer =
  (
    states: number,
    update: (ctx: Lowering, rate: Value, x: Value, gradient: Value, state: Value[]) => Value[],
  ) =>
  (ctx: Lowering): void => {
    const count = (ctx.node.inputs.length - 2) / (states + 2)
    for (let i = 0; i < count; i++) {
      const [x, g, ...state] = Array.from({ length: states + 2 }, (_, n) => ctx.input(2 + n * count + i))
      // The norm of the parameters counts as a part of the loss.
      const decay = ctx.call('Mul', [x, ctx.one(ctx.number('norm_coefficient'))])
      const results = update(ctx, ctx.input(0), x!, ctx.call('Add', [g, decay]), state)
      for (const [o, value] of results.entries()) ctx.give(value, o * count + i)
    }
  }

const times = (ctx: Lowering, value: Value, factor: number): Value =>
  ctx.call('Mul', [value, ctx.one(factor)])

const square = (ctx: Lowering, value: Value): Value => ctx.call('Mul', [value, value])

/** x − rate · step */
function descend(ctx: Lowering, x: Value, rate: Value, step: Value): Value {
  return ctx.call('Sub', [x, ctx.call('Mul', [rate, step])])
}

/** The number of updates so far, as f32. */
const updates = (ctx: Lowering): Value => ctx.cast(ctx.input(1), 'f32')

const momentum = optimizer(1, (ctx, rate, x, gradient, [velocity]) => {
  const [alpha, beta] = [ctx.number('alpha'), ctx.number('beta')]
  const first = ctx.call('Equal', [ctx.cast(ctx.input(1), 'i64'), ctx.one(0, 'i64')])
  const adjusted = ctx.call('Where', [first, ctx.one(1), ctx.one(beta)])
  const next = ctx.call('Add', [times(ctx, velocity!, alpha), ctx.call('Mul', [gradient, adjusted])])
  const nesterov = ctx.text('mode') === 'nesterov'
  const step = nesterov ? ctx.call('Add', [gradient, times(ctx, next, alpha)]) : next
  return [descend(ctx, x, rate, step), next]
})

const adagrad = optimizer(1, (ctx, rate, x, gradient, [squares]) => {
  const decayed = ctx.call('Add', [times(ctx, updates(ctx), ctx.number('decay_factor')), ctx.one(1)])
  const next = ctx.call('Add', [squares!, square(ctx, gradient)])
  const size = ctx.call('Add', [ctx.call('Sqrt', [next]), ctx.one(ctx.number('epsilon'))])
  return [descend(ctx, x, ctx.call('Div', [rate, decayed]), ctx.call('Div', [gradient, size])), next]
})

const adam = optimizer(2, (ctx, rate, x, gradient, [mean, squares]) => {
  const [alpha, beta] = [ctx.number('alpha'), ctx.number('beta')]
  const blend = (old: Value, fresh: Value, keep: number): Value =>
    ctx.call('Add', [times(ctx, old, keep), times(ctx, fresh, 1 - keep)])
  const [first, second] = [blend(mean!, gradient, alpha), blend(squares!, square(ctx, gradient), beta)]
  const size = ctx.call('Add', [ctx.call('Sqrt', [second]), ctx.one(ctx.number('epsilon'))])
  // The correction of the start holds from the first update on.
  const correction = (base: number): Value =>
    ctx.call('Sub', [ctx.one(1), ctx.call('Pow', [ctx.one(base), updates(ctx)])])
  const corrected = ctx.call('Mul', [
    rate,
    ctx.call('Div', [ctx.call('Sqrt', [correction(beta)]), correction(alpha)]),
  ])
  const started = ctx.call('Less', [ctx.one(0, 'i64'), ctx.cast(ctx.input(1), 'i64')])
  const adjusted = ctx.call('Where', [started, corrected, rate])
  const moved = descend(ctx, x, adjusted, ctx.call('Div', [first, size]))
  return [times(ctx, moved, 1 - ctx.number('norm_coefficient_post')), first, second]
})

/** Lowerings of optimizers. */
export const optimizers: LowerTable = {
  'ai.onnx.preview.training': { Momentum: momentum, Adagrad: adagrad, Adam: adam },
  [sparkDomain]: { AdamW: adamw },
}
