// random-fp8-llama.js: a llama of random weights as a folder of Hugging Face, the matrices of whose layers are FP8 with a scale
// for each row, and whose embedding is bf16.
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Tensor, writeSafetensors } from 'dgx-spark'
import { configOf, matrices, norms } from './random-llama.js'

/** @import { SafetensorsTensor } from 'dgx-spark' */
/** @import { LlamaSizes } from './random-llama.js' */

/** Parts of names of GGUF files, as they are in folders. */
const folderNames = /** @type {const} */ ([
  ['token_embd', 'model.embed_tokens'],
  ['output_norm', 'model.norm'],
  ['blk.', 'model.layers.'],
  ['attn_norm', 'input_layernorm'],
  ['ffn_norm', 'post_attention_layernorm'],
  ['attn_output', 'self_attn.o_proj'],
  [/attn_([qkv])/, 'self_attn.$1_proj'],
  [/ffn_(gate|up|down)/, 'mlp.$1_proj'],
])

/** @param {string} name */
const folderName = name => folderNames.reduce((name, [from, to]) => name.replace(from, to), name)

/** Codes of E4M3 of both signs, without NaN and less than 2. @param {number} count */
function randomCodes(count) {
  const { data } = Tensor.random([count], { seed: 1 })
  return Uint8Array.from(data, value => (value < 0.5 ? value * 128 : 0x80 + (value - 0.5) * 128))
}

/** @param {LlamaSizes} sizes @returns {Generator<[string, SafetensorsTensor]>} */
function* tensors(sizes) {
  const all = [...matrices(sizes)]
  const codes = randomCodes(Math.max(...all.map(([, rows, cols]) => rows * cols)))
  for (const [name, rows, cols] of all) {
    const [weight, shape, count] = [folderName(name), [rows, cols], rows * cols]
    if (name === 'token_embd.weight') {
      yield [weight, { dtype: 'BF16', shape, data: new Uint16Array(count).fill(0x3c00) }]
      continue
    }
    yield [weight, { dtype: 'F8_E4M3', shape, data: codes.subarray(0, count) }]
    const data = new Float32Array(rows).fill(1 / cols)
    yield [`${weight}_scale`, { dtype: 'F32', shape: [rows, 1], data }]
  }
  const ones = new Float32Array(sizes.hidden).fill(1)
  for (const name of norms(sizes.layers))
    yield [folderName(name), { dtype: 'F32', shape: [sizes.hidden], data: ones }]
}

/** Writes the folder. @param {string} folder @param {LlamaSizes} sizes */
export async function writeRandomFp8Llama(folder, sizes) {
  const config = {
    ...configOf(sizes),
    tie_word_embeddings: true,
    quantization_config: { quant_method: 'compressed-tensors', format: 'float-quantized' },
  }
  const vocab = Object.fromEntries(Array.from({ length: sizes.vocabulary }, (_, id) => [`t${id}`, id]))
  const tokenizer = { model: { type: 'BPE', vocab, merges: [] }, added_tokens: [], decoder: null }
  await mkdir(folder, { recursive: true })
  await writeFile(path.join(folder, 'config.json'), JSON.stringify(config))
  await writeFile(path.join(folder, 'tokenizer.json'), JSON.stringify(tokenizer))
  await writeSafetensors(path.join(folder, 'model.safetensors'), tensors(sizes))
}
