// Decoders in ONNX whose weights are quantized in blocks: they stay so in memory, and their logits are those of f32.
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import { givenInt } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeNode } from '#lib/graph/graph.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import type { Decoder } from '#lib/text/architectures/decoder.js'
import { readModelFiles } from '#lib/text/files/model-files.js'
import { TextModel } from '#lib/text/text-model.js'
import { weightBytes } from '#lib/weights/encode.js'
import { close } from '../fixtures/close.js'
import { type BlockForm, blockExport } from '../fixtures/text/block-export.js'
import { writeByteTokenizer } from '../fixtures/text/chat-model.js'
import { DecoderRows, distance } from '../fixtures/text/decoder-rows.js'
import { type ExportedForm, exportedDecoder } from '../fixtures/text/exported-decoder.js'

const sizes = { vocabulary: 258, hidden: 128, heads: 4, kvHeads: 2, headSize: 32, context: 64 }
const grouped: ExportedForm = { attention: 'grouped', sizes }

/** A folder as onnxruntime-genai has them. */
function genaiFolder(folder: string, graph: Graph): string {
  writeByteTokenizer(folder)
  const model = {
    ...{ type: 'llama', context_length: sizes.context, vocab_size: sizes.vocabulary, eos_token_id: 257 },
    decoder: {
      filename: 'model.onnx',
      num_attention_heads: sizes.heads,
      num_key_value_heads: sizes.kvHeads,
      head_size: sizes.headSize,
    },
  }
  writeFileSync(path.join(folder, 'genai_config.json'), JSON.stringify({ model, search: {} }))
  writeFileSync(path.join(folder, 'model.onnx'), serializeOnnx(graph))
  return folder
}

/** A folder as onnx-community has them. */
function communityFolder(folder: string, graph: Graph): string {
  writeByteTokenizer(folder)
  const config = {
    model_type: 'llama',
    ...{ hidden_size: sizes.hidden, num_attention_heads: sizes.heads, num_key_value_heads: sizes.kvHeads },
    ...{ head_dim: sizes.headSize, vocab_size: sizes.vocabulary, max_position_embeddings: sizes.context },
  }
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(config))
  mkdirSync(path.join(folder, 'onnx'))
  writeFileSync(path.join(folder, 'onnx', 'model_q4.onnx'), serializeOnnx(graph))
  return folder
}

/** Formats of the weights of a folder, and how many times larger they would be in f32. */
async function weightsOf(folder: string): Promise<{ formats: readonly string[]; ratio: number }> {
  const { model } = await readModelFiles(folder, new Pacer())
  if (model.kind !== 'decoder') throw new Error('no decoder')
  const { initializers } = model.decoder.graph({ blocks: 1, blockSize: 32 })
  const matrices = [...initializers.values()].filter(({ count }) => count >= sizes.hidden * sizes.hidden)
  const bytes = matrices.map(({ weight, byteLength }) =>
    weight ? weightBytes(weight.shared.kept) : byteLength,
  )
  const floats = matrices.reduce((sum, { byteLength }) => sum + byteLength, 0)
  const formats = new Set(matrices.map(({ weight }) => weight?.shared.format ?? 'f32'))
  return { formats: [...formats], ratio: floats / bytes.reduce((sum, count) => sum + count, 0) }
}

const ids = [3, 200, 17, 99, 4, 4, 255, 31, 8]

async function logitsOf(folder: string, options: object = {}): Promise<Float32Array> {
  const rows = await DecoderRows.open(folder, { backend: 'cpu', ...options })
  try {
    return await rows.rows(ids)
  } finally {
    await rows.close()
  }
}

const forms: readonly (BlockForm & { is: string; format: string; ratio: number; experts?: number })[] = [
  { is: 'q4', bits: 4, block: 32, format: 'u4_32', ratio: 128 / 21 },
  { is: 'q4 with zero points', bits: 4, block: 128, zeros: true, format: 'u4_128', ratio: 512 / 69 },
  { is: 'q4f16', bits: 4, block: 32, half: true, format: 'q4_0', ratio: 128 / 18 },
  { is: 'int8', bits: 8, block: 64, zeros: true, format: 'u8_32', ratio: 128 / 37 },
  { is: 'q4 of experts', bits: 4, block: 32, experts: 5, format: 'u4_32', ratio: 128 / 21 },
  { is: 'q4f16 of experts', bits: 4, block: 128, experts: 5, half: true, format: 'u4_128', ratio: 512 / 69 },
  { is: 'QDQ', bits: 4, block: 128, standard: true, format: 'u4_128', ratio: 512 / 69 },
  { is: 'QDQ of f16', bits: 4, block: 32, standard: true, half: true, format: 'q4_0', ratio: 128 / 18 },
]

