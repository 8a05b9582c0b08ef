// zoo.js: generated nets with the shapes of well-known ones, which nothing here was tuned for, beside ONNX Runtime.
import { Tensor } from 'dgx-spark'
import { feedsOf } from '../feeds.js'
import { openNet, zoo } from '../nets.js'
import { modelRow } from './models.js'

/** @import { ElementType } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Package } from '../engines.js' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */
/** @import { Wanted } from './models.js' */

const tensors = /** @type {Package} */ (
  /** @type {unknown} */ ({
    tensor: (/** @type {Float32Array} */ data, /** @type {number[]} */ shape) => Tensor.from(data, { shape }),
  })
)

/** @param {Kernels} kernels @param {Peer | null} peer @param {Wanted} wanted @returns {AsyncGenerator<Case>} */
export async function* zooRows(kernels, peer, wanted) {
  if (kernels.backend === 'js') return
  for (const { net, size } of zoo) {
    const row = { name: 'zoo', shape: `${net} ${Object.values(size).join('x')}`, dtype: 'f32' }
    if (!wanted(row)) continue
    const opened = await openNet(net)
    const feeds = /** @type {Record<string, Tensor<ElementType>>} */ (
      /** @type {unknown} */ (feedsOf(tensors, opened.inputs, size))
    )
    yield* modelRow(kernels, peer, row, opened, () => feeds)
    await opened.dispose()
  }
}
