// model-sources.js: the models that rows run: all of the shared data (DGX_SPARK_TEST_DATA), those that come without
// weights with random ones, and generated ones.
import { existsSync, readdirSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { buildOpenpilotModel, Model, Tensor } from 'dgx-spark'
import { numel } from '#lib/core/shape.js'
import { writeOnnx } from '#lib/io/onnx/save.js'
import { drivingPolicy } from '../test/fixtures/models/driving-policy.js'
import { lightModel } from '../test/fixtures/models/light-models.js'
import { transformer } from '../test/fixtures/models/transformer.js'
import { exportGraph } from './exported-graph.js'
import { uniform } from './random.js'

/** @import { ElementType } from 'dgx-spark' */
/** @import { Graph } from '#lib/graph/graph.js' */

/**
 * @typedef {object} Source
 * @property {string} name
 * @property {string} dtype of most of its weights
 * @property {() => Promise<ModelFile>} open
 */

/** @typedef {{ file: string, dispose: () => Promise<void> }} ModelFile */

/** Sizes that models leave open; others are 1. Silero wants 64 samples in front of a frame of 512. */
const openSizes = /** @type {Record<string, number>} */ ({ sequence: 576, length: 128 })

/** Those of the shared data, if it is there, in the order of their files; behind them the generated ones. @returns {Source[]} */
export function modelSources() {
  const data = process.env.DGX_SPARK_TEST_DATA
  const folders = data ? ['models', 'onnx-light'].map(name => path.join(data, name)) : []
  const shared = folders.filter(existsSync).flatMap(folder =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('.onnx'))
      .sort()
      .map(name => sharedSource(path.join(folder, name))),
  )
  const sizes = { layers: 12, width: 768, heads: 12, tokens: 128 }
  return [
    ...shared,
    { name: 'driving_policy', dtype: 'f16', open: () => written(async () => drivingPolicy()) },
    {
      name: 'driving_vision',
      dtype: 'f16',
      open: () => written(() => buildOpenpilotModel('driving_vision', { seed: 1 })),
    },
    { name: 'transformer 12x768 T128', dtype: 'f32', open: () => written(async () => transformer(sizes)) },
  ]
}

/** Models that PyTorch runs, too; the first ones matter most. */
export const peeredModels = [
  'driving_policy',
  'dmonitoring_model.3294407',
  'tinyphysics',
  'transformer 12x768 T128',
  'resnet50',
]

/**
 * A model in the form that peers read, with random inputs and what our kernels of the CPU make of them.
 * @param {string} name @returns {Promise<{ folder: string, dispose: () => Promise<void> }>}
 */
export async function exportModel(name) {
  const source = modelSources().find(source => source.name === name)
  if (!source) throw new Error(`there is no model '${name}'`)
  const { file, dispose } = await source.open()
  const model = await Model.load(file, { backend: 'cpu', precision: 'fp32' })
  const feeds = randomFeeds(model)
  const folder = await mkdtemp(path.join(tmpdir(), 'dgx-spark-export-'))
  await exportGraph(model.graph, feeds, await model.run(feeds), folder)
  model.dispose()
  await dispose()
  return { folder, dispose: () => rm(folder, { recursive: true }) }
}

/** @param {string} file @returns {Source} */
function sharedSource(file) {
  const name = path.basename(file, '.onnx').replace(/^light_/, '')
  const dtype = /int8/.test(name) ? 'int8' : /float16/.test(name) ? 'f16' : 'f32'
  const light = path.basename(file).startsWith('light_')
  const open = light ? () => written(() => lightModel(file)) : async () => ({ file, dispose: async () => {} })
  return { name, dtype, open }
}

/** A graph in a file of its own, so that all engines read the same. @param {() => Promise<Graph>} graph @returns {Promise<ModelFile>} */
export async function written(graph) {
  const folder = await mkdtemp(path.join(tmpdir(), 'dgx-spark-bench-'))
  const file = path.join(folder, 'model.onnx')
  await writeOnnx(await graph(), file)
  return { file, dispose: () => rm(folder, { recursive: true }) }
}

/** Random inputs of a model at batch 1. @param {Model} model */
export function randomFeeds(model) {
  /** @type {Record<string, Tensor<ElementType>>} */
  const feeds = {}
  for (const [i, { name, dtype, shape }] of model.inputs.entries()) {
    const sizes = (shape ?? []).map(size => (typeof size === 'number' ? size : (openSizes[size ?? ''] ?? 1)))
    const values = uniform(numel(sizes), i + 1)
    // Integers are bytes of text or numbers of tokens; a single one is a sampling rate.
    const whole = sizes.length === 0 ? 16000 : Tensor.from(values.map(value => Math.abs(value) * 100))
    const integers = typeof whole === 'number' ? Tensor.from(whole) : whole.reshape(sizes)
    const isFloat = dtype === 'f32' || dtype === 'f16'
    feeds[name] = (isFloat ? Tensor.from(values, { shape: sizes }) : integers).to(dtype ?? 'f32')
  }
  return feeds
}
