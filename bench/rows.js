// rows.js: the rows of `npm run bench`. Each is checked against a plain reference before it is timed.
import { attention } from './rows/attention.js'
import { casts } from './rows/casts.js'
import { compile } from './rows/compile.js'
import { conv } from './rows/conv.js'
import { dora } from './rows/dora.js'
import { doraLayer } from './rows/dora-layer.js'
import { functions } from './rows/functions.js'
import { gemm } from './rows/gemm.js'
import { gemv } from './rows/gemv.js'
import { linear } from './rows/linear.js'
import { models } from './rows/models.js'
import { norm } from './rows/norm.js'
import { products } from './rows/products.js'
import { singleThread } from './rows/single-thread.js'
import { training } from './rows/training.js'
import { trainingStep } from './rows/training-step.js'

/** @import { Kernels } from 'dgx-spark' */
/** @import { Case } from './harness.js' */
/** @import { Peer } from './peer.js' */

/**
 * All rows, made lazily: a row's data exists only while it runs. Without `all` only those of files with targets.
 * @param {Kernels} kernels @param {Peer | null} peer @param {boolean} all @returns {AsyncGenerator<Case>}
 */
export async function* rows(kernels, peer, all) {
  yield* casts(kernels)
  yield* singleThread(kernels)
  if (all) yield* linear(kernels, peer)
  yield* gemm(kernels, peer)
  yield* gemv(kernels, peer)
  if (all) {
    yield* conv(kernels, peer)
    yield* attention(kernels, peer)
    yield* norm(kernels, peer)
    yield* functions(kernels, peer)
    yield* products(kernels)
    yield* models(kernels, peer)
    yield* compile(kernels)
  }
  if (all || kernels.backend === 'cuda') yield* dora(kernels)
  yield* doraLayer(kernels)
  if (all) yield* training(kernels)
  yield* trainingStep(kernels)
}
