// compare-weights.ts: the error that rounding each weight of a model causes, on data of the model's own.
import { expectKnownOptions, expectOneOf } from '../core/checks.js'
import type { Precision } from '../core/config.js'
import type { EngineOptions } from '../model/engine.js'
import type { Feeds } from '../model/feeds.js'
import { Model } from '../model/model.js'
import type { NVFP4Recipe } from '../precision/kernel-args.js'
import { comparePairs } from './compare.js'

/** Options of {@link compareWeights}. */
export interface CompareWeightsOptions extends EngineOptions {
  /** The mode that is judged. Default: nvfp4. */
  precision?: Precision
  /** How scales of nvfp4 are chosen. Default: modelopt. */
  recipe?: NVFP4Recipe
}

/** How far the outputs of a product with a rounded weight are from those with the weight itself. */
export interface WeightDifference {
  /** Name of the weight, as the option `keep` of a model takes it. */
  readonly weight: string
  /** Cosine of the outputs, as in {@link OutputDifference}; the smallest one where several products read the weight. */
  readonly cosine: number
  /** ‖rounded − exact‖ / ‖exact‖ of the outputs; the largest one. */
  readonly relativeError: number
}

/**
 * Rounds each weight of a model as a precision mode does, and compares what its products give with it on what the model
 * feeds them in fp32. Weights that lose too much can stay in bf16: the option `keep` of {@link Model.load}.
 *
 * @param model - in fp32
 * @param data - inputs of each run, as `Model.run` takes them, like those that the model is for
 * @returns a line for each weight that the mode changes, in the order of the graph
 * @throws SparkError ERR_ARGUMENT when there is no data, or for an option; ERR_RANGE and ERR_NOT_FINITE as
 * {@link Model.load}; and as `Model.run`
 * @example
 * const keep = (await compareWeights(model, batches)).filter(({ cosine }) => cosine < 0.994).map(({ weight }) => weight)
 * const small = await Model.load('model.onnx', { precision: 'nvfp4', keep })
 */
export async function compareWeights(
  model: Model,
  data: Iterable<Feeds> | AsyncIterable<Feeds>,
  options: CompareWeightsOptions = {},
): Promise<WeightDifference[]> {
  expectKnownOptions('options', options, ['backend', 'device', 'provider', 'precision', 'recipe'])
  const { precision = 'nvfp4', recipe = 'modelopt', ...engine } = options
  expectOneOf('options.precision', precision, ['fp16', 'bf16', 'fp8', 'nvfp4'])
  expectOneOf('options.recipe', recipe, ['modelopt', 'te', 'mse'])
  const { twins } = await import('./twins.js')
  const { graph, pairs } = await twins(model.graph, precision, recipe)
  using both = await Model.fromGraph(graph, { ...engine, precision: 'fp32' })
  const differences = await comparePairs(both, pairs, data)
  const weights = new Map<string, WeightDifference>()
  for (const [i, { weight }] of pairs.entries()) {
    const { cosine, relativeError } = differences[i]!
    const worst = weights.get(weight) ?? { weight, cosine, relativeError }
    weights.set(weight, {
      weight,
      cosine: Math.min(cosine, worst.cosine),
      relativeError: Math.max(relativeError, worst.relativeError),
    })
  }
  return [...weights.values()]
}
