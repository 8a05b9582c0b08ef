// measure-speed.ts: how fast a language model is: prompts, steps of generation behind prompts of some length, several texts at once.
import { setTimeout } from 'node:timers/promises'
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

/** One of the libraries that are measured in turns. */
export interface Contestant {
  readonly generate: GenerateTimed
  /** Ids of prompts are below. */
  readonly vocabulary: number
}

/** Threads of a library may wait busily for a while after a run and disturb whoever comes next, ms. */
const pause = 60

/**
 * Speeds of contestants, one for each: they take turns, run by run, so that what else the machine does meets all of them. Prompts are
 * random and never the same, so that no cache has them.
 * @throws what `generate` throws
 */
export async function* measureSpeeds(
  contestants: readonly Contestant[],
  { prompt, generate: count, depths, batches, runs, signal }: SpeedOptions,
): AsyncGenerator<Speed[], void, undefined> {
  const inTurns = async (measure: (contestant: Contestant) => Promise<number>): Promise<number[][]> => {
    const speeds: number[][] = contestants.map(() => [])
    for (let i = 0; i < runs; i++)
      for (const [k, contestant] of contestants.entries()) {
        signal?.throwIfAborted()
        if (contestants.length > 1) await setTimeout(pause, undefined, signal && { signal })
        speeds[k]!.push(await measure(contestant))
      }
    return speeds.map(each => each.sort((a, b) => a - b))
  }
  const random = randomGenerator(1)
  const promptOf = (vocabulary: number, length: number): Int32Array =>
    Int32Array.from({ length }, () => Math.floor(random() * vocabulary))
  for (const { generate, vocabulary } of contestants) await generate(promptOf(vocabulary, 8), 2)
  const prefill = await inTurns(async ({ generate, vocabulary }) => {
    const ids = promptOf(vocabulary, prompt)
    const begin = performance.now()
    const [first] = await generate(ids, 1)
    return (1000 * prompt) / (first! - begin)
  })
  yield prefill.map(sorted => speedOf('prefill', 0, 1, sorted))
  for (const depth of depths)
    for (const batch of batches) {
      const decode = await inTurns(({ generate, vocabulary }) =>
        decodeSpeed(
          generate,
          Array.from({ length: batch }, () => promptOf(vocabulary, Math.max(1, depth))),
          count,
        ),
      )
      yield decode.map(sorted => speedOf('decode', depth, batch, sorted))
    }
}

/** Tokens a second while all texts are generated: from when the last prompt was computed to when the first text was complete. */
async function decodeSpeed(
  generate: GenerateTimed,
  prompts: readonly Int32Array[],
  count: number,
): Promise<number> {
  const times = await Promise.all(prompts.map(ids => generate(ids, count)))
  const begin = Math.max(...times.map(each => each[0]!))
  const end = Math.min(...times.map(each => each.at(-1)!))
  const tokens = times.flat().filter(time => time > begin && time <= end).length
  return (1000 * tokens) / (end - begin)
}

const speedOf = (kind: Speed['kind'], depth: number, batch: number, sorted: readonly number[]): Speed => ({
  ...{ kind, depth, batch },
  median: sorted[sorted.length >> 1]!,
  slowest: sorted[0]!,
  fastest: sorted.at(-1)!,
})
