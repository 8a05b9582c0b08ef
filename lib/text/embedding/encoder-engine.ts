// encoder-engine.ts: an encoder that makes vectors of texts, in batches of texts of similar lengths.
import { Tensor } from '../../memory/tensor.js'
import { Model } from '../../model/model.js'
import type { WeightSource } from '../architectures/config.js'
import { encoderGraph, type Pooling } from '../architectures/encoder.js'
import type { EncoderConfig } from '../architectures/encoder-config.js'
import { contextOf, engineOptions } from '../engine-options.js'
import type { TextModelOptions } from '../text-options.js'
import type { EmbedRequest } from './embed-request.js'

/** Tokens of a batch, padding included, unless somebody asks for another number. */
const usualBatchTokens = 4096

/** Runs an encoder. */
export class EncoderEngine {
  /** The graph, ready to run. */
  readonly runner: Model
  /** Tokens of the longest text. */
  readonly contextLength: number
  readonly #batchTokens: number

  private constructor(runner: Model, contextLength: number, batchTokens: number) {
    this.runner = runner
    this.contextLength = contextLength
    this.#batchTokens = batchTokens
  }

  /**
   * Makes the graph of a model and opens it.
   * @param options - `batchTokens`: of a batch at most, padding included; a longer text is a batch of its own
   * @throws SparkError as `encoderGraph` and `Model.fromGraph`; ERR_RANGE for a context that is too long
   */
  static async open(
    config: EncoderConfig,
    weights: WeightSource,
    options: TextModelOptions,
  ): Promise<EncoderEngine> {
    const context = contextOf(config, options)
    const model = await Model.fromGraph(encoderGraph(config, weights), engineOptions(options))
    return new EncoderEngine(model, context, options.batchTokens ?? usualBatchTokens)
  }

  /**
   * A vector for each text of a request.
   * @throws SparkError as `Model.run`; the reason of the signal
   */
  async embed({ ids, pooling, signal, finish }: EmbedRequest): Promise<Float32Array[]> {
    const vectors: Float32Array[] = new Array(ids.length)
    for (const batch of batchesOf(ids, this.#batchTokens)) {
      const rows = await this.#run(
        batch.map(text => ids[text]!),
        pooling,
        signal,
      )
      for (const [row, text] of batch.entries()) vectors[text] = finish(rows[row]!)
    }
    return vectors
  }

  /** Frees what can be made again; see `TextModel.trim`. */
  async trim(): Promise<void> {
    await this.runner.trim()
  }

  /** Frees weights, once all runs that were asked for have ended. */
  async close(): Promise<void> {
    this.runner.dispose()
  }

  async #run(
    texts: readonly (readonly number[])[],
    pooling: Pooling,
    signal: AbortSignal | undefined,
  ): Promise<Float32Array[]> {
    const length = Math.max(...texts.map(text => text.length))
    const tokens = new Int32Array(texts.length * length)
    for (const [i, text] of texts.entries()) tokens.set(text, i * length)
    const feeds = {
      tokens: Tensor.from(tokens, { shape: [texts.length, length] }),
      lengths: Int32Array.from(texts, text => text.length),
    }
    const results = await this.runner.run<Record<Pooling, 'f32'>>(feeds, {
      outputs: [pooling],
      ...(signal ? { signal } : {}),
    })
    const { data } = results[pooling]
    const width = data.length / texts.length
    return texts.map((_, i) => data.subarray(i * width, (i + 1) * width))
  }
}

/**
 * Indices of texts in batches: texts of similar lengths together, so that there is little padding, the longest first.
 * @param limit - tokens of a batch at most, padding included; a longer text is a batch of its own
 */
export function batchesOf(texts: readonly { readonly length: number }[], limit: number): number[][] {
  const order = texts.map((_, i) => i).sort((a, b) => texts[b]!.length - texts[a]!.length || a - b)
  const batches: number[][] = []
  let [batch, longest]: [number[], number] = [[], 0]
  for (const text of order) {
    if (batch.length === 0 || (batch.length + 1) * longest > limit) {
      batch = []
      longest = texts[text]!.length
      batches.push(batch)
    }
    batch.push(text)
  }
  return batches
}
