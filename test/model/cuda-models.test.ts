// Every kernel that the shared models and their training graphs call has an entry in the CUDA table, and its launches are
// right. No GPU is needed: plans are compiled as for CUDA and their operands read, where a model's shapes depend on data the
// CPU computes; and models run on the fake driver, which checks launches and does nothing.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t, { type Test } from 'tap'
import { settingsOf, withSettings } from '#lib/cli/demo-inputs.js'
import { SparkError } from '#lib/core/errors.js'
import { createAdapter } from '#lib/dora/model/create-adapter.js'
import type { Graph } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import type { BoundStep, KernelOp, Kernels } from '#lib/kernels/kernels.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { hostConstant } from '#lib/model/values.js'
import { loadAddon } from '#lib/native.js'
import type { Batch } from '#lib/training/dataset.js'
import { createOptimizer } from '#lib/training/optimizers.js'
import { TrainingStep } from '#lib/training/step.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'
import { lightModel } from '../fixtures/models/light-models.js'
import { modelFiles, noModels } from '../fixtures/models/onnx-models.js'
import { randomFeeds } from '../fixtures/onnx-runtime.js'

const { addon } = loadAddon()
const skip = noModels || (addon ? false : 'no native addon')
const sizes: Record<string, number> = { batch: 1, sequence: 576, length: 3, b: 1 }

/** Whether a step has a weight as only a GPU reads it; the fake driver checks its launch. */
const isForGpu = ({ op, args }: BoundStep): boolean =>
  op === 'convInteger' && 'channelsLast' in args && args.channelsLast === true

/** Kernels that refuse what the CUDA table lacks; they compute on the CPU, or not at all. Notes what is called. */
function cudaTable(computes: boolean): { kernels: Kernels; called: Set<KernelOp> } {
  const cpu = openCpuKernels()
  const called = new Set<KernelOp>()
  const kernels: Kernels = {
    ...cpu,
    backend: 'cuda',
    supports: op => addon!.supports('cuda', op),
    prepare(steps) {
      for (const { op } of steps) {
        called.add(op)
        if (!kernels.supports(op)) throw new SparkError('ERR_UNSUPPORTED', `CUDA has no kernel for ${op}`)
      }
      const prepared = cpu.prepare(computes ? steps : steps.filter(step => !isForGpu(step)))
      return computes ? prepared : { ...prepared, async run() {} }
    },
  }
  return { kernels, called }
}

/** A model with fixed sizes of its inputs: what recurs is unrolled for training. */
async function modelOf(file: string): Promise<Graph> {
  const light = path.basename(file).startsWith('light_')
  const graph = light ? await lightModel(file, { weights: false }) : canonicalise(await readOnnx(file))
  const inputs = graph.inputs.map(input => {
    const { name, type } = input
    if (type?.kind !== 'tensor' || !type.shape) return input
    const shape = type.shape.map(size => (typeof size === 'string' ? (sizes[size] ?? 1) : size))
    return { name, type: { ...type, shape } }
  })
  return { ...graph, inputs }
}

function feedsFor(graph: Graph) {
  const feeds = randomFeeds(graph, 3, sizes)
  const rate = feeds.get('sr')
  if (rate) (rate.data as BigInt64Array)[0] = 16000n
  return feeds
}

async function runs(t: Test, graph: Graph, computes: boolean): Promise<void> {
  const { kernels, called } = cudaTable(computes)
  const runner = new GraphRunner(graph, kernels)
  await runner.run([...feedsFor(graph).values()].map(hostConstant))
  runner.dispose()
  t.ok(called.size > 0, [...called].sort().join(' '))
}

/** A step that teaches an adapter on all layers what the model does. */
async function trains(t: Test, whole: Graph): Promise<void> {
  const graph = withSettings(whole, settingsOf(whole))
  const adapter = await createAdapter(graph, { targetModules: '.*', rank: 2, seed: 1, backend: 'cpu' })
  const floats = graph.outputs.filter(({ type }) => type?.kind !== 'tensor' || /^(f|bf)\d/.test(type.dtype))
  const { kernels, called } = cudaTable(false)
  const step = new TrainingStep(
    {
      adapter,
      loss: floats.map(({ name }) => ({ type: 'mse', output: name }) as const),
      maxNorm: 1,
      optimizer: createOptimizer('adamw'),
      teacher: graph,
      seed: 0,
      precision: 'fp32' as const,
    },
    kernels,
  )
  const batch: Batch = Object.fromEntries(
    Array.from(feedsFor(graph), ([name, { shape, data }]) => {
      return [name, { shape: [...shape], data, axis: name === 'state' ? 1 : 0 }] as const
    }),
  )
  await step.run([batch], { rate: 1e-3, step: 1, update: 1, lossScale: 1 })
  step.dispose()
  t.ok(called.has('adamw'), [...called].sort().join(' '))
}

if (!skip) {
  for (const file of modelFiles()) {
    const name = path.basename(file)
    t.test(name, async t => {
      const graph = await modelOf(file)
      await runs(t, graph, name.startsWith('silero'))
      await trains(t, graph)
    })
  }
}

/** Its shapes depend on what kernels compute. */
const notLaunched = 'silero_vad_16k_op15.onnx'
/** Models whose training is launched, too: what the others add is size. */
const launchedTraining = ['tinyphysics.onnx', 'mnist-8.onnx', 'version-RFB-320.onnx', 'burn_mnist.onnx']

t.test('launches', { skip: skip || noCudaCalls }, async t => {
  const fakeDriver = new FakeDriver(['cuda'])
  t.teardown(() => fakeDriver.dispose())
  const launch = (file: string, what: 'run' | 'train') => {
    const { env, lines } = machine(fakeDriver, discrete)
    const args = ['test/fixtures/cuda-model-child.js', file, what]
    const { status, stderr } = spawnSync(process.execPath, args, {
      encoding: 'utf8',
      env: { ...process.env, NODE_OPTIONS: '', ...env },
      timeout: 120_000,
    })
    const name = `${path.basename(file)} ${what}`
    t.equal(status, 0, `${name}: ${stderr}`)
    t.equal(lines('instantiate').length, 1, `${name}: one plan`)
    t.equal(lines('replay').length, 2, `${name}: captured and replayed`)
  }
  for (const file of modelFiles()) {
    const name = path.basename(file)
    if (name !== notLaunched) launch(file, 'run')
    if (launchedTraining.includes(name)) launch(file, 'train')
  }
})
