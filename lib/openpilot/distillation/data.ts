// data.ts: rows of a preparation as a data set.
import { rm } from 'node:fs/promises'
import { expectInteger, expectNumber } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Batch, BatchTensor, Dataset } from '../../training/dataset.js'
import type { DistillationStages } from './options.js'
import type { Field, RowArray, RowCache } from './row-cache.js'

/** Frames of drives: the inputs of the student, and `target`, the raw outputs of the teacher. Made by `prepareDistillation`. */
export class DistillationData implements Dataset {
  /** Number of frames. */
  readonly size: number
  /** Seconds that the stages of the preparation took. */
  readonly stages: Readonly<DistillationStages>
  /** Frames that models were shown; fewer than rows where these were kept from before. */
  readonly frames: number
  readonly #caches: readonly RowCache[]
  readonly #fields: readonly Field[]
  readonly #temporary: string | undefined

  /** @internal */
  constructor(
    caches: readonly RowCache[],
    fields: readonly Field[],
    { frames, ...stages }: DistillationStages & { readonly frames: number },
    temporary: string | undefined,
  ) {
    this.size = caches.reduce((sum, { rows }) => sum + rows, 0)
    this.stages = stages
    this.frames = frames
    this.#caches = caches
    this.#fields = fields
    this.#temporary = temporary
  }

  /** Reads frames. @throws SparkError ERR_ARGUMENT, ERR_IO */
  async read(samples: readonly number[]): Promise<Batch> {
    for (const sample of samples) expectInteger('sample', sample, 0, this.size - 1)
    const batch: Record<string, BatchTensor> = {}
    for (const { name, shape } of this.#fields)
      batch[name] = { shape: [samples.length, ...shape], data: await this.#rows(name, samples) }
    return batch
  }

  /**
   * The frames for training, and those for validation: the last ones of each segment, since frames that follow each other are alike.
   * @param share - of the frames that are for validation
   * @returns training data and validation data
   * @throws SparkError ERR_ARGUMENT when a part would have none
   */
  split(share: number): [training: Dataset, validation: Dataset] {
    expectNumber('share', share, 0, 1)
    const training: number[] = []
    const validation: number[] = []
    let first = 0
    for (const { rows } of this.#caches) {
      const end = first + Math.round(rows * (1 - share))
      for (let i = first; i < first + rows; i++) (i < end ? training : validation).push(i)
      first += rows
    }
    if (training.length === 0 || validation.length === 0)
      throw new SparkError(
        'ERR_ARGUMENT',
        `share must leave frames on both sides, got ${share} of ${this.size}`,
      )
    const part = (chosen: readonly number[]): Dataset => ({
      size: chosen.length,
      read: samples => this.read(samples.map(sample => chosen[sample]!)),
    })
    return [part(training), part(validation)]
  }

  /** Closes the files, and removes them where no folder was given. */
  async close(): Promise<void> {
    for (const cache of this.#caches) await cache.close()
    if (this.#temporary !== undefined) await rm(this.#temporary, { recursive: true, force: true })
  }

  async #rows(name: string, samples: readonly number[]): Promise<RowArray> {
    let all: RowArray | undefined
    let first = 0
    for (const cache of this.#caches) {
      const own = samples.flatMap((sample, at) =>
        sample >= first && sample < first + cache.rows ? [[at, sample - first] as const] : [],
      )
      first += cache.rows
      if (own.length === 0) continue
      const rows = await cache.read(
        name,
        own.map(([, row]) => row),
      )
      const size = rows.length / own.length
      all ??=
        rows instanceof Uint8Array
          ? new Uint8Array(samples.length * size)
          : new Float32Array(samples.length * size)
      for (const [i, [at]] of own.entries()) all.set(rows.subarray(i * size, (i + 1) * size), at * size)
    }
    return all ?? new Float32Array(0)
  }
}
