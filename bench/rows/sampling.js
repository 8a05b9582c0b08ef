// sampling.js: tokens from logits of a large vocabulary, in native code, beside the sampler in TypeScript.
import assert from 'node:assert'
import { sampleRows } from '#lib/text/native-sampler.js'
import { Sampler } from '#lib/text/sampler.js'
import { held } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { SamplingOptions } from '#lib/text/sampling-options.js' */

const vocabulary = 152_064

/** @type {Record<string, SamplingOptions>} */
const settings = {
  greedy: { temperature: 0 },
  draw: {},
  'topK 40, topP 0.95': { temperature: 0.8, topK: 40, topP: 0.95 },
  'topP 0.9': { topP: 0.9 },
  'typicalP 0.9': { typicalP: 0.9 },
  'greedy, 5 logprobs': { temperature: 0, logprobs: 5 },
}

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* sampling(kernels) {
  if (kernels.backend !== 'cpu') return
  // Sums of three uniform numbers: most tokens are unlikely, as those of a model.
  const parts = [5, 6, 7].map(seed => uniform(vocabulary, seed))
  const logits = await held(
    kernels,
    Float32Array.from(
      { length: vocabulary },
      (_, id) => 6 * parts.reduce((sum, part) => sum + (part[id] ?? 0), 0),
    ),
  )
  for (const [name, options] of Object.entries(settings)) {
    const sampler = new Sampler({ ...options, seed: 1 })
    yield {
      name: 'sampling',
      shape: `${vocabulary} tokens`,
      dtype: name,
      elements: vocabulary,
      run: () => sampleRows([sampler], logits),
      check: async () => {
        const [token] = await sampleRows([sampler], logits)
        assert.equal(/** @type {{ id: number }} */ (token).id, sampler.sample(logits).id)
      },
      peer: { name: 'in TypeScript', run: () => sampler.sample(logits) },
    }
  }
}
