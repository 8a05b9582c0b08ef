// split.ts: validation data taken from a dataset.
import { argumentError, expectInteger, expectNumber } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { randomGenerator } from '../core/random.js'
import type { Batch, Dataset } from './dataset.js'

/**
 * Splits a dataset at random. The same seed gives the same parts.
 *
 * @example
 * const [training, validation] = splitDataset(data, 0.1)
 *
 * @param fraction - share of the samples in the second part, between 0 and 1; both parts have at least one
 * @returns training data and validation data, which share the samples of `data`
 * @throws SparkError ERR_ARGUMENT for fewer than two samples, or a fraction out of range
 */
export function splitDataset(
  data: Dataset,
  fraction: number,
  { seed = 0 }: { readonly seed?: number } = {},
): [training: Dataset, validation: Dataset] {
  if (typeof data?.read !== 'function') throw argumentError('data', 'a dataset with size and read', data)
  expectNumber('fraction', fraction, Number.MIN_VALUE, 1 - Number.EPSILON)
  expectInteger('options.seed', seed, 0, 2 ** 32 - 1)
  const { size } = data
  if (size < 2) throw new SparkError('ERR_ARGUMENT', `data has ${size} samples: two parts need at least 2`)
  const count = Math.min(size - 1, Math.max(1, Math.round(size * fraction)))
  const random = randomGenerator(seed)
  const chosen = new Set<number>()
  while (chosen.size < Math.min(count, size - count)) chosen.add(Math.floor(random() * size))
  const all = Array.from({ length: size }, (_, i) => i)
  const isValidation = (i: number): boolean => chosen.has(i) === count <= size - count
  return [
    new Part(
      data,
      all.filter(i => !isValidation(i)),
    ),
    new Part(data, all.filter(isValidation)),
  ]
}

/** Some samples of a dataset. */
class Part implements Dataset {
  readonly #data: Dataset
  readonly #samples: readonly number[]

  constructor(data: Dataset, samples: readonly number[]) {
    this.#data = data
    this.#samples = samples
  }

  get size(): number {
    return this.#samples.length
  }

  read(samples: readonly number[]): Batch | Promise<Batch> {
    for (const sample of samples) expectInteger('sample', sample, 0, this.size - 1)
    return this.#data.read(samples.map(sample => this.#samples[sample]!))
  }
}
