// random-feeds.ts: random inputs for `dgx-spark run`.
import { type ElementType, isWideFloat } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import type { Model } from '../model/model.js'
import { inputShapes, type Sizes } from './shapes.js'

/** Floats in [-1, 1), integers 0. */
export function randomFeeds(model: Model, sizes: Sizes): Record<string, Tensor<ElementType>> {
  const shapes = inputShapes(model.graph, sizes)
  return Object.fromEntries(
    model.inputs.map(({ name, dtype }) => {
      const shape = shapes[name]
      if (!shape || !dtype)
        throw new SparkError('ERR_UNSUPPORTED', `input '${name}' is no tensor of a known type`)
      const values = Tensor.zeros(shape)
      if (isWideFloat(dtype)) values.data.set(values.data.map(() => 2 * Math.random() - 1))
      return [name, values.to(dtype)]
    }),
  )
}
