// embed-texts.ts: vectors of texts from the states of a decoder.
import { SparkError } from '../../core/errors.js'
import type { EmbedRequest } from '../embedding/embed-request.js'
import type { Scheduler } from './scheduler.js'

/**
 * A vector for each text.
 * @throws SparkError ERR_UNSUPPORTED for the state of the first token, which knows no others; as `Scheduler.submit`
 */
export async function embedTexts(scheduler: Scheduler, request: EmbedRequest): Promise<Float32Array[]> {
  const { pooling } = request
  if (pooling === 'cls')
    throw new SparkError(
      'ERR_UNSUPPORTED',
      "pooling 'cls' is for encoders: the first token of this model sees no other one",
    )
  const one = async (ids: readonly number[]): Promise<Float32Array> =>
    request.finish(await pooledStates(scheduler, ids, pooling, request.signal))
  return Promise.all(request.ids.map(one))
}

async function pooledStates(
  scheduler: Scheduler,
  ids: readonly number[],
  pooling: 'last' | 'mean',
  signal: AbortSignal | undefined,
): Promise<Float64Array> {
  let sum = new Float64Array(0)
  await scheduler.submit({
    ids,
    maxTokens: 0,
    output: 'hidden',
    rows: pooling === 'mean' ? 'all' : 'last',
    signal,
    next(rows, width) {
      if (sum.length === 0) sum = new Float64Array(width)
      for (let i = 0; i < rows.length; i++) sum[i % width]! += rows[i]!
      return undefined
    },
  })
  const count = pooling === 'mean' ? ids.length : 1
  return sum.map(value => value / count)
}