for (const { is, format, ratio, experts = 0, ...form } of forms) {
  t.test(is, async t => {
    const dir = t.testdir()
    const { quantized, decoded } = blockExport(exportedDecoder({ ...grouped, experts }), form)
    const folder = genaiFolder(path.join(dir, 'quantized'), quantized)
    const plain = genaiFolder(path.join(dir, 'plain'), decoded)
    t.match(await weightsOf(plain), { formats: ['f32'], ratio: 1 })
    const kept = await weightsOf(folder)
    t.strictSame(kept, { formats: [format], ratio })
    const expected = await logitsOf(plain)
    close(t, await logitsOf(folder), expected, 2e-6, `1/${kept.ratio.toFixed(2)} of the memory of f32`)
    const rounded = await logitsOf(folder, { activations: 'int8' })
    const [moved, largest] = [distance(rounded, expected), Math.max(...expected.map(Math.abs))]
    // Rows that are rounded may choose other experts.
    t.ok(
      moved > 0 && moved < (experts > 0 ? largest : largest / 5),
      `int8 activations move logits by ${moved} of ${largest}`,
    )
  })
}

t.test('a folder of onnx-community, by its public door', async t => {
  const form = { bits: 4, block: 32, zeros: true } as const
  const exported = exportedDecoder({ attention: 'softmax', sizes })
  const { quantized, decoded } = blockExport(exported, form)
  const dir = t.testdir()
  const folder = communityFolder(path.join(dir, 'quantized'), quantized)
  const plain = communityFolder(path.join(dir, 'plain'), decoded)
  t.strictSame(await weightsOf(folder), { formats: ['u4_32'], ratio: 128 / 21 })
  const texts = []
  for (const source of [folder, plain]) {
    using model = await TextModel.load(source)
    texts.push(await model.generate('Once upon', { maxTokens: 20, temperature: 0 }).result())
  }
  t.strictSame(texts[0]!.ids, texts[1]!.ids)
  t.equal(texts[0]!.ids.length, 20)
})

/** The graph whose table of tokens has the codes of its last layer, in another shape as onnxruntime-genai writes it. */
function withTiedTable(graph: Graph, isReshaped: boolean): Graph {
  const last = graph.nodes.find(node => givenInt(node, 'N') === sizes.vocabulary)!
  const [, codes = '', scales = '', ...zeros] = last.inputs
  const shape = [sizes.vocabulary, sizes.hidden / 2]
  const nodes = graph.nodes.map(node =>
    node.op === 'GatherBlockQuantized' && node.inputs[1] === 'input_ids'
      ? { ...node, inputs: ['tied', 'input_ids', scales, ...zeros] }
      : node,
  )
  const constant = Constant.from('u8', shape, graph.initializers.get(codes)!.bytes.slice())
  return isReshaped
    ? {
        ...graph,
        nodes: [makeNode('Reshape', [codes, 'tied_shape'], ['tied']), ...nodes],
        initializers: new Map([...graph.initializers, ['tied_shape', Constant.i64(shape)]]),
      }
    : { ...graph, nodes, initializers: new Map([...graph.initializers, ['tied', constant]]) }
}

t.test('a table of tokens that is the last layer is kept once', async t => {
  const { quantized } = blockExport(exportedDecoder(grouped), { bits: 4, block: 32, zeros: true })
  const dir = t.testdir()
  const logits: Float32Array[] = []
  for (const isReshaped of [true, false]) {
    const folder = genaiFolder(path.join(dir, `${isReshaped}`), withTiedTable(quantized, isReshaped))
    const { model } = await readModelFiles(folder, new Pacer())
    const { initializers } = (model as { decoder: Decoder }).decoder.graph({ blocks: 1, blockSize: 32 })
    const large = [...initializers.values()].filter(({ weight }) => weight?.shared.rows === sizes.vocabulary)
    t.equal(large.length, 2)
    t.equal(large[0]!.weight!.shared, large[1]!.weight!.shared)
    logits.push(await logitsOf(folder))
  }
  t.strictSame(logits[0], logits[1])
})

t.test('dynamic quantization keeps weights of bytes', async t => {
  const form: ExportedForm = { ...grouped, isQuantized: true }
  const folder = genaiFolder(path.join(t.testdir(), 'int8'), exportedDecoder(form))
  const { formats, ratio } = await weightsOf(folder)
  t.strictSame([...formats].sort(), ['f32', 'u8_128'], 'tables of tokens are f32 in the file')
  t.ok(ratio > 1.5, `1/${ratio.toFixed(2)}`)
  t.ok((await logitsOf(folder)).every(Number.isFinite))
})
