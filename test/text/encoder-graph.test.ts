// Graphs of encoders: hidden states and pooled ones are those of the architectures, whatever else is in the batch.
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import { randomGenerator } from '#lib/core/random.js'
import { readSafetensors } from '#lib/io/safetensors.js'
import { Tensor } from '#lib/memory/tensor.js'
import { Model } from '#lib/model/model.js'
import { encoderGraph, type Pooling, poolings } from '#lib/text/architectures/encoder.js'
import { readEncoderConfig } from '#lib/text/architectures/encoder-config.js'
import { loadFolderWeights } from '#lib/text/files/folder-weights.js'
import {
  type EncoderKind,
  encoderConfigs,
  encoderReference,
  randomEncoder,
  sourceOfTensors,
  type Tensors,
} from '../fixtures/text/encoder-reference.js'
import { dataPath, foldersOf, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

/** Outputs of the graph. */
type Outputs = Record<Pooling | 'hidden', 'f32'>

type Rows = readonly (readonly number[])[]

/** Texts as inputs of the graph, with `more` tokens of padding than the longest needs. */
function feedsOf(texts: Rows, more = 0) {
  const length = Math.max(...texts.map(ids => ids.length)) + more
  // Padding is the id 7, which a text may have: what is behind the end must not matter.
  const tokens = texts.flatMap(ids => [...ids, ...new Array<number>(length - ids.length).fill(7)])
  const lengths = Int32Array.from(texts, ids => ids.length)
  return { tokens: Tensor.from(Int32Array.from(tokens), { shape: [texts.length, length] }), lengths }
}

const kinds = Object.keys(encoderConfigs) as EncoderKind[]

const open = (kind: EncoderKind, tensors: Tensors = randomEncoder(kind), threads = 1): Promise<Model> =>
  Model.fromGraph(encoderGraph(readEncoderConfig(encoderConfigs[kind]), sourceOfTensors(tensors)), {
    backend: 'cpu',
    threads,
  })

const random = randomGenerator(5)
const textOf = (length: number): number[] => Array.from({ length }, () => Math.floor(random() * 60))

async function pooled(model: Model, texts: Rows, more = 0): Promise<Record<Pooling, Float32Array>> {
  const results = await model.run<Outputs>(feedsOf(texts, more), { outputs: poolings })
  return Object.fromEntries(poolings.map(name => [name, results[name].data])) as never
}

t.test('hidden states and pooled ones are those of the definitions', async t => {
  const texts = [textOf(23), textOf(1), textOf(9)]
  for (const kind of kinds) {
    const tensors = randomEncoder(kind)
    using model = await open(kind, tensors)
    const results = await model.run<Outputs>(feedsOf(texts, 2))
    const [size, length] = [24, 25]
    let worst = 0
    const compare = (actual: number, expected: number): void => {
      worst = Math.max(worst, Math.abs(actual - expected))
    }
    for (const [b, ids] of texts.entries()) {
      const rows = encoderReference(kind, tensors, ids)
      for (const [step, row] of rows.entries())
        for (const [i, value] of row.entries())
          compare(results.hidden.data[(b * length + step) * size + i]!, value)
      for (let i = 0; i < size; i++) {
        const column = rows.map(row => row[i]!)
        compare(results.mean.data[b * size + i]!, column.reduce((sum, value) => sum + value, 0) / ids.length)
        compare(results.cls.data[b * size + i]!, column[0]!)
        compare(results.last.data[b * size + i]!, column.at(-1)!)
      }
    }
    t.ok(worst < 2e-5, `${kind}: ${worst}`)
  }
})

const sameBits = (a: Float32Array, b: Float32Array): boolean =>
  Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(Buffer.from(b.buffer, b.byteOffset, b.byteLength))

t.test('no bit depends on the other texts, on padding or on threads', async t => {
  const texts = [textOf(300), textOf(2), textOf(77), textOf(129)]
  for (const kind of ['bert', 'modernbert'] as const) {
    const tensors = randomEncoder(kind)
    using model = await open(kind, tensors)
    using parallel = await open(kind, tensors, 2)
    const all = await pooled(model, texts)
    const again = await pooled(parallel, texts)
    for (const name of poolings) t.ok(sameBits(again[name], all[name]), `${kind}: ${name} of 2 threads`)
    for (const [b, ids] of texts.entries()) {
      for (const more of [0, 64]) {
        const alone = await pooled(model, [ids], more)
        for (const name of poolings) {
          const own = all[name].slice(b * 24, (b + 1) * 24)
          t.ok(sameBits(alone[name], own), `${kind}: ${name} of text ${b} alone, ${more} more`)
        }
      }
    }
  }
})

t.test('other sizes are not compiled again', async t => {
  for (const kind of kinds) {
    using model = await open(kind)
    for (const lengths of [
      [5, 9],
      [17, 3, 4],
      [40, 41, 42, 43],
    ])
      await pooled(model, lengths.map(textOf))
    t.equal(model.stats.compilations, 1, kind)
  }
})

t.test('keys that are missing have the values of transformers', t => {
  const { global_rope_theta: _, local_rope_theta: __, ...modernbert } = encoderConfigs.modernbert
  t.strictSame(readEncoderConfig(modernbert), readEncoderConfig(encoderConfigs.modernbert))
  const { layer_norm_eps: ___, ...roberta } = encoderConfigs.roberta
  t.equal(readEncoderConfig(roberta).epsilon, 1e-12)
  t.end()
})

t.test('golden encoders', { skip: noLanguageData }, async t => {
  for (const name of foldersOf('lm-golden', 'embeddings')) {
    const folder = dataPath('lm-golden', 'embeddings', name)
    const config = readEncoderConfig(readJson('lm-golden', 'embeddings', name, 'config.json'))
    const { pooling, tolerance, texts } = readJson<{
      readonly pooling: Pooling
      readonly tolerance: { readonly hidden_abs: number; readonly embeddings_abs: number }
      readonly texts: readonly string[]
    }>('lm-golden', 'embeddings', name, 'golden.json')
    const graph = encoderGraph(config, await loadFolderWeights(folder, new Pacer()))
    using model = await Model.fromGraph(graph, { backend: 'cpu' })
    const { tensors } = await readSafetensors(`${folder}/golden.safetensors`)
    const [ids, mask, hidden, embeddings] = [
      'input_ids',
      'attention_mask',
      'last_hidden_state',
      'embeddings_f64',
    ].map(key => tensors.get(key)!.data as Float32Array)
    const [length, size] = [ids!.length / texts.length, config.hiddenSize]
    const rows = texts.map((_, b) => {
      const used = mask!.subarray(b * length, (b + 1) * length).reduce((sum, value) => sum + value, 0)
      return Array.from(ids!.subarray(b * length, b * length + used))
    })
    const results = await model.run<Outputs>(feedsOf(rows))
    let [worst, worstEmbedding] = [0, 0]
    for (const [b, { length: used }] of rows.entries()) {
      const start = b * length * size
      for (let i = start; i < start + used * size; i++)
        worst = Math.max(worst, Math.abs(results.hidden.data[i]! - hidden![i]!))
      const vector = results[pooling].data.subarray(b * size, (b + 1) * size)
      const norm = Math.hypot(...vector)
      for (const [i, value] of vector.entries())
        worstEmbedding = Math.max(worstEmbedding, Math.abs(value / norm - embeddings![b * size + i]!))
    }
    t.ok(worst <= tolerance.hidden_abs, `${name}: hidden states ${worst}`)
    t.ok(worstEmbedding <= tolerance.embeddings_abs, `${name}: embeddings ${worstEmbedding}`)
  }
})

t.test('what is not supported is refused by name', async t => {
  const { bert } = encoderConfigs
  t.throws(() => readEncoderConfig({ ...bert, model_type: 't5' }, 'a/config.json'), {
    code: 'ERR_UNSUPPORTED',
    message: /a\/config\.json is that of a model of type 't5'; supported encoders are bert, distilbert/,
  })
  t.throws(() => readEncoderConfig({ ...bert, position_embedding_type: 'relative_key' }), {
    code: 'ERR_UNSUPPORTED',
    message: /position_embedding_type of config\.json is 'relative_key'/,
  })
  t.throws(() => readEncoderConfig({ ...bert, is_decoder: true }), { code: 'ERR_UNSUPPORTED' })
  t.throws(() => readEncoderConfig({ ...bert, hidden_act: 'mish' }), { code: 'ERR_UNSUPPORTED' })
  t.throws(() => readEncoderConfig({ ...bert, num_attention_heads: 5 }), { code: 'ERR_FORMAT' })
  t.throws(() => readEncoderConfig(null), { code: 'ERR_FORMAT' })
  const tensors = randomEncoder('bert')
  const config = readEncoderConfig(bert)
  const extra = tensors.get('encoder.layer.0.attention.self.query.bias')!
  t.throws(
    () => encoderGraph(config, sourceOfTensors(new Map([...tensors, ['encoder.layer.0.gate', extra]]))),
    {
      code: 'ERR_UNSUPPORTED',
      message: /type 'bert' does not know: encoder\.layer\.0\.gate/,
    },
  )
  tensors.delete('encoder.layer.1.output.dense.weight')
  t.throws(() => encoderGraph(config, sourceOfTensors(tensors)), {
    code: 'ERR_FORMAT',
    message: /no weights of down of layer 1, such as encoder\.layer\.1\.output\.dense\.weight/,
  })
})
