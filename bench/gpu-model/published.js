// published.js: times that others have published, and the work that they are times of.
import { costsOf } from './language-models.js'
import { machines } from './machines.js'
import { launchesPerLayer, prefillWork } from './work.js'

/** @import { LanguageModelName } from './language-models.js' */
/** @import { Measurement, Roof, Work } from './roofline.js' */

/**
 * @typedef {Measurement & { name: string, roof: Roof, isFitted: boolean }} Published `roof`: what bounds it; `isFitted`: the
 * efficiencies are fitted to it, and the others show how far an estimate is off
 */

/** Tokens of a prompt where the publication names none, which is what llama-bench is usually run with. */
const promptTokens = 2048

/**
 * A step of generation.
 * @param {string} name @param {number} layers @param {number} gigabytes that a token reads
 * @param {number} rate tokens a second @param {{ isFitted: boolean, rows?: number }} options `rows`: tokens of a step
 * @returns {Published}
 */
const step = (name, layers, gigabytes, rate, { isFitted, rows = 1 }) => ({
  name,
  roof: 'memory',
  isFitted,
  machine: machines.GB10,
  work: { bytes: gigabytes * 1e9, flops: {}, launches: layers * launchesPerLayer },
  seconds: rows / rate,
})

/**
 * Reading a prompt, whose products are in `dtype`.
 * @param {LanguageModelName} model @param {string} engine @param {string} dtype @param {number} rate tokens a second
 * @param {boolean} isFitted @returns {Published}
 */
function prefill(model, engine, dtype, rate, isFitted) {
  const { bytes, flops, launches } = prefillWork(costsOf(model, 'BF16'), promptTokens)
  const { f16: attention = 0, bf16: products = 0 } = flops
  return {
    name: `${model} ${engine}, prefill`,
    roof: 'arithmetic',
    isFitted,
    machine: machines.GB10,
    work: {
      bytes,
      flops: { f16: attention, [dtype]: products + (dtype === 'f16' ? attention : 0) },
      launches,
    },
    seconds: promptTokens / rate,
  }
}

const [fitted, heldOut] = [{ isFitted: true }, { isFitted: false }]

/** Keys and values of a token in f16, GB; those of gpt-oss-20b without the layers with a window. */
const cacheGB = { 'gpt-oss-20b': (24 * 1024) / 1e9, 'Qwen3-30B-A3B': (96 * 1024) / 1e9 }

/** Two passes of a cast to NVFP4: 2 bytes are read and 0.5625 written of each element. @type {Work} */
const quantization = { bytes: 8192 * 8192 * 2.5625, flops: {}, launches: 1 }

/**
 * Every second row of a kind is fitted, the first one too, in the order in which they were published in one place; those of another
 * machine are not. Bytes of a step are those that were published with it.
 * @type {readonly Published[]}
 */
export const published = [
  step('gpt-oss-20b MXFP4, llama.cpp', 24, 2.56, 83.4, fitted),
  step('gpt-oss-120b MXFP4, vLLM', 36, 3.53, 59.5, heldOut),
  step('Qwen3-Coder-30B-A3B Q8_0, llama.cpp', 48, 3.22, 61.1, fitted),
  step('Qwen2.5-Coder-7B Q8_0, llama.cpp', 28, 7.51, 29.4, heldOut),
  step('gemma-3-4b Q4_0, llama.cpp', 34, 2.5, 81.1, fitted),
  step('Llama-3.2-3B Q4_K, llama.cpp', 28, 2, 109.8, heldOut),
  step('Llama-3.1-8B NVFP4, TensorRT-LLM', 32, 4.98, 38.65, fitted),
  step('Llama-3.1-8B FP8, SGLang', 32, 8.03, 20.5, heldOut),
  step('Llama-3.3-70B NVFP4, vLLM', 80, 40.6, 4.1, fitted),
  step('Llama-3.2-3B Q4_K, llama.cpp, 8 rows', 28, 2, 763, { isFitted: false, rows: 8 }),
  step('gpt-oss-20b MXFP4, llama.cpp, 8K context', 24, 2.56 + 8192 * cacheGB['gpt-oss-20b'], 75, fitted),
  step('gpt-oss-20b MXFP4, llama.cpp, 32K context', 24, 2.56 + 32_768 * cacheGB['gpt-oss-20b'], 62, heldOut),
  step(
    'Qwen3-Coder-30B-A3B Q8_0, llama.cpp, 32K context',
    48,
    3.22 + 32_768 * cacheGB['Qwen3-30B-A3B'],
    30,
    heldOut,
  ),
  prefill('Qwen2.5-Coder 7B', 'Q8_0, llama.cpp', 'f16', 2250, true),
  prefill('Gemma 3 4B', 'Q4_0, llama.cpp', 'f16', 5949, false),
  prefill('Llama 3.1 8B', 'NVFP4, TensorRT-LLM', 'f4_e2m1', 10_257, true),
  prefill('Llama 3.1 8B', 'FP8, SGLang', 'f8_e4m3', 7991, false),
  {
    name: 'quantization of 8192 x 8192 to NVFP4, FlashInfer CUDA',
    roof: 'memory',
    isFitted: false,
    machine: machines.B200,
    work: quantization,
    seconds: 36e-6,
  },
  {
    name: 'quantization of 8192 x 8192 to NVFP4, FlashInfer CuTe',
    roof: 'memory',
    isFitted: false,
    machine: machines.B200,
    work: quantization,
    seconds: quantization.bytes / 6.7e12,
  },
]
