// Language models on the GPU: the golden logits and greedy tokens of folders and GGUF files (DGX_SPARK_TEST_DATA), the cache in
// every type, and requests that do not change each other.
import { existsSync, readdirSync } from 'node:fs'
import { readSafetensors } from 'dgx-spark'
import { gpuTests } from '../fixtures/gpu-suite/gpu.js'
import { DecoderRows, distance } from '../fixtures/text/decoder-rows.js'
import { dataPath, foldersOf, readJson } from '../fixtures/text/golden-data.js'

/** @import { TextModelOptions } from 'dgx-spark' */
/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

/**
 * @typedef {object} Golden
 * @property {{ input_ids: number[] }[]} prompts
 * @property {{ prompt: string, ids: number[] }} greedy
 * @property {{ logits_abs: number }} tolerance
 */

/** @param {string} file @param {TextModelOptions} [options] */
const open = (file, options) => DecoderRows.open(file, { backend: 'cuda', ...options })

/** @param {Float32Array} rows @param {number} count */
const lastOf = (rows, count) => rows.subarray(rows.length - rows.length / count)

/** @param {Claims} t @param {string} file of the model @param {string[]} goldens folder and stem of the golden files */
async function agrees(t, file, goldens) {
  const stem = goldens.at(-1)
  /** @type {Golden} */
  const { prompts, greedy, tolerance } = readJson(...goldens.slice(0, -1), `${stem}.json`)
  const { tensors } = await readSafetensors(dataPath(...goldens.slice(0, -1), `${stem}.safetensors`))
  const model = await open(file)
  for (const [i, { input_ids: ids }] of prompts.entries()) {
    const error = distance(
      lastOf(await model.rows(ids), ids.length),
      tensors.get(`p${i}.last_logits`)?.data ?? [],
    )
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
  /** @type {Golden} */
  const { prompts } = readJson('lm-golden', 'gguf', 'llama.F16.golden.json')
  const { tensors } = await readSafetensors(dataPath('lm-golden', 'gguf', 'llama.F16.golden.safetensors'))
  const wanted = /** @type {Float32Array} */ (tensors.get('p2.last_logits')?.data)
  for (const [cacheType, bound] of Object.entries(cacheBounds)) {
    const model = await open(dataPath('lm-golden', 'gguf', 'llama.F16.gguf'), {
      cacheType: /** @type {keyof typeof cacheBounds} */ (cacheType),
    })
    const { logits } = await model.greedy(prompts[2]?.input_ids ?? [], 1)
    const error = distance(logits[0] ?? [], wanted)
    t.ok(error < bound * Math.max(...wanted), cacheType, `off by ${error}`)
    await model.close()
  }
}

const has = existsSync(dataPath('lm-golden', 'manifest.json'))
const folders = has ? foldersOf('lm-golden', 'models') : []
const files = has ? readdirSync(dataPath('lm-golden', 'gguf')).filter(file => file.endsWith('.gguf')) : []
const skipped = { goldens: (/** @type {Claims} */ t) => t.skip('lm-golden', 'DGX_SPARK_TEST_DATA has none') }

await gpuTests({
  ...(has ? { 'cache types': cacheTypes } : skipped),
  ...Object.fromEntries(
    folders.map(name => [
      name,
      (/** @type {Claims} */ t) =>
        agrees(t, dataPath('lm-golden', 'models', name), ['lm-golden', 'models', name, 'golden']),
    ]),
  ),
  ...Object.fromEntries(
    files.map(file => [
      file,
      (/** @type {Claims} */ t) =>
        agrees(t, dataPath('lm-golden', 'gguf', file), [
          'lm-golden',
          'gguf',
          file.replace('.gguf', '.golden'),
        ]),
    ]),
  ),
})
