// recurrent.ts: recurrent layers: a matrix product for all steps, then a kernel that goes through them.
import { fixSizes, multiply, type Size } from '../../core/size.js'
import { ints } from '../../graph/attributes.js'
import { recurrentFunctions } from '../../graph/recurrent.js'
import type { UnaryFn } from '../../kernels/strided-args.js'
import { panelSizes } from '../../weights/panels.js'
import type { Lowering } from '../lowering.js'
import type { Buffer, Operand } from '../program.js'
import type { Value } from '../value.js'
import type { LowerTable } from './table.js'

const functions: Readonly<Record<string, UnaryFn>> = {
  Relu: 'relu',
  Tanh: 'tanh',
  Sigmoid: 'sigmoid',
  LeakyRelu: 'leaky_relu',
  ThresholdedRelu: 'thresholded_relu',
  HardSigmoid: 'hard_sigmoid',
  Elu: 'elu',
  Softsign: 'softsign',
  Softplus: 'softplus',
}

/** R in panels where kernels read those, otherwise with the units of the state first. */
function recurrenceOf(ctx: Lowering): Operand {
  if (!ctx.packs) return ctx.call('Transpose', [ctx.input(2)], { perm: ints([0, 2, 1]) }).buffer.read()
  const [directions = 1, rows = 0, cols = 0] = fixSizes(ctx.shape(2))
  const size = panelSizes({ format: 'f32', rows, cols }).data
  const panels = ctx.scratch(directions * size)
  for (let d = 0; d < directions; d++) {
    const data = ctx.input(2).buffer.read(d * rows * cols, rows * cols)
    ctx.step('packWeight', {
      weight: { format: 'f32', rows, cols, data },
      data: panels.write(d * size, size),
    })
  }
  return panels.read()
}

/** Inputs: X, W, R, B, lengths, initial h, initial c, peepholes. Outputs: Y, last h, last c. */
const recurrent =
  (cell: 'rnn' | 'gru' | 'lstm') =>
  (ctx: Lowering): void => {
    const batchFirst = ctx.integer('layout') !== 0
    const timeFirst = (value: Value): Value =>
      batchFirst ? ctx.call('Transpose', [value], { perm: ints([1, 0, 2]) }) : value
    const x = timeFirst(ctx.input(0))
    const [steps = 0, batch = 0, cols = 0] = x.shape
    const [directions = 1, width = 0, hidden = 0] = fixSizes(ctx.shape(2))
    const state = (i: number): Operand | undefined =>
      ctx.has(i) ? timeFirst(ctx.input(i)).buffer.read() : undefined
    /** Biases of the products with x, or with h. */
    const biases = (first: number): Operand | undefined =>
      ctx.has(3)
        ? ctx
            .call('Slice', [ctx.input(3), ctx.ints([first]), ctx.ints([first + width]), ctx.ints([1])])
            .buffer.read()
        : undefined
    const gates = ctx.scratch(multiply(steps, batch, directions * width))
    ctx.step('linear', {
      weight: { format: 'f32', rows: directions * width, cols, data: ctx.read(1) },
      tokens: multiply(steps, batch),
      x: x.buffer.read(),
      bias: biases(0),
      y: gates.write(),
    })
    const states = multiply(directions * hidden, batch)
    const [y, lastH, lastC] = [ctx.scratch(multiply(steps, states)), ctx.scratch(states), ctx.scratch(states)]
    ctx.step('recurrent', {
      cell,
      directions,
      steps,
      batch,
      hidden,
      functions: recurrentFunctions(ctx.node)
        .flat()
        .map(({ op, ...parameters }) => ({ fn: functions[op]!, ...parameters })),
      clip: ctx.number('clip') || undefined,
      reverse: ctx.text('direction') === 'reverse',
      linearBeforeReset: ctx.integer('linear_before_reset') !== 0,
      coupleGates: ctx.integer('input_forget') !== 0,
      gates: gates.read(),
      packed: ctx.packs,
      recurrence: recurrenceOf(ctx),
      bias: biases(width),
      peepholes: ctx.has(7) ? ctx.read(7) : undefined,
      initialH: state(5),
      initialC: state(6),
      lengths: ctx.has(4) ? ctx.cast(ctx.input(4), 'i32').buffer.read() : undefined,
      y: ctx.wants(0) ? y.write() : undefined,
      lastH: lastH.write(),
      lastC: cell === 'lstm' ? lastC.write() : undefined,
      scratch: ctx.scratch(multiply(directions * (width + hidden), batch)).write(),
    })
    const give = (i: number, shape: readonly Size[], buffer: Buffer, perm: readonly number[]): void => {
      if (!ctx.wants(i)) return
      const value: Value = { dtype: 'f32', shape, buffer }
      ctx.give(batchFirst ? ctx.call('Transpose', [value], { perm: ints(perm) }) : value, i)
    }
    give(0, [steps, directions, batch, hidden], y, [2, 0, 1, 3])
    give(1, [directions, batch, hidden], lastH, [1, 0, 2])
    give(2, [directions, batch, hidden], lastC, [1, 0, 2])
  }

/** Lowerings of recurrent layers. */
export const recurrences: LowerTable = {
  '': {
    RNN: ctx => ctx.inF32(recurrent('rnn')),
    GRU: ctx => ctx.inF32(recurrent('gru')),
    LSTM: ctx => ctx.inF32(recurrent('lstm')),
  },
}
