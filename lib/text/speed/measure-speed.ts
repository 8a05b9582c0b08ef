// measure-speed.ts: how fast a language model is: prompts, steps of generation behind prompts of some length, several texts at once.
import { randomGenerator } from '../../core/random.js'
import type { TextModel } from '../text-model.js'
import type { GenerationOptions } from '../text-options.js'

/** What is measured. */
export interface SpeedOptions {
  /** Tokens of the prompts whose speed is measured. */
  readonly prompt: number
  /** Tokens that are generated. */
  readonly generate: number
  /** Tokens in front of those that are generated. */
  readonly depths: readonly number[]
  /** Texts at once. */
  readonly batches: readonly number[]
  /** How often; the median counts. */
  readonly runs: number
  readonly signal?: AbortSignal
}

/** A speed: tokens a second, of all texts together. */
export interface Speed {
  readonly kind: 'prefill' | 'decode'
  /** Tokens in front of those that are measured. */
  readonly depth: number
  /** Texts at once. */
  readonly batch: number
  /** Tokens a second: median, slowest and fastest run. */
  readonly median: number
  readonly slowest: number
  readonly fastest: number
}

/** Generates tokens behind a prompt and tells when each of them came, ms. */
export type GenerateTimed = (ids: Int32Array, count: number) => Promise<readonly number[]>

/** Generates with a model of ours. */
export const timedBy =
  (model: TextModel, signal?: AbortSignal): GenerateTimed =>
  async (ids, count) => {
    const times: number[] = []
    const options: GenerationOptions = { maxTokens: count, temperature: 0, ignoreEnd: true }
    for await (const _ of model.generate(ids, signal ? { ...options, signal } : options).tokens())
      times.push(performance.now())
    return times
  }

/**
 * Speeds of a model. Prompts are random and never the same, so that no cache has them.
 * @throws what `generate` throws
 */
export async function* measureSpeed(
  generate: GenerateTimed,
  vocabulary: number,
  { prompt, generate: count, depths, batches, runs }: SpeedOptions,
): AsyncGenerator<Speed, void, undefined> {
  const random = randomGenerator(1)
  const promptOf = (length: number): Int32Array =>
    Int32Array.from({ length }, () => Math.floor(random() * vocabulary))
  await generate(promptOf(8), 2)
  const repeated = async (run: () => Promise<number>): Promise<number[]> => {
    const speeds: number[] = []
    for (let i = 0; i < runs; i++) speeds.push(await run())
    return speeds.sort((a, b) => a - b)
  }
  const prefill = await repeated(async () => {
    const begin = performance.now()
    const [first] = await generate(promptOf(prompt), 1)
    return (1000 * prompt) / (first! - begin)
  })
  yield speedOf('prefill', 0, 1, prefill)
  for (const depth of depths)
    for (const batch of batches) {
      const speeds = await repeated(async () => {
        const prompts = Array.from({ length: batch }, () => promptOf(Math.max(1, depth)))
        const times = await Promise.all(prompts.map(ids => generate(ids, count)))
        // From when the last prompt was computed to when the first text was complete, all of them were generated.
        const begin = Math.max(...times.map(each => each[0]!))
        const end = Math.min(...times.map(each => each.at(-1)!))
        const tokens = times.flat().filter(time => time > begin && time <= end).length
        return (1000 * tokens) / (end - begin)
      })
      yield speedOf('decode', depth, batch, speeds)
    }
}

const speedOf = (kind: Speed['kind'], depth: number, batch: number, sorted: readonly number[]): Speed => ({
  ...{ kind, depth, batch },
  median: sorted[sorted.length >> 1]!,
  slowest: sorted[0]!,
  fastest: sorted.at(-1)!,
})
