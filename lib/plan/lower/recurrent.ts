// recurrent.ts: recurrent layers: a matrix product for all steps, then a kernel that goes through them.
import { ints } from '../../graph/attributes.js'
import { recurrentFunctions } from '../../graph/recurrent.js'
import type { UnaryFn } from '../../kernels/tensor-kernel-args.js'
import { packedSizes } from '../../weights/packed.js'
import type { Lowering, Value } from '../lowering.js'
import type { Buffer, Operand } from '../program.js'
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
function recurrenceOf(at: Lowering): Operand {
  if (!at.packs) return at.call('Transpose', [at.input(2)], { perm: ints([0, 2, 1]) }).buffer.read()
  const [directions = 1, rows = 0, cols = 0] = at.shape(2)
  const size = packedSizes({ dtype: 'f32', rows, cols }).data
  const panels = at.scratch(directions * size)
  for (let d = 0; d < directions; d++) {
    const data = at.input(2).buffer.read(d * rows * cols, rows * cols)
    at.step('packWeight', {
      weight: { dtype: 'f32', rows, cols, data },
      data: panels.write(d * size, size),
    })
  }
  return panels.read()
}

/** Inputs: X, W, R, B, lengths, initial h, initial c, peepholes. Outputs: Y, last h, last c. */
const recurrent =
  (cell: 'rnn' | 'gru' | 'lstm') =>
  (at: Lowering): void => {
    const batchFirst = at.integer('layout', 0) !== 0
    const timeFirst = (value: Value): Value =>
      batchFirst ? at.call('Transpose', [value], { perm: ints([1, 0, 2]) }) : value
    const x = timeFirst(at.input(0))
    const [steps = 0, batch = 0, cols = 0] = x.shape
    const [directions = 1, width = 0, hidden = 0] = at.shape(2)
    const state = (i: number): Operand | undefined =>
      at.has(i) ? timeFirst(at.input(i)).buffer.read() : undefined
    /** Biases of the products with x, or with h. */
    const biases = (first: number): Operand | undefined =>
      at.has(3)
        ? at
            .call('Slice', [at.input(3), at.ints([first]), at.ints([first + width]), at.ints([1])])
            .buffer.read()
        : undefined
    const gates = at.scratch(steps * batch * directions * width)
    at.step('linear', {
      weight: { dtype: 'f32', rows: directions * width, cols, data: at.read(1) },
      ...{ tokens: steps * batch, x: x.buffer.read(), bias: biases(0), y: gates.write() },
    })
    const states = directions * batch * hidden
    const [y, lastH, lastC] = [at.scratch(steps * states), at.scratch(states), at.scratch(states)]
    at.step('recurrent', {
      ...{ cell, directions, steps, batch, hidden },
      functions: recurrentFunctions(at.node)
        .flat()
        .map(({ op, ...parameters }) => ({ fn: functions[op]!, ...parameters })),
      clip: at.number('clip', 0) || undefined,
      reverse: at.text('direction', 'forward') === 'reverse',
      linearBeforeReset: at.integer('linear_before_reset', 0) !== 0,
      coupleGates: at.integer('input_forget', 0) !== 0,
      ...{ gates: gates.read(), packed: at.packs, recurrence: recurrenceOf(at), bias: biases(width) },
      peepholes: at.has(7) ? at.read(7) : undefined,
      ...{ initialH: state(5), initialC: state(6) },
      lengths: at.has(4) ? at.cast(at.input(4), 'i32').buffer.read() : undefined,
      ...{
        y: at.wants(0) ? y.write() : undefined,
        lastH: lastH.write(),
        lastC: cell === 'lstm' ? lastC.write() : undefined,
      },
      scratch: at.scratch(directions * batch * (width + hidden)).write(),
    })
    const give = (i: number, shape: readonly number[], buffer: Buffer, perm: readonly number[]): void => {
      if (!at.wants(i)) return
      const value: Value = { dtype: 'f32', shape, buffer }
      at.give(batchFirst ? at.call('Transpose', [value], { perm: ints(perm) }) : value, i)
    }
    give(0, [steps, directions, batch, hidden], y, [2, 0, 1, 3])
    give(1, [directions, batch, hidden], lastH, [1, 0, 2])
    give(2, [directions, batch, hidden], lastC, [1, 0, 2])
  }

/** Lowerings of recurrent layers. */
export const recurrences: LowerTable = {
  '': {
    RNN: at => at.inF32(recurrent('rnn')),
    GRU: at => at.inF32(recurrent('gru')),
    LSTM: at => at.inF32(recurrent('lstm')),
  },
}
