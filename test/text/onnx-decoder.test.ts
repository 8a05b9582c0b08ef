// Decoders that were exported to ONNX, in ragged form: their logits are those of the exported graphs, for several sequences
// in pieces; what cannot be brought to that form is refused by name.
import t from 'tap'
import { type Graph, tensorType } from '#lib/graph/graph.js'
import { Tensor } from '#lib/memory/tensor.js'
import { Model } from '#lib/model/model.js'
import { usualNames } from '#lib/text/onnx/decoder-ports.js'
import { type RaggedDecoder, raggedDecoder } from '#lib/text/onnx/ragged-graph.js'
import {
  type ExportedForm,
  exportedDecoder,
  exportedSizes,
  mergedDecoder,
} from '../fixtures/text/exported-decoder.js'

const { context, headSize, kvHeads, vocabulary, heads, hidden } = exportedSizes

const raggedOf = (graph: Graph): Promise<RaggedDecoder> =>
  raggedDecoder(graph, {
    names: usualNames,
    contextLength: context,
    vocabularySize: undefined,
    heads,
  })

/** Logits of all tokens of a sequence, from the exported graph. */
async function exportedLogits(graph: Graph, ids: readonly number[]): Promise<Float32Array> {
  using model = await Model.fromGraph(graph, { backend: 'js', precision: 'fp32' })
  const row = (values: readonly number[]): Tensor<'i64'> =>
    Tensor.of(BigInt64Array.from(values, BigInt), [1, values.length], 'i64')
  const feeds: Record<string, Tensor<'i64'> | Tensor<'f32'>> = {
    input_ids: row(ids),
    attention_mask: row(ids.map(() => 1)),
  }
  const empty = [1, kvHeads, 0, headSize]
  for (const { name } of graph.inputs.filter(input => input.name.startsWith('past')))
    feeds[name] = Tensor.of(new Float32Array(0), name === 'past_0' ? [2, ...empty] : empty, 'f32')
  if (graph.inputs.some(({ name }) => name === 'position_ids')) feeds.position_ids = row(ids.map((_, i) => i))
  const { logits } = await model.run<{ logits: 'f32' }>(feeds, { outputs: ['logits'] })
  return logits.data
}

const blockSize = 4

/** A sequence of the batch: its tokens, its blocks, and how many tokens are in the cache. */
interface Part {
  readonly ids: readonly number[]
  readonly blocks: readonly number[]
  readonly past: number
  readonly isLong?: boolean
}

const vector = (values: readonly number[]): Tensor<'i32'> =>
  Tensor.of(Int32Array.from(values), [values.length], 'i32')

/** Runs steps of batches on a ragged graph; gives the logits of all rows of each. */
async function raggedLogits(
  decoder: RaggedDecoder,
  steps: readonly (readonly Part[])[],
): Promise<Float32Array[]> {
  using model = await Model.fromGraph(decoder.graph({ blocks: 8, blockSize }), {
    backend: 'js',
    precision: 'fp32',
  })
  const caches = ['keys.0', 'values.0']
  const empty = (): Tensor<'f32'> =>
    Tensor.of(new Float32Array(8 * blockSize * kvHeads * headSize), [8, blockSize, kvHeads, headSize], 'f32')
  let state: Record<string, Tensor<'f32'>> = Object.fromEntries(caches.map(name => [name, empty()]))
  const logits: Float32Array[] = []
  for (const parts of steps) {
    const tokens = parts.flatMap(({ ids }) => ids)
    const starts = [0]
    for (const { ids } of parts) starts.push(starts.at(-1)! + ids.length)
    const results = await model.run<Record<string, 'f32'>>({
      ...state,
      tokens: vector(tokens),
      positions: vector(parts.flatMap(({ ids, past }) => ids.map((_, i) => past + i))),
      long: vector(parts.flatMap(({ ids, isLong }) => ids.map(() => (isLong ? 1 : 0)))),
      starts: vector(starts),
      past: vector(parts.map(({ past }) => past)),
      blocks: Tensor.of(Int32Array.from(parts.flatMap(({ blocks }) => blocks)), [parts.length, 3], 'i32'),
      rows: vector(tokens.map((_, i) => i)),
    })
    state = Object.fromEntries(caches.map(name => [name, results[`next_${name}`]!]))
    logits.push(results.logits!.data)
  }
  return logits
}

