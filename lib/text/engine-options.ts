// engine-options.ts: what options of a language model mean for the engine that runs it.
import { SparkError } from '../core/errors.js'
import type { ModelOptions } from '../model/model-options.js'
import type { TextModelOptions } from './text-options.js'

/** Options of the model among those of a language model. */
export function engineOptions(options: TextModelOptions): ModelOptions {
  const { backend, device, threads, memory, weightCache, activations } = options
  const given = Object.entries({ backend, device, threads, memory, weightCache, activations })
  return Object.fromEntries(given.filter(([, value]) => value !== undefined))
}

/**
 * Tokens of the longest sequence: what is asked for, else what the model was made for.
 * @throws SparkError ERR_RANGE, with both numbers, for more than that
 */
export function contextOf(
  { contextLength: most }: { contextLength: number },
  options: TextModelOptions,
): number {
  const context = options.contextLength ?? most
  if (context <= most) return context
  const message = `contextLength ${context} is more than the ${most} tokens that the model was made for`
  throw new SparkError('ERR_RANGE', message)
}
