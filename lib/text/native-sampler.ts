// native-sampler.ts: samples rows of logits in native code, off the JavaScript thread.
import { argumentError } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import type { SamplerRow } from '../core/sampler-row.js'
import { loadAddon } from '../native.js'
import type { SampledToken, Sampler } from './sampler.js'

/**
 * Chooses a token for each row of logits as {@link Sampler.sample} does, all rows at once. Without the addon it does so on the
 * JavaScript thread.
 * @param samplers - one for each row
 * @param logits - f32 [rows, vocabulary]; not to be changed until the promise settles. A buffer that is held is not copied
 * @returns for each row its token, or the error that {@link Sampler.sample} throws for it
 * @throws SparkError ERR_ARGUMENT; ERR_SHAPE for logits that are no such rows
 */
export async function sampleRows(
  samplers: readonly Sampler[],
  logits: Float32Array,
): Promise<(SampledToken | SparkError)[]> {
  if (!(logits instanceof Float32Array)) throw argumentError('logits', 'a Float32Array', logits)
  const vocabulary = samplers.length === 0 ? 0 : logits.length / samplers.length
  if (!Number.isInteger(vocabulary) || logits.length !== vocabulary * samplers.length) {
    const message = `logits has ${logits.length} elements, which are not ${samplers.length} rows`
    throw new SparkError('ERR_SHAPE', message)
  }
  const rows = samplers.map(sampler => sampler.row())
  const { addon } = loadAddon()
  if (addon && vocabulary > 0) await addon.sampleTokens({ logits, vocabulary, rows })
  return rows.map((row, i) =>
    row.id[0]! >= 0
      ? tokenOf(row)
      : sampled(samplers[i]!, logits.subarray(i * vocabulary, (i + 1) * vocabulary)),
  )
}

function tokenOf({ id: [id], logprob, top, topLogprobs }: SamplerRow): SampledToken {
  if (!logprob) return { id: id! }
  const ids = Array.from(top!).filter(token => token >= 0)
  return {
    id: id!,
    logprob: logprob[0]!,
    top: ids.map((token, i) => ({ id: token, logprob: topLogprobs![i]! })),
  }
}

/** A token, or why there is none. */
function sampled(sampler: Sampler, logits: Float32Array): SampledToken | SparkError {
  try {
    return sampler.sample(logits)
  } catch (error) {
    if (error instanceof SparkError) return error
    throw error
  }
}
