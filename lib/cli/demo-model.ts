// demo-model.ts: `dgx-spark demo --model`: recovery of a perturbed adapter by training.
import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import type { BackendName } from '../core/config.js'
import { largestError } from '../core/difference.js'
import { isFloat, isHalf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { openData } from '../data/open.js'
import type { Adapter } from '../dora/model/adapter.js'
import { createAdapter } from '../dora/model/create-adapter.js'
import { producersOf } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import type { PairTerm } from '../graph/rewrites/losses.js'
import { Tensor } from '../memory/tensor.js'
import { Model } from '../model/model.js'
import type { ModelOutput } from '../model/results.js'
import { type Batch, BatchReader, type TrainingData } from '../training/dataset.js'
import { Trainer } from '../training/trainer.js'
import {
  differentBatches,
  feedsOf,
  randomInputs,
  type Settings,
  settingsOf,
  withSettings,
} from './demo-inputs.js'
import { formatBytes, print, printPairs, styled } from './output.js'
import { trainingProgress } from './progress.js'

/** The results of the demonstration. */
export interface ModelDemo {
  readonly model: string
  readonly backend: string
  readonly modules: number
  readonly adapter: { readonly parameters: number; readonly bytes: number; readonly share: number }
  /** Mean loss of the first and of the last five steps, which see the same batches where these are random. */
  readonly loss: { readonly first: number; readonly last: number; readonly steps: number }
  /** max|merged − adapted| / max|adapted| over all outputs. */
  readonly mergeError: number
  /** The same of ONNX Runtime with the exported file; null where it is not installed. */
  readonly runtimeError: number | null
}

const steps = 50
const rank = 4
/** alpha / rank: small, so that deep networks stay near enough to find the way back. */
const scale = 0.3

/** Adapts the model in `file` to itself, merges the adapter, and compares. @throws SparkError as Trainer, ERR_FORMAT */
export async function demoModel(
  file: string,
  { data, backend }: { data?: string; backend?: BackendName },
): Promise<ModelDemo> {
  const engine = { ...(backend && { backend }) }
  using model = await Model.load(file, engine)
  const { settings, batches } =
    data === undefined ? await randomInputs(model) : await givenInputs(model, data)
  const graph = withSettings(model.graph, settings)
  const start = { rank, alpha: scale * rank, init: false, seed: 1, ...engine } as const
  const adapter = await createAdapter(graph, { targetModules: '.*', ...start })
  const losses = await distill(graph, adapter, batches, engine)
  const [first, last] = [losses.slice(0, differentBatches), losses.slice(-differentBatches)].map(
    part => part.reduce((sum, loss) => sum + loss, 0) / part.length,
  )
  const batch = await firstBatch(batches)
  return {
    model: file,
    backend: model.backend.name,
    modules: adapter.modules.length,
    adapter: {
      parameters: adapter.parameterCount,
      bytes: adapter.byteLength,
      share: adapter.shareOfBase,
    },
    loss: { first: first!, last: last!, steps: losses.length },
    ...(await compareMerged(adapter, batch, engine)),
  }
}

/** Losses of the steps of a training whose teacher is the model itself. */
async function distill(
  graph: Graph,
  adapter: Adapter,
  batches: TrainingData,
  engine: { backend?: BackendName },
): Promise<number[]> {
  const loss: PairTerm[] = comparedValues(graph).map(output => ({ type: 'mse', output }))
  // Outputs that hardly depend on the adapter have gradients far below the usual epsilon.
  const optimizer = { type: 'adamw', learningRate: 3e-3, epsilon: 1e-12 } as const
  const trainer = new Trainer({ graph }, adapter, {
    loss,
    optimizer,
    teacher: { graph },
    epochs: steps,
    batchSize: 4,
    maxNorm: 1,
    schedule: { type: 'cosine', warmup: 5, steps },
    ...engine,
  })
  const progress = trainingProgress('distilling')
  const losses: number[] = []
  try {
    for await (const event of trainer.steps(batches)) {
      progress.step({ ...event, totalSteps: steps })
      losses.push(event.loss)
      if (losses.length === steps) break
    }
  } finally {
    progress.end()
  }
  return losses
}

/** Functions that flatten out where a model is sure: what they read says more. */
const squashing = new Set(['Softmax', 'LogSoftmax', 'Sigmoid'])
const reshaping = new Set(['Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'Identity', 'Transpose'])

/** Values that a loss compares: outputs, or scores in front of probabilities. @throws SparkError ERR_UNSUPPORTED if none */
function comparedValues(graph: Graph): string[] {
  const producers = producersOf(graph)
  const scores = (output: string): string => {
    let node = producers.get(output)
    while (node && reshaping.has(node.op)) node = producers.get(node.inputs[0]!)
    return node && squashing.has(node.op) ? node.inputs[0]! : output
  }
  const names = graph.outputs
    .filter(({ type }) => !type || (type.kind === 'tensor' && isFloat(type.dtype)))
    .map(({ name }) => scores(name))
  if (names.length > 0) return names
  throw new SparkError('ERR_UNSUPPORTED', 'the model has no output of floats, so nothing can be compared')
}

/** Batches from files; settings that they do not have get a value. */
async function givenInputs(
  { graph }: Model,
  source: string,
): Promise<{ settings: Settings; batches: TrainingData }> {
  const batches = await openData(source)
  const given = await firstBatch(batches)
  return { settings: new Map([...settingsOf(graph)].filter(([name]) => !(name in given))), batches }
}

async function firstBatch(data: TrainingData): Promise<Batch> {
  const reader = new BatchReader(data, { batchSize: 4, seed: 0, shuffle: false })
  for await (const batch of reader.epoch(0)) return batch
  throw new SparkError('ERR_FORMAT', 'the data are empty')
}

async function compareMerged(
  adapter: Adapter,
  batch: Batch,
  engine: { backend?: BackendName },
): Promise<{ mergeError: number; runtimeError: number | null }> {
  const options = { ...engine, precision: 'fp32' } as const
  using adapted = await Model.fromGraph(adapter.graph, options)
  using merged = await Model.fromGraph((await adapter.merge()).graph, options)
  const folder = await mkdtemp(path.join(os.tmpdir(), 'dgx-spark-demo-'))
  try {
    const exported = path.join(folder, 'merged.onnx')
    await merged.save(exported)
    const expected = await valuesOf(adapted, batch)
    const mergeError = largestError(await valuesOf(merged, batch), expected)
    if (!(await hasOnnxRuntime())) return { mergeError, runtimeError: null }
    using runtime = await Model.load(exported, { backend: 'onnxruntime' })
    return { mergeError, runtimeError: largestError(await valuesOf(runtime, batch), expected) }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

const hasOnnxRuntime = (): Promise<boolean> =>
  import('onnxruntime-node').then(
    () => true,
    () => false,
  )

/** The elements of all numeric outputs, concatenated. */
async function valuesOf(model: Model, batch: Batch): Promise<Float32Array> {
  const outputs = Object.values(await model.run<ModelOutput>(feedsOf(model, batch)))
  const tensors = outputs.filter(output => output instanceof Tensor)
  const parts = tensors.map(tensor => {
    return isHalf(tensor.dtype) || tensor.dtype === 'f32'
      ? tensor.toFloat32()
      : Float32Array.from(tensor.data as Float32Array, Number)
  })
  const values = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    values.set(part, at)
    at += part.length
  }
  return values
}

/** Prints the result for people. */
export function reportModel({ model, backend, modules, adapter, loss, ...errors }: ModelDemo): void {
  const error = (value: number | null): string =>
    value === null
      ? 'onnxruntime-node is not installed'
      : `to ${value.toExponential(1)} of the largest output`
  print()
  print(styled('bold', `${model}: an adapter that began elsewhere, led back to the model`))
  printPairs([
    [
      'adapter',
      `DoRA rank ${rank} on ${modules} modules, ${adapter.parameters.toLocaleString('en')} parameters`,
    ],
    ['adapter file', `${formatBytes(adapter.bytes)}, ${(100 * adapter.share).toFixed(2)} % of the weights`],
    [
      'loss',
      `${loss.first.toPrecision(3)} → ${loss.last.toPrecision(3)} in ${loss.steps} steps (${backend})`,
    ],
    ['merged = unmerged', error(errors.mergeError)],
    ['exported, in ONNX Runtime', error(errors.runtimeError)],
  ])
}
