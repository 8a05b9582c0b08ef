// language-model.js: writes a llama of random weights as a GGUF file, for `dgx-spark bench-llm`:
//   node bench/language-model.js <file.gguf> [format] [layers]
// Sizes are those of Llama 3.2 1B. Formats: Q4_0, Q8_0, Q4_K, Q6_K, F16, BF16, F32, MXFP4, NVFP4.
import { llama1b, writeRandomLlama } from './random-llama.js'

/** @import { LlamaFormat } from './random-llama.js' */

const [file, format = 'Q4_0', layers = llama1b.layers] = process.argv.slice(2)
if (!file) {
  console.error('usage: node bench/language-model.js <file.gguf> [format] [layers]')
  process.exit(2)
}
await writeRandomLlama(file, /** @type {LlamaFormat} */ (format), { ...llama1b, layers: Number(layers) })
