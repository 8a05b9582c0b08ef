// Architectures without golden files: decoders against their definitions in f64, and GGUF files made of
// the golden folders against the logits of these.
import path from 'node:path'
import { readSafetensors, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { writeDecoderFolder } from '../fixtures/text/decoder-folder.js'
import { writeDecoderGguf } from '../fixtures/text/decoder-gguf.js'
import {
  decoderConfigs,
  decoderReference,
  type ReferenceConfig,
  randomDecoder,
} from '../fixtures/text/decoder-reference.js'
import { DecoderRows, distance } from '../fixtures/text/decoder-rows.js'
import type { Tensors } from '../fixtures/text/encoder-reference.js'
import { dataPath, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

const variants: Readonly<Record<string, ReferenceConfig>> = {
  ...decoderConfigs,
  'gemma2 with a scale of its own': { ...decoderConfigs.gemma2, query_pre_attn_scalar: 24 },
  'qwen3_moe whose scores keep their sum': { ...decoderConfigs.qwen3_moe, norm_topk_prob: false },
  'qwen3_moe with a dense layer': { ...decoderConfigs.qwen3_moe, mlp_only_layers: [1] },
  'stablelm in parallel': { ...decoderConfigs.stablelm, use_parallel_residual: true },
}

/** What files of GGUF cannot say. */
const onlyFolders = /own|keep their sum|dense layer/

const ids = Array.from({ length: 23 }, (_, i) => 3 + ((i * i * 7 + i) % 77))

async function compare(t: Test, file: string, expected: readonly number[], what: string): Promise<void> {
  const model = await DecoderRows.open(file)
  const rows = await model.rows(ids)
  await model.close()
  const largest = Math.max(...expected.map(Math.abs))
  const error = distance(rows, expected)
  // Sums of f32 over some tens of elements in four layers.
  t.ok(error <= 2e-5 * largest, `${what}: ${error} of ${largest}`)
}

for (const [about, config] of Object.entries(variants))
  t.test(about, async t => {
    const tensors = randomDecoder(config)
    const expected = decoderReference(config, tensors, ids)
    const folder = writeDecoderFolder(t.testdir(), config, tensors)
    await compare(t, folder, expected, 'folder')
    if (onlyFolders.test(about)) return
    const file = await writeDecoderGguf(path.join(folder, 'model.gguf'), config, tensors)
    await compare(t, file, expected, 'GGUF')
  })

t.test('stablelm whose GGUF file says that it is parallel, with a second normalization', async t => {
  const { stablelm } = decoderConfigs
  const tensors = randomDecoder(stablelm)
  const config = { ...stablelm, use_parallel_residual: true }
  const file = await writeDecoderGguf(path.join(t.testdir(), 'model.gguf'), config, tensors)
  await compare(t, file, decoderReference(stablelm, tensors, ids), 'GGUF')
})

/** Golden folders of architectures that no golden GGUF file has. */
const folders = ['gpt-neox', 'gpt-oss', 'mixtral', 'olmo2', 'phi3-longrope', 'qwen3', 'smollm3']

interface Golden {
  readonly prompts: readonly { readonly input_ids: number[] }[]
  readonly tolerance: { readonly logits_abs: number; readonly hidden_abs: number }
}

/** A golden folder: its configuration, weights in f32, prompts and what they give. */
async function readGolden(name: string) {
  const inFolder = (file: string): string => dataPath('lm-golden', 'models', name, file)
  const weights = await readSafetensors(inFolder('model.safetensors'))
  const tensors: Tensors = new Map(
    [...weights.tensors].map(([key, { data, dtype: stored, shape }]) => [
      key,
      { shape, data: Tensor.from(data, { dtype: stored.toLowerCase() as 'f32', shape }).toFloat32() },
    ]),
  )
  return {
    config: readJson<Record<string, unknown>>('lm-golden', 'models', name, 'config.json'),
    tensors,
    golden: readJson<Golden>('lm-golden', 'models', name, 'golden.json'),
    expected: await readSafetensors(inFolder('golden.safetensors')),
  }
}

for (const name of folders)
  t.test(`${name} as a GGUF file`, { skip: noLanguageData }, async t => {
    const { config, tensors, golden, expected } = await readGolden(name)
    const file = await writeDecoderGguf(path.join(t.testdir(), 'model.gguf'), config, tensors)
    const model = await DecoderRows.open(file)
    for (const [i, { input_ids: ids }] of golden.prompts.entries()) {
      const rows = await model.rows(ids)
      const last = rows.subarray(rows.length - rows.length / ids.length)
      const wanted = expected.tensors.get(`p${i}.last_logits`)!.data as Float32Array
      t.ok(distance(last, wanted) <= golden.tolerance.logits_abs, `p${i}: ${distance(last, wanted)}`)
    }
    await model.close()
  })

/** Golden folders under other names of tensors: bases without a head, and text models inside of models of images. */
const renamed: readonly {
  readonly is: string
  readonly name: string
  readonly rename: (name: string) => string
  readonly isInner?: boolean
}[] = [
  { is: 'a base of GPT-NeoX', name: 'gpt-neox', rename: name => name.replace(/^gpt_neox\./, '') },
  { is: 'a base of llama', name: 'llama-tied-linear', rename: name => name.replace(/^model\./, '') },
  {
    is: 'gemma3 with images',
    name: 'gemma3',
    rename: name => name.replace(/^model\./, 'model.language_model.'),
    isInner: true,
  },
  {
    is: 'gemma3 with images, older names',
    name: 'gemma3',
    rename: name => `language_model.${name}`,
    isInner: true,
  },
]

for (const { is, name, rename, isInner } of renamed)
  t.test(is, { skip: noLanguageData }, async t => {
    const { config, tensors, golden, expected } = await readGolden(name)
    const images: Tensors = new Map(
      ['vision_tower.x.weight', 'model.multi_modal_projector.x.weight'].map(key => [
        key,
        { shape: [2, 2], data: new Float32Array(4) },
      ]),
    )
    const weights: Tensors = new Map(
      [...tensors]
        .filter(([key]) => key !== 'embed_out.weight')
        .map(([key, tensor]) => [rename(key), tensor]),
    )
    const outer = { model_type: 'gemma3', text_config: config, vision_config: {} }
    const all: Tensors = isInner ? new Map([...weights, ...images]) : weights
    const model = await DecoderRows.open(writeDecoderFolder(t.testdir(), isInner ? outer : config, all))
    for (const [i, { input_ids: ids }] of golden.prompts.entries()) {
      const wanted = expected.tensors.get(`p${i}.last_hidden_state`)!.data as Float32Array
      const error = distance(await model.rows(ids, 'hidden'), wanted)
      t.ok(error <= golden.tolerance.hidden_abs, `p${i}: ${error}`)
    }
    await model.close()
  })
