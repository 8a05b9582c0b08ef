// log-probabilities.ts: how likely a model finds the tokens of a text.
import type { Scheduler } from './scheduler.js'

/**
 * log p(token | tokens before), one less than `ids`.
 * @throws SparkError as `Scheduler.submit`
 */
export async function logProbabilities(
  scheduler: Scheduler,
  ids: readonly number[],
  signal?: AbortSignal,
): Promise<Float64Array> {
  const result = new Float64Array(ids.length - 1)
  await scheduler.submit({
    ids: ids.slice(0, -1),
    maxTokens: 0,
    output: 'logits',
    rows: 'all',
    signal,
    next(rows, width, first) {
      for (let i = 0; i * width < rows.length; i++)
        result[first + i] = logSoftmax(rows.subarray(i * width, (i + 1) * width), ids[first + i + 1]!)
      return undefined
    },
  })
  return result
}

/** log of the softmax of one element, in f64. */
function logSoftmax(logits: Float32Array, id: number): number {
  const max = logits.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY)
  return logits[id]! - max - Math.log(logits.reduce((sum, value) => sum + Math.exp(value - max), 0))
}
