// recurrent.ts: recurrent layers: a matrix product for all steps, then a kernel that goes through them.
import { floatsOf, ints, stringsOf } from '../../../graph/attributes.js'
import type { FunctionArgs } from '../../layer-kernel-args.js'
import type { UnaryFn } from '../../tensor-kernel-args.js'
import type { Lowering, Value } from '../lowering.js'
import type { LowerTable } from './table.js'

type Cell = 'rnn' | 'gru' | 'lstm'

const gateCounts: Readonly<Record<Cell, number>> = { rnn: 1, gru: 3, lstm: 4 }
const defaults: Readonly<Record<Cell, readonly string[]>> = {
  rnn: ['Tanh'],
  gru: ['Sigmoid', 'Tanh'],
  lstm: ['Sigmoid', 'Tanh', 'Tanh'],
}

/** Functions of ONNX by lower-case name, with what α and β are when the node does not say. */
const functions: Readonly<Record<string, readonly [UnaryFn, number, number]>> = {
  relu: ['relu', 0, 0],
  tanh: ['tanh', 0, 0],
  sigmoid: ['sigmoid', 0, 0],
  leakyrelu: ['leaky_relu', 0.01, 0],
  thresholdedrelu: ['thresholded_relu', 1, 0],
  hardsigmoid: ['hard_sigmoid', 0.2, 0.5],
  elu: ['elu', 1, 0],
  softsign: ['softsign', 0, 0],
  softplus: ['softplus', 0, 0],
}

/** The functions of one direction. Those that take parameters consume them in order. */
function functionsOf(at: Lowering, cell: Cell, direction: number): FunctionArgs[] {
  const count = defaults[cell].length
  const names = stringsOf(at.node, 'activations') ?? [...defaults[cell], ...defaults[cell]]
  const [alphas, betas] = ['activation_alpha', 'activation_beta'].map(name => floatsOf(at.node, name) ?? [])
  return names.slice(direction * count, (direction + 1) * count).map((name, i) => {
    const known = functions[name.toLowerCase()]
    if (!known) throw at.unsupported(`the activation '${name}' is not supported`)
    const [fn, alpha, beta] = known
    const place = direction * count + i
    return { fn, alpha: alphas![place] ?? alpha, beta: betas![place] ?? beta }
  })
}

/** Part `i` of the first axis, without it. */
function part(at: Lowering, value: Value, i: number): Value {
  const lone = at.call('Slice', [value, at.ints([i]), at.ints([i + 1]), at.ints([0])])
  return at.reshaped(lone, value.shape.slice(1))
}

/** Columns [from, to) of a row. */
const columns = (at: Lowering, row: Value, from: number, to: number): Value =>
  at.call('Slice', [row, at.ints([from]), at.ints([to]), at.ints([0])])

/** Inputs: X, W, R, B, lengths, initial h, initial c, peepholes. Outputs: Y, last h, last c. */
const recurrent =
  (cell: Cell) =>
  (at: Lowering): void => {
    const batchFirst = at.integer('layout', 0) !== 0
    const timeFirst = (value: Value): Value => at.call('Transpose', [value], { perm: ints([1, 0, 2]) })
    const x = batchFirst ? timeFirst(at.input(0)) : at.input(0)
    const [steps = 0, batch = 0, size = 0] = x.shape
    const [directions = 1, width = 0, hidden = 0] = at.shape(2)
    const gates = gateCounts[cell]
    const mode = at.text('direction', 'forward')
    const state = (i: number, direction: number): Value | undefined =>
      at.has(i) ? part(at, batchFirst ? timeFirst(at.input(i)) : at.input(i), direction) : undefined
    const row = directions * batch * hidden
    const y = at.scratch(steps * row)
    const lasts = [at.scratch(row), at.scratch(row)]
    const lengths = at.has(4) ? at.cast(at.input(4), 'i32').buffer.read() : undefined
    for (let d = 0; d < directions; d++) {
      const recurrence = at.call('Transpose', [part(at, at.input(2), d)], { perm: ints([1, 0]) })
      const bias = at.has(3) ? part(at, at.input(3), d) : undefined
      const inputs = at.scratch(steps * batch * width)
      at.step('linear', {
        weight: { dtype: 'f32', rows: width, cols: size, data: part(at, at.input(1), d).buffer.read() },
        ...{ tokens: steps * batch, x: x.buffer.read(), y: inputs.write() },
        bias: bias && columns(at, bias, 0, width).buffer.read(),
      })
      const [start, length] = [d * batch * hidden, batch * hidden]
      at.step('recurrent', {
        ...{
          cell,
          steps,
          batch,
          hidden,
          functions: functionsOf(at, cell, d),
          clip: at.number('clip', 0) || undefined,
        },
        reverse: mode === 'reverse' || d === 1,
        linearBeforeReset: at.integer('linear_before_reset', 0) !== 0,
        coupleGates: at.integer('input_forget', 0) !== 0,
        ...{ gates: inputs.read(), recurrence: recurrence.buffer.read() },
        bias: bias && columns(at, bias, width, 2 * width).buffer.read(),
        peepholes: at.has(7) ? part(at, at.input(7), d).buffer.read() : undefined,
        ...{ initialH: state(5, d)?.buffer.read(), initialC: state(6, d)?.buffer.read(), lengths },
        ...{ yStep: row, y: y.write(start, Math.max((steps - 1) * row + length, 0)) },
        ...{
          lastH: lasts[0]!.write(start, length),
          scratch: at.scratch(batch * (gates + 1) * hidden).write(),
        },
        lastC: cell === 'lstm' ? lasts[1]!.write(start, length) : undefined,
      })
    }
    const sequence: Value = { dtype: 'f32', shape: [steps, directions, batch, hidden], buffer: y }
    at.give(batchFirst ? at.call('Transpose', [sequence], { perm: ints([2, 0, 1, 3]) }) : sequence)
    for (const [i, buffer] of lasts.entries()) {
      if (!at.wants(i + 1)) continue
      const last: Value = { dtype: 'f32', shape: [directions, batch, hidden], buffer }
      at.give(batchFirst ? timeFirst(last) : last, i + 1)
    }
  }

/** Lowerings of recurrent layers. */
export const recurrences: LowerTable = {
  '': {
    RNN: at => at.inF32(recurrent('rnn')),
    GRU: at => at.inF32(recurrent('gru')),
    LSTM: at => at.inF32(recurrent('lstm')),
  },
}
