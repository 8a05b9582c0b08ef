// finetune.ts: `dgx-spark finetune`: training of an adapter or a model with data from files.
import { existsSync } from 'node:fs'
import path from 'node:path'
import type { Command } from 'commander'
import { SparkError } from '../core/errors.js'
import { packageVersion } from '../core/version.js'
import type { Adapter } from '../dora/model/adapter.js'
import { createAdapter } from '../dora/model/create-adapter.js'
import type { Graph } from '../graph/graph.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { lockFolder } from '../io/lock.js'
import { readOnnx } from '../io/onnx/read.js'
import { listCheckpoints } from '../training/checkpoint.js'
import { readEvents, readValidations } from '../training/log.js'
import { writeReport } from '../training/report.js'
import { Trainer } from '../training/trainer.js'
import type { FitOptions } from '../training/validation.js'
import { UsageError, withExamples } from './command.js'
import { type FinetuneData, openFinetuneData } from './finetune-data.js'
import { parseLoss } from './finetune-loss.js'
import type { Preset, TimedEvent } from './finetune-openpilot.js'
import {
  addDataOptions,
  addMethodOptions,
  addPresetOptions,
  addTrainingOptions,
  type FinetuneOptions,
  names,
} from './finetune-options.js'
import { pathFrom } from './numbers.js'
import { print, printError, printPairs } from './output.js'
import { trainingProgress } from './progress.js'

/** `dgx-spark finetune`: trains an adapter, or the whole model. */
export function addFinetune(command: Command): void {
  command
    .requiredOption('--model <file>', 'the ONNX model; it stays as it is', pathFrom)
    .requiredOption('--output <folder>', 'where adapter, checkpoints, log and report go', pathFrom)
    .option('--create-adapter', 'make and save a new adapter, and train nothing')
  addDataOptions(command)
  addMethodOptions(command)
  addTrainingOptions(command)
  addPresetOptions(command)
  command.action(async (options: FinetuneOptions) => {
    process.exitCode = await finetune(options)
  })
  withExamples(
    command,
    'dgx-spark finetune --model base.onnx --data train --output adapter --epochs 3',
    'dgx-spark finetune --model base.onnx --data train --output adapter --validation 0.1 --metrics accuracy --patience 3',
    'dgx-spark finetune --model base.onnx --data batches.mjs --output adapter --loss mse --targets fc1,fc2',
    'dgx-spark finetune --model base.onnx --data train --output tuned --method full --schedule cosine --warmup 100',
    'dgx-spark finetune --model base.onnx --data train --output adapter --resume',
    'dgx-spark finetune --preset openpilot --data drives --model driving_policy.onnx --vision driving_vision.onnx --teacher big.onnx --output adapter',
    'dgx-spark finetune --preset openpilot --model driving_policy.onnx --vision driving_vision.onnx --output adapter --dry-run',
  )
}

/** Runs the command; returns its exit code. */
async function finetune(options: FinetuneOptions): Promise<number> {
  expectConsistent(options)
  const graph = canonicalise(await readOnnx(options.model))
  const adapter = await adapterFor(graph, options)
  const { output } = options
  if (adapter && options.createAdapter) {
    if (!options.dryRun) await saveNew(adapter, output)
    print(options.dryRun ? 'nothing was written' : `the new adapter is in ${output}`)
    return 0
  }
  const preset = options.preset && (await presetOf(options))
  if (options.preset && !preset) return 130
  try {
    const data = preset ? preset.data : await dataFor(graph, options)
    using _lock = options.dryRun ? undefined : await lockFolder(output)
    const trainer = await trainerFor(graph, adapter, options, preset)
    const result = await train(trainer, data, options)
    preset?.record(trainer.adapter)
    if (preset && options.dryRun) preset.estimate(result.events)
    return await finish(result, adapter, trainer, options)
  } finally {
    await preset?.close()
  }
}

/** The preset of the options; undefined when it was interrupted. */
async function presetOf(options: FinetuneOptions): Promise<Preset | undefined> {
  const { openpilotPreset } = await import('./finetune-openpilot.js')
  for (const signal of signals) process.on(signal, interrupt)
  try {
    return await openpilotPreset(options, abort.signal)
  } catch (error) {
    if (!abort.signal.aborted) throw error
    print('interrupted: what the teacher said is kept, and the same command goes on there')
    return undefined
  } finally {
    for (const signal of signals) process.off(signal, interrupt)
  }
}

