// text.js: a llama of random weights with the sizes of Llama 3.2 1B: a prompt of 512 tokens, and steps of generation behind a
// prompt of 1 or 2,048 tokens, for one text or eight at once. Keys and values are kept in bf16.
import assert from 'node:assert'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { TextModel } from 'dgx-spark'
import { randomGenerator } from '#lib/core/random.js'
import { blockBytes } from '#lib/weights/blocks/formats.js'
import { near } from '../checks.js'
import { llama1b, matrixElements, writeRandomLlama } from '../random-llama.js'

/** @import { Generation, TextModelOptions } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { LlamaFormat, LlamaSizes } from '../random-llama.js' */
/** @import { Wanted } from './models.js' */

/** @typedef {LlamaSizes & { prompt: number, depth: number, texts: number, steps: number }} TextSizes */

/** Tokens that a run generates behind the first one. */
const steps = 16

/** Bytes of an element of the cache. */
const cacheBytes = 2

/** Lengths of the prompt that is read, and of the one that steps have in front of them. */
const usual = { prompt: 512, deep: 2048 }

/** @param {Kernels} kernels @param {unknown} _peer @param {Wanted} wanted @returns {AsyncGenerator<Case>} */
export async function* text({ backend }, _peer, wanted) {
  if (backend === 'cuda')
    for (const format of /** @type {const} */ (['BF16', 'Q4_0', 'Q8_0', 'NVFP4']))
      yield* textRows(backend, format, llama1b, usual, wanted)
  if (backend === 'cpu') yield* textRows(backend, 'Q4_0', { ...llama1b, layers: 2 }, usual, wanted)
}

/**
 * The rows of a model, which is made only for wanted ones.
 * @param {'cpu' | 'cuda'} backend @param {LlamaFormat} format @param {LlamaSizes} sizes @param {typeof usual} lengths
 * @param {Wanted} [wanted] @returns {AsyncGenerator<Case>}
 */
export async function* textRows(backend, format, sizes, { prompt, deep }, wanted = () => true) {
  const rows = [
    prefill(sizes, prompt),
    ...[
      { depth: 0, texts: 1 },
      { depth: 0, texts: 8 },
      { depth: deep, texts: 1 },
    ].map(at => decode(format, sizes, at)),
  ].map(row => ({ ...row, dtype: format.toLowerCase(), device: backend }))
  const chosen = rows.filter(wanted)
  if (chosen.length === 0) return
  const contextLength = Math.max(prompt, deep) + steps + 1
  /** @type {TextModelOptions} */
  const options = { backend, contextLength, cacheTokens: 2 * contextLength + 1024, cacheType: 'bf16' }
  const model = await openLlama(format, sizes, options)
  for (const { of, ...row } of chosen) yield { ...row, ...of(model) }
  model.dispose()
}

/** A model whose file is gone once it is loaded. @param {LlamaFormat} format @param {LlamaSizes} sizes @param {TextModelOptions} options */
async function openLlama(format, sizes, options) {
  const folder = await mkdtemp(path.join(tmpdir(), 'dgx-spark-text-'))
  const file = path.join(folder, 'model.gguf')
  try {
    await writeRandomLlama(file, format, sizes)
    return await TextModel.load(file, options)
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** Random tokens, never the same. @param {LlamaSizes} sizes */
function promptsOf({ vocabulary }) {
  const random = randomGenerator(1)
  return (/** @type {number} */ length) =>
    Int32Array.from({ length }, () => Math.floor(random() * vocabulary))
}

/** Reading a prompt: the first token behind it. @param {LlamaSizes} sizes @param {number} tokens */
function prefill(sizes, tokens) {
  const promptOf = promptsOf(sizes)
  const last = sizes.hidden * sizes.vocabulary
  return {
    name: 'text prefill',
    shape: `${tokens} tokens`,
    sizes: { ...sizes, prompt: tokens, depth: 0, texts: 1, steps: 0 },
    tokens,
    flops: 2 * (tokens * (matrixElements(sizes) - last) + last),
    /** @param {TextModel} model */
    of: model => ({
      run: () => generated(model, promptOf(tokens), 1).result(),
      check: () => expectAgreement(model, promptOf(tokens), 1),
    }),
  }
}

/**
 * A step of generation: the texts are behind their prompts when a run begins.
 * @param {LlamaFormat} format @param {LlamaSizes} sizes @param {{ depth: number, texts: number }} at
 */
function decode(format, sizes, { depth, texts }) {
  const promptOf = promptsOf(sizes)
  const length = Math.max(1, depth)
  const prompts = Array.from({ length: texts }, () => promptOf(length))
  const { layers, kvHeads, headSize } = sizes
  const keysAndValues = 2 * layers * kvHeads * headSize * cacheBytes * (length + steps / 2)
  return {
    name: 'text decode',
    shape: `depth ${depth} x${texts}`,
    sizes: { ...sizes, prompt: 0, depth: length, texts, steps },
    tokens: texts,
    bytes: blockBytes(format, matrixElements(sizes)) + texts * keysAndValues,
    bandwidth: /** @type {const} */ ('read'),
    calls: steps,
    of: (/** @type {TextModel} */ model) => stepsOf(model, prompts),
  }
}

/** @param {TextModel} model @param {Int32Array[]} prompts */
function stepsOf(model, prompts) {
  /** @type {Generation[]} */
  let running = []
  return {
    prepare: async () => {
      running = prompts.map(ids => generated(model, ids, 1 + steps))
      await Promise.all(running.map(generation => generation.tokens().next()))
    },
    run: () => Promise.all(running.map(generation => generation.result())),
    check: async () => {
      for (const generation of running) assert.equal(generation.generated.length, 1 + steps)
      await expectAgreement(model, /** @type {Int32Array} */ (prompts[0]), 4)
    },
  }
}

/** The most likely tokens. @param {TextModel} model @param {Int32Array} ids @param {number} maxTokens @param {number} [logprobs] */
const generated = (model, ids, maxTokens, logprobs) =>
  model.generate(ids, {
    maxTokens,
    temperature: 0,
    ignoreEnd: true,
    ...(logprobs === undefined ? {} : { logprobs }),
  })

/**
 * Throws unless tokens that are generated one by one are as likely as where all are read at once, and likelier than by chance.
 * @param {TextModel} model @param {Int32Array} prompt @param {number} count
 */
export async function expectAgreement(model, prompt, count) {
  const { ids, logprobs = [] } = await generated(model, prompt, count, 0).result()
  const whole = await model.logProbabilities(Int32Array.from([...prompt, ...ids]))
  const chance = -Math.log(model.tokenizer.vocabularySize)
  for (const [i, expected] of whole.logprobs.slice(-count).entries()) {
    near(logprobs[i], expected, 0.02)
    assert.ok(expected > chance + 0.1, `the model prefers no token: ${expected} is chance`)
  }
}
