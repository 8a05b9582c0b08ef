// Folders of ONNX decoders: layouts of optimum and onnxruntime-genai, their configurations, and tokens of real files.
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { parseSafetensors } from '#lib/io/safetensors.js'
import { Tensor } from '#lib/memory/tensor.js'
import { Model } from '#lib/model/model.js'
import { genaiDefaults } from '#lib/text/files/generation-defaults.js'
import { DecoderEngine } from '#lib/text/generation/decoder-engine.js'
import { findOnnxDecoder } from '#lib/text/onnx/decoder-files.js'
import { openOnnxDecoder } from '#lib/text/onnx/open-decoder.js'
import { TextModel } from '#lib/text/text-model.js'
import type { TextModelOptions } from '#lib/text/text-options.js'
import type { TextTokenizer } from '#lib/text/text-tokenizer.js'
import { dataPath, noLanguageData } from '../fixtures/text/golden-data.js'

const stories = (...names: string[]): string => dataPath('llm', 'stories260K', ...names)
const genai = (name: string): string => dataPath('llm', 'genai', name)

/** A folder of optimum's layout around one of the models. */
function storiesFolder(folder: string, model: string, file: string): string {
  mkdirSync(path.dirname(path.join(folder, file)), { recursive: true })
  for (const name of ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json'])
    copyFileSync(stories('hf', name), path.join(folder, name))
  copyFileSync(stories('onnx', model), path.join(folder, file))
  return folder
}

/** The first token and the 200 that follow. */
function goldenIds(): number[] {
  const { tensors } = parseSafetensors(readFileSync(stories('golden.safetensors')))
  return Array.from(tensors.get('ids')!.data as ArrayLike<number | bigint>, Number)
}

async function greedyIds(
  source: string,
  begin: number,
  maxTokens: number,
  options: TextModelOptions = {},
): Promise<readonly number[]> {
  using model = await TextModel.load(source, options)
  const generation = model.generate(Int32Array.of(begin), { maxTokens, temperature: 0 })
  return (await generation.result()).ids
}

t.test('200 tokens of a model in both forms', { skip: noLanguageData }, async t => {
  const [begin, ...ids] = goldenIds()
  const folder = storiesFolder(t.testdir(), 'model.onnx', 'onnx/model.onnx')
  t.strictSame(await greedyIds(folder, begin!, 200), ids, 'GroupQueryAttention')
  const bare = storiesFolder(path.join(folder, 'bare'), 'model_opset23.onnx', 'model.onnx')
  t.strictSame(await greedyIds(bare, begin!, 200), ids, 'Attention, beside its configuration')
  t.strictSame(
    await greedyIds(path.join(folder, 'onnx', 'model.onnx'), begin!, 3),
    ids.slice(0, 3),
    'the file itself',
  )
  const inBytes = { cacheType: 'i8' } as const
  const expected = await greedyIds(stories('hf'), begin!, 30, inBytes)
  t.strictSame(await greedyIds(folder, begin!, 30, inBytes), expected, 'keys and values of i8')
})

async function openGenai(name: string): Promise<DecoderEngine> {
  const files = await findOnnxDecoder(genai(name))
  return DecoderEngine.open(await openOnnxDecoder(files!, new Pacer()), {})
}

/** Tokens that a decoder adds, the most likely ones. */
async function addedIds(
  engine: DecoderEngine,
  ids: readonly number[],
  maxTokens: number,
): Promise<readonly number[]> {
  const added: number[] = []
  await engine.scheduler.submit({
    ...{ ids, maxTokens, output: 'logits', rows: 'last' },
    next: logits => {
      added.push(logits.indexOf(logits.reduce((most, value) => Math.max(most, value))))
      return added.at(-1)
    },
  })
  return added
}

t.test('tokens that onnxruntime-genai expects', { skip: noLanguageData }, async t => {
  const engine = await openGenai('tiny-random-gpt2-fp32')
  const [first, second] = await Promise.all([
    addedIds(engine, [0, 0, 0, 52], 6),
    addedIds(engine, [0, 0, 195, 731], 6),
  ])
  t.strictSame(first, [204, 204, 204, 204, 204, 204])
  t.strictSame(second, [731, 114, 114, 114, 114, 114])
  await engine.close()
})

t.test('a model of f16 computes in f32, from matrices of f16', { skip: noLanguageData }, async t => {
  const files = (await findOnnxDecoder(genai('tiny-qwen35-cuda')))!
  const decoder = await openOnnxDecoder(files, new Pacer())
  t.strictSame(decoder.sizes.layers, Array(2).fill({ kvHeads: 2, headSize: 16 }))
  const graph = decoder.graph({ blocks: 1, blockSize: 16 })
  const matrices = [...graph.initializers.values()].filter(({ shape }) => shape.length === 2)
  t.ok(matrices.every(({ weight }) => weight?.shared.format === 'f16'))
  const ids = [5, 400, 77, 999, 1]
  const wanted = await logitsInF16(files.file, ids)
  const engine = await DecoderEngine.open(decoder, {})
  const rows: Float32Array[] = []
  await engine.scheduler.submit({
    ...{ ids, maxTokens: 1, output: 'logits', rows: 'all' },
    next: logits => void rows.push(logits.slice()),
  })
  await engine.close()
  const got = rows.flatMap(row => Array.from(row))
  const most = Math.max(...wanted.map(Math.abs))
  const worst = Math.max(...got.map((value, i) => Math.abs(value - wanted[i]!)))
  t.equal(got.length, wanted.length)
  t.ok(worst < 1e-2 * most, `${worst} of ${most}: rounding to f16 between nodes`)
})

async function logitsInF16(file: string, ids: readonly number[]): Promise<number[]> {
  using model = await Model.fromGraph(await readOnnx(file), { precision: 'fp32' })
  const pasts = model.inputs.filter(({ name }) => name.startsWith('past'))
  const empty = Tensor.of(new Uint16Array(0), [1, 2, 0, 16], 'f16')
  const { logits } = await model.run({
    input_ids: Tensor.of(Int32Array.from(ids), [1, ids.length], 'i32'),
    attention_mask: Tensor.of(
      BigInt64Array.from(ids, () => 1n),
      [1, ids.length],
      'i64',
    ),
    ...Object.fromEntries(pasts.map(({ name }) => [name, empty])),
  })
  return Array.from(logits!.to('f32').data)
}

t.test('models of other kinds are refused by name', { skip: noLanguageData }, async t => {
  await t.rejects(openGenai('tiny-random-lfm2-fp32'), {
    code: 'ERR_UNSUPPORTED',
    message: /decoder\.onnx: it has an input 'past_conv\.0', the state of a convolution/,
  })
  await t.rejects(openGenai('synthetic-paged'), {
    code: 'ERR_UNSUPPORTED',
    message: /decoder\.onnx: it has an input 'cumulative_sequence_lengths', a table of paged keys and values/,
  })
})

t.test('what genai_config.json says about generating', async t => {
  const tokenizer = { specialTokens: { eos: { id: 9, text: '</s>' } } } as unknown as TextTokenizer
  const search = { do_sample: true, top_k: 40, top_p: 0.9, temperature: 0.7, repetition_penalty: 1.1 }
  const config = { model: { eos_token_id: [7, 8] }, search }
  t.strictSame(genaiDefaults(config, 'genai_config.json', tokenizer), {
    endIds: new Set([7, 8, 9]),
    sampling: { topK: 40, topP: 0.9, temperature: 0.7, repetitionPenalty: 1.1 },
  })
  const greedy = { ...config, search: { ...search, do_sample: false } }
  t.strictSame(genaiDefaults(greedy, 'genai_config.json', tokenizer).sampling, {})
  const wrong = { model: { eos_token_id: 'end' } }
  t.throws(() => genaiDefaults(wrong, 'genai_config.json', tokenizer), {
    code: 'ERR_FORMAT',
    message: /eos_token_id of model of genai_config\.json must be a token id/,
  })
})

t.test('configurations', async t => {
  const found = async (files: Record<string, string>) => findOnnxDecoder(t.testdir(files))
  t.equal(await found({ 'config.json': '{}' }), undefined, 'a folder without models')
  const model = {
    type: 'llama',
    context_length: 64,
    eos_token_id: [1, 2],
    decoder: { filename: 'd.onnx', head_size: 4 },
  }
  const text = (changes: object): string => JSON.stringify({ model: { ...model, ...changes } })
  const files = await found({ 'genai_config.json': text({}) })
  t.equal(path.basename(files!.file), 'd.onnx')
  t.match(files!.options, { contextLength: 64, headSize: 4, names: { ids: 'input_ids' } })
  const named = {
    decoder: { inputs: { input_ids: 'ids', past_names: 'kv_%d' }, outputs: { logits: 'scores' } },
  }
  const { options } = (await found({ 'genai_config.json': text(named) }))!
  t.match(options.names, { ids: 'ids', pairs: ['kv_%d'], logits: 'scores' })
  const refused = (changes: object, code: string, message: RegExp): Promise<unknown> =>
    t.rejects(found({ 'genai_config.json': text(changes) }), { code, message })
  await refused({ decoder: { pipeline: [{}] } }, 'ERR_UNSUPPORTED', /models in several parts/)
  await refused({ decoder: { filename: '../d.onnx' } }, 'ERR_FORMAT', /filename .* must be a file beside/)
  await refused({ context_length: 'long' }, 'ERR_FORMAT', /context_length/)
  const folder = { 'config.json': '{"model_type":"llama"}', 'model.onnx': '' }
  await t.rejects(found(folder), { code: 'ERR_FORMAT', message: /no max_position_embeddings/ })
})
