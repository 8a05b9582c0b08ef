// GGUF files of all architectures and formats against results with their dequantized weights.
import { readdirSync } from 'node:fs'
import { readSafetensors, TextModel } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import t, { type Test } from 'tap'
import { DecoderRows, distance } from '../fixtures/text/decoder-rows.js'
import { dataPath, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

interface Golden {
  readonly prompts: readonly { readonly input_ids: number[] }[]
  readonly greedy: { readonly prompt: string; readonly ids: number[] }
  readonly tolerance: { readonly logits_abs: number }
  readonly tokenize: readonly { readonly text: string; readonly ids: number[] }[]
}

const files = noLanguageData
  ? []
  : readdirSync(dataPath('lm-golden', 'gguf'))
      .filter(file => file.endsWith('.gguf'))
      .map(file => file.replace('.gguf', ''))

t.test('files', { skip: noLanguageData }, async t => t.ok(files.length > 0))

for (const name of files)
  t.test(name, async t => {
    const path = dataPath('lm-golden', 'gguf', `${name}.gguf`)
    const golden = readJson<Golden>('lm-golden', 'gguf', `${name}.golden.json`)
    const { tensors } = await readSafetensors(dataPath('lm-golden', 'gguf', `${name}.golden.safetensors`))
    const model = await DecoderRows.open(path)
    for (const [i, { input_ids: ids }] of golden.prompts.entries()) {
      const rows = await model.rows(ids)
      const last = rows.subarray(rows.length - rows.length / ids.length)
      const wanted = tensors.get(`p${i}.last_logits`)!.data as Float32Array
      t.ok(distance(last, wanted) <= golden.tolerance.logits_abs, `p${i}`)
    }
    const { greedy } = golden
    const prompt = golden.prompts[Number(greedy.prompt.slice(1))]!.input_ids
    t.strictSame((await model.greedy(prompt, greedy.ids.length)).ids, greedy.ids)
    await model.close()
    using loaded = await TextModel.load(path, { cacheTokens: 64 })
    for (const { text, ids } of golden.tokenize) t.strictSame(loaded.tokenizer.encode(text), ids, text)
  })

/** How far the logits of rounded rows are from those of the dequantized weights, which they must be alone as among others. */
async function roundedRows(t: Test, name: string, activations: 'bf16' | 'int8'): Promise<number> {
  const { prompts } = readJson<Golden>('lm-golden', 'gguf', `${name}.golden.json`)
  const { tensors } = await readSafetensors(dataPath('lm-golden', 'gguf', `${name}.golden.safetensors`))
  const path = dataPath('lm-golden', 'gguf', `${name}.gguf`)
  const model = await DecoderRows.open(path, { activations, backend: 'cpu' })
  const ids = prompts[0]!.input_ids
  const rows = await model.rows(ids)
  const wanted = tensors.get('p0.logits')!.data as Float32Array
  const error = distance(rows, wanted)
  t.comment(`${name}: logits differ by ${error.toPrecision(3)} of ${Math.max(...wanted).toPrecision(3)}`)
  const last = rows.slice(rows.length - rows.length / ids.length)
  const { logits } = await model.greedy(ids, 1)
  t.strictSame(logits[0], last, 'the same alone and among others')
  await model.close()
  return error
}

t.test('rows that are rounded to bytes', { skip: noLanguageData }, async t => {
  for (const name of ['llama.Q4_0', 'llama.Q8_0', 'llama-k.K_M']) {
    const error = await roundedRows(t, name, 'int8')
    // 8 bits move the logits of these small models by 0.2 to 0.4 (README of the golden data).
    t.ok(error > 1e-3 && error < 0.8, `${name}: ${error}`)
  }
})

t.test('rows that are rounded to bf16', { skip: noLanguageData }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const error = await roundedRows(t, 'llama.BF16', 'bf16')
  // 9 bits, one more than a byte has with its sign, move them less; without such instructions nothing is rounded.
  if (kernels.bf16Support === 'none') t.ok(error < 1e-3, `${error}`)
  else t.ok(error > 1e-3 && error < 0.2, `${error}`)
  t.ok((await roundedRows(t, 'llama.F16', 'bf16')) < 1e-3, 'weights of other formats are multiplied as ever')
})

t.test('keys and values that are rounded', { skip: noLanguageData }, async t => {
  const golden = readJson<Golden>('lm-golden', 'gguf', 'llama.F16.golden.json')
  const { tensors } = await readSafetensors(dataPath('lm-golden', 'gguf', 'llama.F16.golden.safetensors'))
  const wanted = tensors.get('p2.last_logits')!.data as Float32Array
  const ids = golden.prompts[2]!.input_ids
  // Of the largest logit: half a unit in the last place, 2^-12, 2^-9, 2^-8 of the largest of a head, and 2^-4, times 8 for what layers
  // make of it.
  const bounds = { f16: 2 ** -9, bf16: 2 ** -6, i8: 2 ** -5, f8_e4m3: 2 ** -1 } as const
  const largest = Math.max(...wanted)
  let before = 0
  for (const [cacheType, bound] of Object.entries(bounds) as [keyof typeof bounds, number][]) {
    const model = await DecoderRows.open(dataPath('lm-golden', 'gguf', 'llama.F16.gguf'), { cacheType })
    const { logits } = await model.greedy(ids, 1)
    const error = distance(logits[0]!, wanted)
    t.comment(`${cacheType}: logits differ by ${error.toPrecision(3)} of ${largest.toPrecision(3)}`)
    t.ok(error > before && error < bound * largest, `${cacheType}: ${error}`)
    before = error
    await model.close()
  }
})

t.test('stories260K: 200 greedy tokens of the folder and of all files', { skip: noLanguageData }, async t => {
  const stories = (...names: string[]): string => dataPath('llm', 'stories260K', ...names)
  const { tensors } = await readSafetensors(stories('golden.safetensors'))
  const quantized = await readSafetensors(stories('golden-gguf.safetensors'))
  const numbers = (data: ArrayLike<unknown>): number[] => Array.from(data, Number)
  const ids = numbers(tensors.get('ids')!.data)
  for (const [path, wanted, logits] of [
    ['hf', ids, tensors.get('logits_first64')!],
    ['gguf/stories260K-f32.gguf', ids, tensors.get('logits_first64')!],
    ...['f16', 'q8_0', 'q4_0'].map(
      format =>
        [
          `gguf/stories260K-${format}.gguf`,
          numbers(quantized.tensors.get(`${format}.greedy`)!.data),
          quantized.tensors.get(`${format}.logits_first64`)!,
        ] as const,
    ),
  ] as const) {
    const model = await DecoderRows.open(stories(path))
    const greedy = await model.greedy(wanted.slice(0, 1), wanted.length - 1)
    t.strictSame(greedy.ids, wanted.slice(1), path)
    t.ok(
      distance(await model.rows(ids.slice(0, 64)), logits.data as Float64Array) < 1e-4,
      `logits of ${path}`,
    )
    await model.close()
  }
})
