// language-model.js: writes a llama of random weights as a GGUF file, for `dgx-spark bench-llm`:
//   node bench/language-model.js <file.gguf> [format] [layers]
// Sizes are those of Llama 3.2 1B, with a vocabulary of 32,000. Formats: Q4_0, Q8_0, Q4_K, Q6_K, F16, BF16, F32, MXFP4.
import { Tensor, writeGguf } from 'dgx-spark'

/** @import { EncodedFormat, GgufInput, GgufValue } from 'dgx-spark' */

const sizes = { hidden: 2048, inner: 8192, heads: 32, kvHeads: 8, headSize: 64, vocabulary: 32_000 }

/** Rows of the matrix of random numbers that all matrices repeat: values do not matter for their speed. */
const patternRows = 64

/** Blocks of MXFP4, which has no encoder: an exponent for each 32 elements, and random codes. @param {number} rows @param {number} cols */
function mxfp4(rows, cols) {
  const blocks = (rows * cols) / 32
  const bytes = new Uint8Array(blocks * 17)
  const { data } = Tensor.random([bytes.length], { seed: 1 })
  for (let i = 0; i < bytes.length; i++) bytes[i] = i % 17 === 0 ? 121 : Math.floor(data[i] * 256)
  return bytes
}

/** @param {string} name @param {string} format @param {number} rows @param {number} cols */
function matrix(name, format, rows, cols) {
  if (format === 'MXFP4')
    return {
      name,
      format: /** @type {const} */ ('MXFP4'),
      shape: [rows, cols],
      load: () => mxfp4(rows, cols),
    }
  return {
    name,
    format: /** @type {EncodedFormat} */ (format),
    shape: [rows, cols],
    values: () => {
      const { data } = Tensor.random([patternRows, cols], { seed: 1, distribution: 'normal' })
      const all = new Float32Array(rows * cols)
      for (let at = 0; at < all.length; at += data.length)
        all.set(data.subarray(0, Math.min(data.length, all.length - at)), at)
      return all.map(value => value / Math.sqrt(cols))
    },
  }
}

/** @param {string} name @param {number} count */
const norm = (name, count) => ({
  name,
  format: /** @type {const} */ ('F32'),
  shape: [count],
  values: () => new Float32Array(count).fill(1),
})

/** @param {string} format @param {number} layers */
function* tensors(format, layers) {
  const { hidden, inner, heads, kvHeads, headSize, vocabulary } = sizes
  yield matrix('token_embd.weight', format, vocabulary, hidden)
  yield norm('output_norm.weight', hidden)
  for (let i = 0; i < layers; i++) {
    const at = `blk.${i}.`
    yield norm(`${at}attn_norm.weight`, hidden)
    yield norm(`${at}ffn_norm.weight`, hidden)
    yield matrix(`${at}attn_q.weight`, format, heads * headSize, hidden)
    yield matrix(`${at}attn_k.weight`, format, kvHeads * headSize, hidden)
    yield matrix(`${at}attn_v.weight`, format, kvHeads * headSize, hidden)
    yield matrix(`${at}attn_output.weight`, format, hidden, heads * headSize)
    yield matrix(`${at}ffn_gate.weight`, format, inner, hidden)
    yield matrix(`${at}ffn_up.weight`, format, inner, hidden)
    yield matrix(`${at}ffn_down.weight`, format, hidden, inner)
  }
}

/** @param {number} layers @returns {Record<string, GgufValue>} */
function metadata(layers) {
  /** @param {number} value @returns {GgufValue} */
  const u32 = value => ({ type: 'u32', value })
  const tokens = Array.from({ length: sizes.vocabulary }, (_, id) =>
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
    'llama.embedding_length': u32(sizes.hidden),
    'llama.feed_forward_length': u32(sizes.inner),
    'llama.attention.head_count': u32(sizes.heads),
    'llama.attention.head_count_kv': u32(sizes.kvHeads),
    'llama.attention.key_length': u32(sizes.headSize),
    'llama.attention.value_length': u32(sizes.headSize),
    'llama.attention.layer_norm_rms_epsilon': { type: 'f32', value: 1e-5 },
    'llama.rope.dimension_count': u32(sizes.headSize),
    'llama.rope.freq_base': { type: 'f32', value: 500_000 },
    'llama.vocab_size': u32(sizes.vocabulary),
    'tokenizer.ggml.model': { type: 'string', value: 'llama' },
    'tokenizer.ggml.tokens': { type: 'array', of: 'string', value: tokens },
    'tokenizer.ggml.scores': { type: 'array', of: 'f32', value: new Float32Array(sizes.vocabulary) },
    'tokenizer.ggml.token_type': { type: 'array', of: 'i32', value: types },
    'tokenizer.ggml.bos_token_id': u32(1),
    'tokenizer.ggml.eos_token_id': u32(2),
  }
}

const [file, format = 'Q4_0', layers = '16'] = process.argv.slice(2)
if (!file) {
  console.error('usage: node bench/language-model.js <file.gguf> [format] [layers]')
  process.exit(2)
}
await writeGguf(file, {
  metadata: metadata(Number(layers)),
  tensors: /** @type {NonNullable<GgufInput['tensors']>} */ (tensors(format, Number(layers))),
})
