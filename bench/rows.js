// rows.js: the rows of `npm run bench`. Each is checked against a plain reference before it is timed.
import { attention } from './rows/attention.js'
import { casts } from './rows/casts.js'
import { conv } from './rows/conv.js'
import { dora } from './rows/dora.js'
import { linear } from './rows/linear.js'
import { norm } from './rows/norm.js'
import { products } from './rows/products.js'
import { trainingStep } from './rows/training-step.js'

/** @import { Kernels } from 'dgx-spark' */
/** @import { Case } from './harness.js' */
/** @import { Peer } from './peer.js' */

/**
 * All rows, made lazily: a row's data exists only while it runs.
 * @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>}
 */
export async function* rows(kernels, peer) {
  yield* casts(kernels)
  yield* linear(kernels, peer)
  yield* conv(kernels, peer)
  yield* attention(kernels, peer)
  yield* norm(kernels, peer)
  yield* products(kernels)
  yield* dora(kernels)
  yield* trainingStep(kernels)
}
