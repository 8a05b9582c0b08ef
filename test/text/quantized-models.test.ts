// Models with quantized matrices compute as those with the numbers that the codes stand for.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type SafetensorsTensor, writeSafetensors } from 'dgx-spark'
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import { configuredDecoder } from '#lib/text/architectures/decoder.js'
import { readDecoderConfig } from '#lib/text/architectures/decoders.js'
import { loadFolderWeights } from '#lib/text/files/folder-weights.js'
import { DecoderEngine } from '#lib/text/generation/decoder-engine.js'
import { logProbabilities } from '#lib/text/generation/log-probabilities.js'
import { maxAbs, within } from '../fixtures/close.js'
import * as packed from '../fixtures/text/packed-matrices.js'
import * as layouts from '../fixtures/text/quantized-matrices.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-quantized-models-'))
t.teardown(() => rmSync(scratch, { recursive: true }))

const config = {
  model_type: 'llama',
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 32,
  vocab_size: 40,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: true,
}

/** Out and in features of the matrices of the layer. */
const sizes = {
  'self_attn.q_proj': [64, 64],
  'self_attn.k_proj': [32, 64],
  'self_attn.v_proj': [32, 64],
  'self_attn.o_proj': [64, 64],
  'mlp.gate_proj': [96, 64],
  'mlp.up_proj': [96, 64],
  'mlp.down_proj': [64, 96],
} as const

const ids = Int32Array.of(3, 1, 4, 1, 5, 9, 2, 6, 39, 0)

const f32 = (shape: readonly number[], data: Float32Array): SafetensorsTensor => ({
  dtype: 'F32',
  shape,
  data,
})

/** Log probabilities of a model with these tensors. */
async function run(tensors: ReadonlyMap<string, SafetensorsTensor>, settings: object): Promise<Float32Array> {
  const folder = mkdtempSync(path.join(scratch, 'model'))
  await writeSafetensors(path.join(folder, 'model.safetensors'), tensors)
  const json = { ...config, ...settings }
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(json))
  const weights = await loadFolderWeights(folder, new Pacer())
  const engine = await DecoderEngine.open(configuredDecoder(readDecoderConfig(json), weights), {
    backend: 'js',
  })
  try {
    return Float32Array.from(await logProbabilities(engine.scheduler, [...ids], undefined))
  } finally {
    await engine.close()
  }
}

type Make = (rows: number, cols: number) => layouts.StoredMatrix

const schemes: Readonly<Record<string, Make>> = {
  'fp8 by rows': layouts.fp8Rows,
  'int8 by rows': layouts.int8Rows,
  NVFP4: (rows, cols) => layouts.nvfp4(rows, cols, 'modelopt'),
  MXFP4: layouts.mxfp4,
  GPTQ: (rows, cols) => packed.gptq(rows, cols, { bits: 4, group: 32 }),
}

for (const [about, make] of Object.entries(schemes)) {
  t.test(about, async t => {
    const matrices = Object.entries(sizes).map(([name, [rows, cols]]) => ({
      ...make(rows, cols),
      module: name,
    }))
    const largest = Math.max(...matrices.map(({ values }) => maxAbs(values)))
    const norm = (scale: number): SafetensorsTensor => f32([64], new Float32Array(64).fill(scale))
    const others = new Map([
      ['model.embed_tokens.weight', f32([40, 64], uniform(randomGenerator(5), 40 * 64))],
      ['model.layers.0.input_layernorm.weight', norm(1 / largest)],
      ['model.layers.0.post_attention_layernorm.weight', norm(1 / largest)],
      ['model.norm.weight', norm(1)],
    ])
    const quantized = new Map(others)
    const plain = new Map(others)
    for (const { module, tensors, shape, values } of matrices) {
      for (const [part, tensor] of tensors) quantized.set(part.replace('mlp.up_proj', module), tensor)
      plain.set(`model.layers.0.${module}.weight`, f32(shape, Float32Array.from(values)))
    }
    const { settings } = matrices[0]!
    const [actual, expected] = [await run(quantized, { quantization_config: settings }), await run(plain, {})]
    t.ok(maxAbs(expected) > 0.5)
    within(t, actual, expected, () => 1e-4 * maxAbs(expected), about)
  })
}
