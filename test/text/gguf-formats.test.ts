// GGUF models in each block format, their tables of tokens and last layers too: the logits are those of the decoded elements.
import path from 'node:path'
import { type GgufTensorInput, readSafetensors, writeGguf } from 'dgx-spark'
import t from 'tap'
import type { BlockFormat } from '#lib/weights/blocks/formats.js'
import { vocabulary } from '../fixtures/text/decoder-gguf.js'
import { DecoderRows, distance } from '../fixtures/text/decoder-rows.js'
import { dataPath, noLanguageData } from '../fixtures/text/golden-data.js'

/** Elements of a row, as many as the golden blocks have. */
const width = 512
const tokens = 64
const ids = Array.from({ length: 9 }, (_, i) => (i * 23 + 5) % tokens)

/** Rows by matrix: four heads, two of keys and values. */
const matrices = {
  token_embd: tokens,
  'blk.0.attn_q': width,
  'blk.0.attn_k': width / 2,
  'blk.0.attn_v': width / 2,
  'blk.0.attn_output': width,
  'blk.0.ffn_gate': width,
  'blk.0.ffn_up': width,
  'blk.0.ffn_down': width,
}
const norms = ['output_norm', 'blk.0.attn_norm', 'blk.0.ffn_norm']

const u32 = (value: number) => ({ type: 'u32', value }) as const
const metadata = {
  'general.architecture': { type: 'string', value: 'llama' },
  'llama.block_count': u32(1),
  'llama.context_length': u32(64),
  'llama.embedding_length': u32(width),
  'llama.feed_forward_length': u32(width),
  'llama.attention.head_count': u32(4),
  'llama.attention.head_count_kv': u32(2),
  'llama.attention.layer_norm_rms_epsilon': { type: 'f32', value: 1e-5 },
  ...vocabulary(tokens),
} as const

/** Logits of a model whose matrices have the four golden rows, in an order of its own for each. */
async function logits(file: string, format: BlockFormat, golden: Uint8Array): Promise<Float32Array> {
  const size = golden.length / 4
  const blocks = Object.entries(matrices).map(([name, rows], matrix): GgufTensorInput => {
    const order = Array.from({ length: rows }, (_, row) => (row + (row >> 2) * matrix + matrix) % 4)
    const load = (): Uint8Array =>
      Buffer.concat(order.map(row => golden.subarray(row * size, (row + 1) * size)))
    return { name: `${name}.weight`, format, shape: [rows, width], load }
  })
  const ones = norms.map((name): GgufTensorInput => {
    const values = (): Float32Array => new Float32Array(width).fill(1)
    return { name: `${name}.weight`, format: 'F32', shape: [width], values }
  })
  await writeGguf(file, { metadata, tensors: [...blocks, ...ones] })
  const model = await DecoderRows.open(file)
  const rows = await model.rows(ids)
  await model.close()
  return rows
}

t.test('formats', { skip: noLanguageData }, async t => {
  const { tensors } = await readSafetensors(dataPath('llm', 'gguf-quants', 'golden.safetensors'))
  const bytesOf = (key: string): Uint8Array => {
    const { buffer, byteOffset, byteLength } = tensors.get(key)!.data
    return new Uint8Array(buffer, byteOffset, byteLength)
  }
  const formats = [...tensors.keys()].flatMap(key => /^(\w+)\.bytes$/.exec(key)?.[1] ?? [])
  t.ok(formats.length >= 23, `${formats.length} formats`)
  const folder = t.testdir()
  for (const format of formats as BlockFormat[]) {
    const rows = await logits(path.join(folder, 'blocks.gguf'), format, bytesOf(`${format}.bytes`))
    const expected = await logits(path.join(folder, 'f32.gguf'), 'F32', bytesOf(`${format}.values`))
    const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
    const error = distance(rows, expected)
    // Sums of f32.
    t.ok(error <= 1e-5 * largest, `${format}: ${error} of ${largest}`)
  }
})
