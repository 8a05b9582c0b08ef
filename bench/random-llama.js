// random-llama.js: a llama of random weights as a GGUF file. All matrices repeat the same rows, whose values do not matter for
// their speed: these are encoded once.
import { Tensor, writeGguf } from 'dgx-spark'
import { encodeBlocks } from '#lib/weights/blocks/encode.js'
import { blockBytes, blockFormats } from '#lib/weights/blocks/formats.js'

/** @import { EncodedFormat, GgufValue } from 'dgx-spark' */

/** @typedef {typeof llama1b & { inputScale?: number | undefined }} LlamaSizes inputScale: of activations, for matrices of NVFP4 */
/** @typedef {EncodedFormat | keyof typeof unencoded} LlamaFormat */

/** Sizes of Llama 3.2 1B, with a vocabulary of 32,000. */
export const llama1b = {
  hidden: 2048,
  inner: 8192,
  layers: 16,
  heads: 32,
  kvHeads: 8,
  headSize: 64,
  vocabulary: 32_000,
}

const patternRows = 64

/** Formats without an encoder: scales that a block begins with, which fit 2,048 columns; all other bytes are random. */
const unencoded = /** @type {const} */ ({
  MXFP4: { scales: 1, scale: 120 },
  NVFP4: { scales: 4, scale: 4 },
})

/** @param {LlamaFormat} format @returns {format is keyof typeof unencoded} */
const isUnencoded = format => Object.hasOwn(unencoded, format)

/** @param {keyof typeof unencoded} format @param {number} count of elements */
function randomBlocks(format, count) {
  const { scales, scale } = unencoded[format]
  const { bytes: size } = blockFormats[format]
  const { data } = Tensor.random([blockBytes(format, count)], { seed: 1 })
  return Uint8Array.from(data, (value, i) => (i % size < scales ? scale : Math.floor(value * 256)))
}

/** The first rows of every matrix with so many columns. @param {LlamaFormat} format @param {number} cols */
function pattern(format, cols) {
  if (isUnencoded(format)) return randomBlocks(format, patternRows * cols)
  const { data } = Tensor.random([patternRows, cols], { seed: 1, distribution: 'normal' })
  return encodeBlocks(
    format,
    data.map(value => value / Math.sqrt(cols)),
  )
}

/** @param {Uint8Array} bytes @param {number} length */
function repeated(bytes, length) {
  const all = new Uint8Array(length)
  for (let at = 0; at < length; at += bytes.length) all.set(bytes.subarray(0, length - at), at)
  return all
}

/** Names and shapes of the matrices. @param {LlamaSizes} sizes @returns {Generator<[name: string, rows: number, cols: number]>} */
export function* matrices({ hidden, inner, layers, heads, kvHeads, headSize, vocabulary }) {
  yield ['token_embd.weight', vocabulary, hidden]
  for (let i = 0; i < layers; i++) {
    const at = `blk.${i}.`
    yield [`${at}attn_q.weight`, heads * headSize, hidden]
    yield [`${at}attn_k.weight`, kvHeads * headSize, hidden]
    yield [`${at}attn_v.weight`, kvHeads * headSize, hidden]
    yield [`${at}attn_output.weight`, hidden, heads * headSize]
    yield [`${at}ffn_gate.weight`, inner, hidden]
    yield [`${at}ffn_up.weight`, inner, hidden]
    yield [`${at}ffn_down.weight`, hidden, inner]
  }
}

/** Elements of all matrices; that of the tokens is the last one of a step, too. @param {LlamaSizes} sizes */
export const matrixElements = sizes =>
  [...matrices(sizes)].reduce((sum, [, rows, cols]) => sum + rows * cols, 0)

/** @param {LlamaFormat} format @param {LlamaSizes} sizes */
function* tensors(format, sizes) {
  /** @type {Map<number, Uint8Array>} */
  const patterns = new Map()
  for (const [name, rows, cols] of matrices(sizes)) {
    const bytes = patterns.get(cols) ?? pattern(format, cols)
    patterns.set(cols, bytes)
    const load = () => repeated(bytes, blockBytes(format, rows * cols))
    yield { name, format, shape: [rows, cols], load }
    const { inputScale } = sizes
    if (inputScale === undefined || name === 'token_embd.weight') continue
    const scale = () => Float32Array.of(inputScale)
    yield {
      name: name.replace(/weight$/, 'input_scale'),
      format: /** @type {const} */ ('F32'),
      shape: [1],
      load: scale,
    }
  }
  for (const name of norms(sizes.layers)) {
    const load = () => new Float32Array(sizes.hidden).fill(1)
    yield { name, format: /** @type {const} */ ('F32'), shape: [sizes.hidden], load }
  }
}

/** @param {number} layers */
export function* norms(layers) {
  yield 'output_norm.weight'
  for (let i = 0; i < layers; i++) yield* [`blk.${i}.attn_norm.weight`, `blk.${i}.ffn_norm.weight`]
}

/** @param {LlamaSizes} sizes @returns {Record<string, GgufValue>} */
function metadata({ hidden, inner, layers, heads, kvHeads, headSize, vocabulary }) {
  /** @param {number} value @returns {GgufValue} */
  const u32 = value => ({ type: 'u32', value })
  const tokens = Array.from({ length: vocabulary }, (_, id) =>
    id < 3
      ? ['<unk>', '<s>', '</s>'][id]
      : id < 259
        ? `<0x${(id - 3).toString(16).toUpperCase().padStart(2, '0')}>`
        : `t${id}`,
  )
  const types = Int32Array.from(tokens, (_, id) => (id === 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1))
  return {
    'general.architecture': { type: 'string', value: 'llama' },
    'llama.block_count': u32(layers),
    'llama.context_length': u32(8192),
    'llama.embedding_length': u32(hidden),
    'llama.feed_forward_length': u32(inner),
    'llama.attention.head_count': u32(heads),
    'llama.attention.head_count_kv': u32(kvHeads),
    'llama.attention.key_length': u32(headSize),
    'llama.attention.value_length': u32(headSize),
    'llama.attention.layer_norm_rms_epsilon': { type: 'f32', value: 1e-5 },
    'llama.rope.dimension_count': u32(headSize),
    'llama.rope.freq_base': { type: 'f32', value: 500_000 },
    'llama.vocab_size': u32(vocabulary),
    'tokenizer.ggml.model': { type: 'string', value: 'llama' },
    'tokenizer.ggml.tokens': { type: 'array', of: 'string', value: tokens },
    'tokenizer.ggml.scores': { type: 'array', of: 'f32', value: new Float32Array(vocabulary) },
    'tokenizer.ggml.token_type': { type: 'array', of: 'i32', value: types },
    'tokenizer.ggml.bos_token_id': u32(1),
    'tokenizer.ggml.eos_token_id': u32(2),
  }
}

/** config.json of the model. @param {LlamaSizes} sizes */
export const configOf = ({ hidden, inner, layers, heads, kvHeads, headSize, vocabulary }) => ({
  model_type: 'llama',
  hidden_size: hidden,
  intermediate_size: inner,
  num_hidden_layers: layers,
  num_attention_heads: heads,
  num_key_value_heads: kvHeads,
  head_dim: headSize,
  vocab_size: vocabulary,
  max_position_embeddings: 131_072,
  rms_norm_eps: 1e-5,
})

/** Writes the file. @param {string} file @param {LlamaFormat} format @param {LlamaSizes} [sizes] */
export const writeRandomLlama = (file, format, sizes = llama1b) =>
  writeGguf(file, { metadata: metadata(sizes), tensors: tensors(format, sizes) })