const first = [3, 1, 4, 1, 5, 9, 2, 6, 5]
const second = [10, 0, 7, 7, 2]

const forms: readonly (ExportedForm & { readonly is: string })[] = [
  { is: 'products and a softmax', attention: 'softmax' },
  { is: 'a window, a scale and a limit of scores', attention: 'softmax', window: 3, scale: 0.3, softcap: 2 },
  { is: 'computed positions', attention: 'softmax', computesPositions: true },
  { is: 'keys and values in one input', attention: 'softmax', isPaired: true },
  { is: 'Attention, keys and values in one input', attention: 'standard', isPaired: true },
  { is: 'Attention of joined keys', attention: 'joined', window: 5, scale: 0.4 },
  { is: 'Attention with a mask', attention: 'standard' },
  { is: 'Attention with a window', attention: 'standard', window: 4, scale: 0.7, softcap: 1.5 },
  { is: 'GroupQueryAttention', attention: 'grouped' },
  {
    is: 'GroupQueryAttention with a window',
    attention: 'grouped',
    window: 3,
    softcap: 2,
    computesPositions: true,
  },
]

for (const form of forms) {
  t.test(`logits of two sequences in pieces: ${form.is}`, async t => {
    const graph = exportedDecoder(form)
    const decoder = await raggedOf(graph)
    t.strictSame(decoder.layers, [{ kvHeads, headSize }])
    t.equal(decoder.vocabularySize, vocabulary)
    t.equal(decoder.hiddenSize, hidden)
    const [a, b] = [
      [5, 0, 3],
      [2, 6, 1],
    ]
    const steps = await raggedLogits(decoder, [
      [{ ids: first.slice(0, 4), blocks: a, past: 0 }],
      [
        { ids: second, blocks: b, past: 0 },
        { ids: first.slice(4, 5), blocks: a, past: 4 },
      ],
      [{ ids: first.slice(5), blocks: a, past: 5 }],
    ])
    const whole = steps.map(values => Array.from(values))
    const ofFirst = [...whole[0]!, ...whole[1]!.slice(second.length * vocabulary), ...whole[2]!]
    const wantedFirst = Array.from(await exportedLogits(graph, first))
    const wantedSecond = Array.from(await exportedLogits(graph, second))
    const worst = (got: number[], wanted: number[]): number =>
      got.length === wanted.length
        ? Math.max(...got.map((value, i) => Math.abs(value - wanted[i]!)))
        : Number.POSITIVE_INFINITY
    // Sums of at most 16 products of numbers below 4 in f32.
    t.ok(worst(ofFirst, wantedFirst) < 2e-5, `${worst(ofFirst, wantedFirst)}`)
    t.ok(worst(whole[1]!.slice(0, second.length * vocabulary), wantedSecond) < 2e-5)
  })
}

t.test('a table of rotary embeddings for long sequences', async t => {
  const graph = exportedDecoder({ attention: 'grouped', shortLength: 6 })
  const decoder = await raggedOf(graph)
  t.equal(decoder.shortLength, 6)
  for (const ids of [first, second]) {
    const part = { ids, blocks: [1, 4, 6], past: 0, isLong: ids.length > 6 }
    const [logits] = await raggedLogits(decoder, [[part]])
    const wanted = await exportedLogits(graph, ids)
    const worst = Math.max(...wanted.map((value, i) => Math.abs(value - logits![i]!)))
    t.ok(worst < 2e-5, `${ids.length} tokens: ${worst}`)
  }
})

