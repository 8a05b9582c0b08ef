// recurrent.ts: shapes of recurrent layers.
import { stringOf } from '../attributes.js'
import type { Dimension } from '../graph.js'
import { type Rule, showShape, tensorOrUnknown } from './call.js'
import { expectShape } from './operands.js'
import type { Check, Choices, OperatorTable } from './row.js'

/** Y and the last states of a recurrent layer; with `layout` 1 the batch comes first. */
const recurrent: Rule = call => {
  const x = call.shape(0)
  const dtype = call.dtype(0)
  const directions = stringOf(call.node, 'direction', 'forward') === 'bidirectional' ? 2 : 1
  const hidden: Dimension = call.int('hidden_size', undefined) ?? call.shape(2)?.[2] ?? null
  const batchFirst = call.int('layout', 0) === 1
  const [length, batch] = batchFirst ? [x?.[1] ?? null, x?.[0] ?? null] : [x?.[0] ?? null, x?.[1] ?? null]
  const state = batchFirst ? [batch, directions, hidden] : [directions, batch, hidden]
  const output = batchFirst ? [batch, length, directions, hidden] : [length, directions, batch, hidden]
  return [output, state, state].map(shape => tensorOrUnknown(dtype, shape))
}

/** x, W, R, bias, lengths, and further operands by their places, of a layer with so many functions. */
const recurrentOperands =
  (functions: number, states: readonly number[]): Check =>
  call => {
    const x = call.shape(0)
    if (x && x.length !== 3) throw call.fail(`x is ${showShape(x)}; it must have 3 dimensions`)
    const hidden: Dimension = call.int('hidden_size', undefined) ?? call.shape(2)?.[2] ?? null
    const directions = call.text('direction', 'forward') === 'bidirectional' ? 2 : 1
    const rows = typeof hidden === 'number' ? functions * hidden : null
    const batch = x?.[call.int('layout', 0) === 1 ? 0 : 1] ?? null
    expectShape(call, 1, 'W', [directions, rows, x?.[2] ?? null])
    expectShape(call, 2, 'R', [directions, rows, hidden])
    expectShape(call, 3, 'B', [directions, rows === null ? null : 2 * rows])
    expectShape(call, 4, 'sequence_lens', [batch])
    const state = call.int('layout', 0) === 1 ? [batch, directions, hidden] : [directions, batch, hidden]
    for (const i of states) expectShape(call, i, i === 5 ? 'initial_h' : 'initial_c', state)
    if (functions === 4)
      expectShape(call, 7, 'P', [directions, typeof hidden === 'number' ? 3 * hidden : null])
  }

/** Ways to go through a sequence. */
const directions: Choices = { direction: ['forward', 'reverse', 'bidirectional'] }

/** Rows of recurrent layers. */
export const recurrences: OperatorTable = {
  '': {
    RNN: { shape: recurrent, check: recurrentOperands(1, [5]), integers: [4], choices: directions },
    GRU: { shape: recurrent, check: recurrentOperands(3, [5]), integers: [4], choices: directions },
    LSTM: { shape: recurrent, check: recurrentOperands(4, [5, 6]), integers: [4], choices: directions },
  },
}
