// random-feeds.ts: random inputs of a model that a seed determines.
import { type ElementType, isWideFloat } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { randomGenerator } from '../core/random.js'
import { Tensor } from '../memory/tensor.js'
import type { ModelValue } from './model-value.js'

/**
 * `given`, and for each other input random numbers: floats in [-1, 1), integers 0. The seed of an input is `seed` and its index.
 * @param shapes - of inputs that are not given, by their names
 * @throws SparkError ERR_UNSUPPORTED for an input without a type or shape
 */
export function randomFeeds<T>(
  inputs: readonly ModelValue[],
  shapes: Readonly<Record<string, readonly number[]>>,
  given: Readonly<Record<string, T>>,
  seed: number,
): Record<string, T | Tensor<ElementType>> {
  const feeds: Record<string, T | Tensor<ElementType>> = { ...given }
  for (const [i, { name, dtype }] of inputs.entries()) {
    if (Object.hasOwn(given, name)) continue
    const shape = Object.hasOwn(shapes, name) ? shapes[name] : undefined
    if (!shape || !dtype)
      throw new SparkError('ERR_UNSUPPORTED', `input '${name}' is no tensor of a known type and shape`)
    const values = Tensor.zeros(shape)
    const random = randomGenerator(seed + i)
    if (isWideFloat(dtype)) for (let at = 0; at < values.size; at++) values.data[at] = 2 * random() - 1
    feeds[name] = values.to(dtype)
  }
  return feeds
}