t.test('of a merged decoder the branch with a past is taken', async t => {
  for (const attention of ['standard', 'grouped'] as const) {
    const decoder = await raggedOf(mergedDecoder({ attention }))
    const [logits] = await raggedLogits(decoder, [[{ ids: first, blocks: [1, 4, 6], past: 0 }]])
    const wanted = await exportedLogits(exportedDecoder({ attention }), first)
    const worst = Math.max(...wanted.map((value, i) => Math.abs(value - logits![i]!)))
    t.ok(worst < 2e-5, `${attention}: ${worst}`)
  }
})

t.test('dynamic quantization does not let tokens depend on other sequences', async t => {
  const form = { attention: 'standard', isQuantized: true } as const
  const decoder = await raggedOf(exportedDecoder(form))
  const part = { ids: first, blocks: [1, 4, 6], past: 0 }
  const [alone] = await raggedLogits(decoder, [[part]])
  const [beside] = await raggedLogits(decoder, [[part, { ids: second, blocks: [2, 0, 3], past: 0 }]])
  t.strictSame(beside!.slice(0, alone!.length), alone)
  const wanted = await exportedLogits(exportedDecoder(form), first)
  const worst = Math.max(...wanted.map((value, i) => Math.abs(value - alone![i]!)))
  t.ok(worst < 0.05, `${worst}: activations of the exported graph are rounded to bytes`)
  t.ok(worst > 0)
})

t.test('what is wanted of the last state', async t => {
  const graph = (await raggedOf(exportedDecoder({ attention: 'standard' }))).graph({ blocks: 2, blockSize })
  t.strictSame(
    graph.outputs.map(({ name }) => name),
    ['next_keys.0', 'next_values.0', 'hidden', 'logits'],
  )
  const product = graph.nodes.findLast(({ op }) => op === 'MatMul')
  const gather = graph.nodes.find(({ outputs }) => outputs[0] === product?.inputs[0])
  t.equal(gather?.op, 'Gather', 'logits are computed of wanted rows only')
  t.equal(gather?.inputs[1], 'rows')
})

t.test('attention of another kind is refused, naming its node or mask', async t => {
  const refused = (form: ExportedForm, message: RegExp): Promise<unknown> =>
    t.rejects(raggedOf(exportedDecoder(form)), { code: 'ERR_UNSUPPORTED', message })
  await refused(
    { attention: 'standard', seesLater: true },
    /'attention' \(Attention\): it reads later tokens/,
  )
  await refused({ attention: 'softmax', seesLater: true }, /reads later tokens/)
  await refused({ attention: 'softmax', slope: 0.5 }, /the mask '.*' adds -\d+.* to a score/)
})

t.test('inputs and outputs that a decoder does not have are named', async t => {
  const graph = exportedDecoder({ attention: 'standard' })
  const withInput = (name: string): Graph => ({ ...graph, inputs: [...graph.inputs, { name }] })
  const refused = (odd: Graph, message: RegExp): Promise<unknown> =>
    t.rejects(raggedOf(odd), { code: 'ERR_UNSUPPORTED', message })
  await refused(withInput('past_conv.0'), /'past_conv\.0', the state of a convolution/)
  await refused(withInput('encoder_hidden_states'), /'encoder_hidden_states', what an encoder gives/)
  await refused({ ...graph, outputs: [] }, /no output 'logits'/)
  const bare = graph.inputs.filter(({ name }) => !name.startsWith('past'))
  await refused({ ...graph, inputs: bare }, /no inputs for keys and values/)
  const half = graph.inputs.filter(({ name }) => name !== 'past_key_values.0.value')
  const huge = graph.inputs.map(info =>
    info.name.startsWith('past') ? { ...info, type: tensorType('f32', [1, kvHeads, 'past', 1e12]) } : info,
  )
  await t.rejects(raggedOf({ ...graph, inputs: huge }), { code: 'ERR_FORMAT', message: /1000000000000/ })
  await t.rejects(raggedOf({ ...graph, inputs: half }), {
    code: 'ERR_FORMAT',
    message: /layer 0 has not both/,
  })
})
