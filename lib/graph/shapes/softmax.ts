// softmax.ts: softmax, its logarithm, and its one-hot limit.
import { alongAxis } from './operands.js'
import { type OperatorTable, sameAsFirst } from './row.js'

/** Rows of softmax and its kin. */
export const softmaxes: OperatorTable = {
  '': {
    Softmax: { shape: sameAsFirst, check: alongAxis },
    LogSoftmax: { shape: sameAsFirst, check: alongAxis },
    Hardmax: { shape: sameAsFirst, check: alongAxis },
  },
}