async function dataFor(graph: Graph, options: FinetuneOptions): Promise<FinetuneData> {
  const { data, validation, loss, seed, normalize } = options
  if (data === undefined) throw new UsageError('finetune needs --data, or --create-adapter to train nothing')
  return openFinetuneData(graph, {
    data,
    loss,
    seed,
    ...(validation !== undefined && { validation }),
    ...(normalize && { normalize }),
  })
}

/** Saves what was trained; returns the exit code. */
async function finish(
  result: Trained,
  adapter: Adapter | null,
  trainer: Trainer,
  options: FinetuneOptions,
): Promise<number> {
  const { output } = options
  if (options.dryRun) {
    const steps = result.events.length === 1 ? 'one step works' : `${result.events.length} steps work`
    print(`${steps}: loss ${result.events.at(-1)!.loss.toPrecision(4)}; nothing was written`)
    return 0
  }
  const file = adapter ? output : path.join(output, 'model.onnx')
  if (adapter) await adapter.save(output)
  else await trainer.weights.save(file)
  await report(options)
  const what = adapter ? 'adapter' : 'model'
  print(`${result.interrupted ? `interrupted: the ${what} so far` : `the ${what}`} is in ${file}`)
  return result.interrupted ? 130 : 0
}

/** What a training came to. */
interface Trained {
  /** Of a dry run, its steps. */
  readonly events: readonly TimedEvent[]
  readonly interrupted: boolean
}

/** Throws for options that mean nothing together. */
function expectConsistent({ method, createAdapter, validation, ...options }: FinetuneOptions): void {
  if (createAdapter && method === 'full')
    throw new UsageError('--create-adapter makes no adapter for --method full')
  if (options.warmup !== undefined && options.schedule === 'reduce-on-plateau')
    throw new UsageError('--warmup needs --schedule constant, linear or cosine')
  const useless = (['metrics', 'monitor', 'patience'] as const).find(name => options[name] !== undefined)
  if (useless && validation === undefined && !options.preset)
    throw new UsageError(`--${useless} needs --validation: a path, or a share of --data such as 0.1`)
}

/** A new adapter, described; null when the whole model is trained. */
async function adapterFor(graph: Graph, options: FinetuneOptions): Promise<Adapter | null> {
  const { method, rank, alpha, dropout, seed, backend, targets } = options
  const count = [...graph.initializers.values()].reduce((sum, constant) => sum + constant.count, 0)
  const elements = `${count.toLocaleString('en')} elements`
  if (method === 'full') {
    printPairs([['model', `${elements}, weights trained`]])
    return null
  }
  const targetModules = targets === 'all-linear' ? targets : names(targets)
  const settings = { method, targetModules, rank, alpha, dropout, seed, ...(backend && { backend }) }
  const adapter = await createAdapter(graph, settings)
  const trained = adapter.parameters.reduce((sum, name) => sum + adapter.read(name).length, 0)
  printPairs([
    ['model', `${elements}, frozen`],
    [
      'adapter',
      `${trained.toLocaleString('en')} elements, ${((100 * trained) / count).toFixed(2)} % of the model`,
    ],
  ])
  return adapter
}

/** Saves an adapter unless the folder has one: an untrained adapter must not replace a trained one. */
async function saveNew(adapter: Adapter, folder: string): Promise<void> {
  using _lock = await lockFolder(folder)
  const file = path.join(folder, 'adapter_model.safetensors')
  if (existsSync(file)) {
    throw new SparkError('ERR_ARGUMENT', `--output ${folder} has an adapter already: give another folder`)
  }
  await adapter.save(folder)
}

/** Signals that end a training and save it: Ctrl-C, and those of job schedulers. */
const signals = ['SIGINT', 'SIGTERM'] as const
const abort = new AbortController()

function interrupt(): void {
  if (abort.signal.aborted) process.exit(130)
  printError('saving; press Ctrl-C again to stop at once')
  abort.abort()
}

