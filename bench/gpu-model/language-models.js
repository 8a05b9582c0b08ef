// language-models.js: sizes of language models that people run, as their configurations have them.
import { languageCosts } from './work.js'

/** @import { LlamaSizes } from '../random-llama.js' */
/** @import { WeightFormat } from './work.js' */

/** @typedef {LlamaSizes & { isTied: boolean }} LanguageModel */

const llama3 = { kvHeads: 8, headSize: 128, vocabulary: 128_256 }

/** @satisfies {Readonly<Record<string, LanguageModel>>} */
const languageModels = {
  'Llama 3.2 1B': { ...llama3, hidden: 2048, inner: 8192, layers: 16, heads: 32, headSize: 64, isTied: true },
  'Llama 3.1 8B': { ...llama3, hidden: 4096, inner: 14_336, layers: 32, heads: 32, isTied: false },
  'Qwen2.5-Coder 7B': {
    ...{ hidden: 3584, inner: 18_944, layers: 28, heads: 28, kvHeads: 4, headSize: 128 },
    ...{ vocabulary: 152_064, isTied: false },
  },
  'Gemma 3 4B': {
    ...{ hidden: 2560, inner: 10_240, layers: 34, heads: 8, kvHeads: 4, headSize: 256 },
    ...{ vocabulary: 262_208, isTied: true },
  },
}

/** @typedef {keyof typeof languageModels} LanguageModelName */

/** @param {LanguageModelName} name @param {WeightFormat} format */
export function costsOf(name, format) {
  const { isTied, ...sizes } = languageModels[name]
  return languageCosts(sizes, format, isTied)
}
