// Configurations of decoders: both generations of keys say the same, and what is not known is refused by name.
import t from 'tap'
import { readGguf } from '#lib/io/gguf/gguf.js'
import type { DecoderConfig } from '#lib/text/architectures/config.js'
import { readDecoderConfig } from '#lib/text/architectures/decoders.js'
import { configOfGguf } from '#lib/text/architectures/gguf-config.js'
import { plainFrequencies } from '#lib/text/architectures/rope.js'
import { dataPath, foldersOf, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

const skip = noLanguageData

/** The configuration of a model of the golden data. */
const read = (name: string, file = 'config.json'): DecoderConfig =>
  readDecoderConfig(readJson('lm-golden', 'models', name, file))

const llama = {
  model_type: 'llama',
  hidden_size: 64,
  vocab_size: 100,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-5,
}

t.test('published and present keys of a config.json say the same', { skip }, async t => {
  for (const name of foldersOf('lm-golden', 'models'))
    t.strictSame(read(name), read(name, 'config.legacy.json'), name)
})

t.test('what models differ in', { skip }, async t => {
  const gemma = read('gemma3')
  t.strictSame(
    gemma.layers.map(({ window }) => window),
    [16, 16, 16, 16, 16, Number.POSITIVE_INFINITY, 16],
  )
  t.equal(gemma.layers[0]?.scale, 24 ** -0.5)
  t.equal(gemma.embeddingScale, 8)
  t.ok(gemma.normPlusOne)
  t.strictSame(
    gemma.layers[5]?.rotary?.frequencies[0],
    plainFrequencies(32, 1e6).map(f => f / 8),
  )
  t.strictSame(gemma.layers[0]?.rotary?.frequencies[0], plainFrequencies(32, 1e4))
  const phi = read('phi3-longrope').layers[0]?.rotary
  t.equal(phi?.shortLength, 40)
  t.strictSame(
    phi?.frequencies.map(list => list.length),
    [6, 6],
  )
  t.equal(phi?.factor, Math.sqrt(1 + Math.log(4) / Math.log(40)))
  t.equal(read('smollm3').layers[3]?.rotary, undefined)
  t.strictSame(read('gpt-oss').layers[1]?.experts, { count: 4, used: 2, scores: 'used', normalized: true })
  t.equal(read('gpt-oss').activation, 'clamped_swiglu')
  t.equal(read('gpt2').layers[0]?.rotary, undefined)
  t.ok(read('gpt-neox').parallel)
})

t.test('keys that are missing have the values of transformers', async t => {
  const { num_key_value_heads: _, rms_norm_eps: __, ...few } = llama
  const stable = readDecoderConfig({ ...few, num_key_value_heads: 4, model_type: 'stablelm' })
  t.strictSame(stable.layers[0]?.rotary?.frequencies[0]?.length, 2)
  t.equal(readDecoderConfig({ ...few, model_type: 'gpt_neox' }).activation, 'gelu')
  const mixtral = readDecoderConfig({ ...few, num_attention_heads: 8, model_type: 'mixtral' })
  t.strictSame(mixtral.layers[0]?.rotary?.frequencies[0], plainFrequencies(8, 1e6))
  t.strictSame([mixtral.epsilon, mixtral.layers[0]?.experts?.count], [1e-5, 8])
  const gemma = readDecoderConfig({ ...few, model_type: 'gemma2' })
  t.strictSame([gemma.logitSoftcap, gemma.layers[0]?.softcap, gemma.layers[0]?.window], [30, 50, 4096])
  const bare = { attn_logit_softcapping: null, final_logit_softcapping: null }
  const plain = readDecoderConfig({ ...few, ...bare, model_type: 'gemma2' })
  t.strictSame([plain.logitSoftcap, plain.layers[0]?.softcap], [0, 0], 'null is none')
})

t.test('windows of layers', async t => {
  const window = { use_sliding_window: true, sliding_window: 8, num_hidden_layers: 4 }
  const windows = (config: object): number[] =>
    readDecoderConfig({ ...llama, ...window, ...config }).layers.map(layer => layer.window)
  const all = Number.POSITIVE_INFINITY
  t.strictSame(windows({ model_type: 'smollm3' }), [all, all, all, 8], 'layers without positions')
  t.strictSame(windows({ model_type: 'qwen2', max_window_layers: 3 }), [all, all, all, 8])
  const experts = { num_local_experts: 4, num_experts_per_tok: 2 }
  t.strictSame(windows({ model_type: 'qwen3_moe', max_window_layers: 3, ...experts }), [8, 8, 8, 8])
})

t.test('GGUF files say what the folders say that they were made of', { skip }, async t => {
  const pairs = { 'llama.F16': 'llama-gqa-llama3rope', 'qwen2.F16': 'qwen2-sharded', 'gpt2.F32': 'gpt2' }
  for (const [file, folder] of Object.entries(pairs)) {
    const gguf = await readGguf(dataPath('lm-golden', 'gguf', `${file}.gguf`))
    const own = readDecoderConfig(await configOfGguf(gguf), file)
    const other = read(folder)
    t.equal(own.epsilon.toFixed(9), other.epsilon.toFixed(9), file)
    t.strictSame(
      own.layers.map(({ heads, kvHeads, headSize, scale }) => [heads, kvHeads, headSize, scale]),
      other.layers.map(({ heads, kvHeads, headSize, scale }) => [heads, kvHeads, headSize, scale]),
      file,
    )
    const [ours, theirs] = [own, other].map(({ layers }) => layers[0]?.rotary)
    t.equal(ours?.interleaved, file.startsWith('llama') ? true : theirs && false)
    for (const [i, frequency] of (theirs?.frequencies[0] ?? []).entries())
      t.ok(Math.abs((ours?.frequencies[0]?.[i] ?? 0) / frequency - 1) < 1e-5, `${file}: frequency ${i}`)
  }
})

t.test('refused configurations name the file, the key and the value', async t => {
  const cases: [object, RegExp][] = [
    [{ ...llama, model_type: 'mamba' }, /type 'mamba'; supported decoders are llama, /],
    [{ ...llama, hidden_size: undefined }, /config\.json has no hidden_size/],
    [
      { ...llama, num_attention_heads: 0 },
      /num_attention_heads of config\.json must be an integer of at least 1, got 0/,
    ],
    [{ ...llama, num_hidden_layers: 2 ** 32 - 1 }, /num_hidden_layers of config\.json must be at most 10000/],
    [{ ...llama, num_key_value_heads: 3 }, /num_key_value_heads 3/],
    [{ ...llama, rope_scaling: { type: 'spiral' } }, /rotary embeddings of type 'spiral' are not supported/],
    [
      { ...llama, rope_scaling: { type: 'linear', factor: '2' } },
      /factor of rope_scaling of config\.json must be a number/,
    ],
    [
      { ...llama, rope_scaling: { type: 'longrope', short_factor: [1], long_factor: [1] } },
      /must have 8 numbers above 0/,
    ],
    [
      { ...llama, model_type: 'gemma3_text', use_bidirectional_attention: true },
      /use_bidirectional_attention/,
    ],
    [{ ...llama, model_type: 'olmo2', sliding_window: 8 }, /sliding_window of config\.json asks for/],
    [{ ...llama, model_type: 'stablelm', num_key_value_heads: 4, qk_layernorm: true }, /qk_layernorm/],
    [{ ...llama, hidden_act: 'mish' }, /hidden_act of config\.json is 'mish'/],
    [{ ...llama, partial_rotary_factor: 0.1 }, /1 of 16 elements/],
    [
      { ...llama, model_type: 'mixtral', num_local_experts: 2, num_experts_per_tok: 3 },
      /uses 3 experts, but there are 2/,
    ],
  ]
  for (const [config, message] of cases) t.throws(() => readDecoderConfig(config), { message })
  t.throws(() => readDecoderConfig(null), { code: 'ERR_FORMAT' })
  t.throws(() => readDecoderConfig({ ...llama, model_type: '__proto__' }), { code: 'ERR_UNSUPPORTED' })
})