const checkpointsIn = (output: string): string => path.join(output, 'checkpoints')
const logIn = (output: string): string => path.join(output, 'log.jsonl')

async function trainerFor(
  graph: Graph,
  adapter: Adapter | null,
  options: FinetuneOptions,
  preset: Preset | undefined,
): Promise<Trainer> {
  const { output, checkpointEvery: every, backend, precision, schedule, warmup, weightDecay } = options
  const teacher =
    options.teacher === undefined || preset ? undefined : canonicalise(await readOnnx(options.teacher))
  const kept = options.dryRun
    ? {}
    : { checkpoint: { folder: checkpointsIn(output), every }, log: logIn(output) }
  const decay = weightDecay !== undefined && { weightDecay }
  return new Trainer({ graph }, adapter, {
    loss: preset ? preset.loss : await parseLoss(options.loss, graph),
    epochs: options.epochs,
    batchSize: options.batchSize,
    seed: options.seed,
    accumulate: options.accumulate,
    maxNorm: options.clip,
    signal: abort.signal,
    optimizer: { type: options.optimizer, learningRate: options.lr, ...decay },
    schedule:
      schedule === 'reduce-on-plateau'
        ? { type: schedule }
        : { type: schedule, ...(warmup !== undefined && { warmup }) },
    ...kept,
    ...(teacher && { teacher: { graph: teacher } }),
    ...(options.resume && { resume: true }),
    ...(backend && { backend }),
    ...(precision && { precision }),
  })
}

async function train(
  trainer: Trainer,
  { training, validation }: FinetuneData,
  { output, resume, dryRun, metrics, monitor, patience, preset }: FinetuneOptions,
): Promise<Trained> {
  const isNew = resume && !dryRun && (await listCheckpoints(checkpointsIn(output))).length === 0
  if (isNew) printError(`${checkpointsIn(output)} has no checkpoint: the training begins anew`)
  const show = trainingProgress()
  const fit: FitOptions = validation
    ? {
        validation,
        onValidation: result => show.validation(result),
        ...(metrics && { metrics }),
        ...(monitor !== undefined && { monitor }),
        ...(patience !== undefined && { patience }),
      }
    : {}
  const events: TimedEvent[] = []
  let begin = performance.now()
  for (const signal of signals) process.on(signal, interrupt)
  try {
    for await (const event of trainer.steps(training, fit)) {
      show.step(event)
      if (!dryRun) continue
      events.push({ ...event, seconds: (performance.now() - begin) / 1000 })
      begin = performance.now()
      // The first step of a preset also compiles: its time says nothing of the others.
      if (events.length === (preset ? 2 : 1)) break
    }
  } finally {
    for (const signal of signals) process.off(signal, interrupt)
    show.end()
  }
  return { events, interrupted: trainer.interrupted }
}

/** Writes the page with settings and curves. */
async function report(options: FinetuneOptions): Promise<void> {
  const { model, data, method, output, rank, alpha, dropout, targets, optimizer, lr } = options
  const adapter =
    method === 'full'
      ? []
      : [
          ['rank', rank],
          ['alpha', alpha],
          ['dropout', dropout],
          ['targets', targets],
        ]
  const facts = [
    ['model', model],
    ['data', data],
    ['validation', options.validation],
    ['method', method],
    ...adapter,
    ['loss', options.preset ?? options.loss],
    ['teacher', options.teacher],
    ['optimizer', optimizer],
    ['learning rate', lr],
    ['weight decay', options.weightDecay],
    ['schedule', options.schedule],
    ['warm-up steps', options.warmup],
    ['epochs', options.epochs],
    ['batch size', options.batchSize],
    ['batches per step', options.accumulate],
    ['precision', options.precision ?? 'fp32'],
    ['seed', options.seed],
    ['dgx-spark', packageVersion()],
  ].flatMap(([name, value]) => (value === undefined ? [] : [[String(name), String(value)] as const]))
  const validations = await readValidations(logIn(output))
  await writeReport(path.join(output, 'report.html'), await readEvents(logIn(output)), {
    title: 'Fine-tuning',
    facts,
    validations,
  })
}
