// recurrent.ts: shapes of recurrent layers.
import { givenInt, stringOf } from '../attributes.js'
import type { SymbolicDimension } from '../graph.js'
import { type Rule, showShape, tensorOrUnknown } from './context.js'
import { expectShape } from './operands.js'
import type { Check, Choices, OperatorTable } from './row.js'

/** Y and the last states of a recurrent layer; with `layout` 1 the batch comes first. */
const recurrent: Rule = ctx => {
  const x = ctx.shape(0)
  const dtype = ctx.dtype(0)
  const directions = stringOf(ctx.node, 'direction') === 'bidirectional' ? 2 : 1
  const hidden: SymbolicDimension = givenInt(ctx.node, 'hidden_size') ?? ctx.shape(2)?.[2] ?? null
  const batchFirst = ctx.int('layout') === 1
  const [length, batch] = batchFirst ? [x?.[1] ?? null, x?.[0] ?? null] : [x?.[0] ?? null, x?.[1] ?? null]
  const state = batchFirst ? [batch, directions, hidden] : [directions, batch, hidden]
  const output = batchFirst ? [batch, length, directions, hidden] : [length, directions, batch, hidden]
  return [output, state, state].map(shape => tensorOrUnknown(dtype, shape))
}

/** x, W, R, bias, lengths, and further operands by their indices, of a layer with so many functions. */
const recurrentOperands =
  (functions: number, states: readonly number[]): Check =>
  ctx => {
    const x = ctx.shape(0)
    if (x && x.length !== 3) throw ctx.fail(`x is ${showShape(x)}; it must have 3 dimensions`)
    const hidden: SymbolicDimension = givenInt(ctx.node, 'hidden_size') ?? ctx.shape(2)?.[2] ?? null
    const directions = ctx.text('direction') === 'bidirectional' ? 2 : 1
    const rows = typeof hidden === 'number' ? functions * hidden : null
    const batch = x?.[ctx.int('layout') === 1 ? 0 : 1] ?? null
    expectShape(ctx, 1, 'W', [directions, rows, x?.[2] ?? null])
    expectShape(ctx, 2, 'R', [directions, rows, hidden])
    expectShape(ctx, 3, 'B', [directions, rows === null ? null : 2 * rows])
    expectShape(ctx, 4, 'sequence_lens', [batch])
    const state = ctx.int('layout') === 1 ? [batch, directions, hidden] : [directions, batch, hidden]
    for (const i of states) expectShape(ctx, i, i === 5 ? 'initial_h' : 'initial_c', state)
    if (functions === 4)
      expectShape(ctx, 7, 'P', [directions, typeof hidden === 'number' ? 3 * hidden : null])
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
