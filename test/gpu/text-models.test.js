// Language models on the GPU in fp32: the golden logits and greedy tokens of folders and GGUF files (DGX_SPARK_TEST_DATA), the
// cache in every type, and requests that do not change each other.
import { goldenOf, lastOf, openOnGpu, textTests } from '../fixtures/gpu-suite/text-goldens.js'
import { distance } from '../fixtures/text/decoder-rows.js'
import { dataPath } from '../fixtures/text/golden-data.js'

/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */
/** @import { GoldenModel } from '../fixtures/gpu-suite/text-goldens.js' */

process.env.DGX_SPARK_PRECISION = 'fp32' // before anybody reads the configuration

/** @param {Claims} t @param {GoldenModel} model */
async function agrees(t, { file, goldens }) {
  const { prompts, greedy, tolerance, lastLogits } = await goldenOf(goldens)
  const model = await openOnGpu(file)
  for (const [i, { input_ids: ids }] of prompts.entries()) {
    const error = distance(lastOf(await model.rows(ids), ids.length), lastLogits(i))
    t.ok(error <= tolerance.logits_abs, `p${i}`, `off by ${error}, allowed are ${tolerance.logits_abs}`)
  }
  const prompt = prompts[Number(greedy.prompt.slice(1))]?.input_ids ?? []
  const { ids, logits } = await model.greedy(prompt, greedy.ids.length)
  t.same(ids, greedy.ids, 'greedy tokens')
  const others = prompts.map(({ input_ids: other }) => model.greedy(other, 3))
  t.same(
    (await model.greedy(prompt, 5)).logits,
    logits.slice(0, 5),
    'logits among other requests, bit for bit',
  )
  await Promise.all(others)
  await model.close()
}

/** Bounds of what rounding the cache does to the largest logit; as on the CPU. */
const cacheBounds = /** @type {const} */ ({ f16: 2 ** -9, bf16: 2 ** -6, i8: 2 ** -5, f8_e4m3: 2 ** -1 })

/** @param {Claims} t */
async function cacheTypes(t) {
  const { prompts, lastLogits } = await goldenOf(['lm-golden', 'gguf', 'llama.F16.golden'])
  for (const [name, bound] of Object.entries(cacheBounds)) {
    const cacheType = /** @type {keyof typeof cacheBounds} */ (name)
    const model = await openOnGpu(dataPath('lm-golden', 'gguf', 'llama.F16.gguf'), { cacheType })
    const { logits } = await model.greedy(prompts[2]?.input_ids ?? [], 1)
    t.close(logits[0] ?? [], lastLogits(2), bound, cacheType)
    await model.close()
  }
}

await textTests(agrees, { 'cache types': cacheTypes })
