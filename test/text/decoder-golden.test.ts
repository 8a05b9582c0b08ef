// Decoders against the results of the reference library: logits, states, greedy tokens, batches, chunks, log probabilities.

import { readSafetensors, type SafetensorsFile, TextModel } from 'dgx-spark'
import t from 'tap'
import { DecoderRows, distance } from '../fixtures/text/decoder-rows.js'
import { dataPath, foldersOf, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

interface Golden {
  readonly prompts: readonly { readonly input_ids: number[] }[]
  readonly greedy: { readonly prompt: string; readonly ids: number[] }
  readonly batch: { readonly rows: number[]; readonly greedy_8: number[][] }
  readonly logprob: {
    readonly prompt: string
    readonly continuation_ids: number[]
    readonly values: number[]
  }
  readonly crossing?: { readonly recompute_every_step: number[] }
  readonly tolerance: { readonly logits_abs: number; readonly hidden_abs: number }
}

const folders = noLanguageData ? [] : foldersOf('lm-golden', 'models')
const promptOf = ({ prompts }: Golden, name: string): number[] => prompts[Number(name.slice(1))]!.input_ids

/** The rows of the batch without what fills them up. */
function batchRows({ tensors }: SafetensorsFile): number[][] {
  const { data, shape } = tensors.get('batch.input_ids')!
  const mask = tensors.get('batch.attention_mask')!.data
  const [rows, width] = shape as [number, number]
  return Array.from({ length: rows }, (_, row) =>
    Array.from(data as Int32Array)
      .slice(row * width, (row + 1) * width)
      .filter((_, i) => Number(mask[row * width + i]) === 1),
  )
}

t.test('models', { skip: noLanguageData }, async t => t.ok(folders.length > 0))

for (const name of folders)
  t.test(name, async t => {
    const golden = readJson<Golden>('lm-golden', 'models', name, 'golden.json')
    const file = await readSafetensors(dataPath('lm-golden', 'models', name, 'golden.safetensors'))
    const expected = (key: string): ArrayLike<number> => file.tensors.get(key)!.data as Float32Array
    const { logits_abs: tolerance, hidden_abs: hiddenTolerance } = golden.tolerance
    const model = await DecoderRows.open(dataPath('lm-golden', 'models', name))

    for (const [i, { input_ids: ids }] of golden.prompts.entries()) {
      const rows = await model.rows(ids)
      const width = rows.length / ids.length
      if (file.tensors.has(`p${i}.logits`))
        t.ok(distance(rows, expected(`p${i}.logits`)) <= tolerance, `logits of p${i}`)
      const last = rows.subarray(rows.length - width)
      t.ok(distance(last, expected(`p${i}.last_logits`)) <= tolerance, `last logits of p${i}`)
      const hidden = await model.rows(ids, 'hidden')
      t.ok(distance(hidden, expected(`p${i}.last_hidden_state`)) <= hiddenTolerance, `states of p${i}`)
    }

    const greedy = await model.greedy(promptOf(golden, golden.greedy.prompt), golden.greedy.ids.length)
    t.strictSame(greedy.ids, golden.greedy.ids, 'greedy tokens')
    const rows = batchRows(file)
    const together = await Promise.all(rows.map(ids => model.greedy(ids, 8)))
    t.strictSame(
      together.map(({ ids }) => ids),
      golden.batch.greedy_8,
      'greedy tokens of a batch',
    )
    if (golden.crossing) {
      const { recompute_every_step: wanted } = golden.crossing
      t.strictSame((await model.greedy(promptOf(golden, 'p3'), wanted.length)).ids, wanted, 'a long sequence')
    }
    const whole = await model.greedy(promptOf(golden, 'p4').slice(0, 36), 4)
    await model.close()

    const chunked = await DecoderRows.open(dataPath('lm-golden', 'models', name), { batchTokens: 5 })
    t.strictSame(
      await chunked.greedy(promptOf(golden, 'p4').slice(0, 36), 4),
      whole,
      'a prompt in chunks, bit for bit',
    )
    await chunked.close()
  })

t.test('log probabilities', { skip: noLanguageData }, async t => {
  const golden = readJson<Golden>('lm-golden', 'models', 'qwen3', 'golden.json')
  const { prompt, continuation_ids: continuation, values } = golden.logprob
  using model = await TextModel.load(dataPath('lm-golden', 'models', 'qwen3'), { cacheTokens: 512 })
  const input = Int32Array.from([...promptOf(golden, prompt), ...continuation])
  const { ids, logprobs } = await model.logProbabilities(input)
  t.strictSame(ids, Array.from(input))
  t.ok(distance(logprobs.slice(-values.length), values) <= 2 * golden.tolerance.logits_abs)
  const mean = logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length
  t.equal(await model.perplexity(input), Math.exp(-mean))
})
