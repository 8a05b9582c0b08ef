// finetune.ts: `dgx-spark finetune`: training of an adapter or a model with data from files.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { type BackendName, backendNames } from '../core/config.js'
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
import type { MetricName } from '../training/metrics.js'
import type { TrainingPrecision } from '../training/options.js'
import { writeReport } from '../training/report.js'
import { Trainer } from '../training/trainer.js'
import type { FitOptions } from '../training/validation.js'
import { choice, UsageError, withExamples } from './command.js'
import { type FinetuneData, openFinetuneData } from './finetune-data.js'
import { lossNames, parseLoss } from './finetune-loss.js'
import { integerFrom, numberFrom, pathFrom, positive } from './numbers.js'
import { print, printError, printPairs } from './output.js'
import { trainingProgress } from './progress.js'

/** Arguments of the command line. */
interface FinetuneOptions {
  model: string
  data?: string
  validation?: string
  output: string
  createAdapter?: boolean
  method: 'dora' | 'lora' | 'full'
  epochs: number
  batchSize: number
  accumulate: number
  optimizer: 'adamw' | 'sgd'
  lr: number
  weightDecay?: number
  schedule: 'constant' | 'linear' | 'cosine' | 'reduce-on-plateau'
  warmup?: number
  loss: string
  teacher?: string
  metrics?: MetricName[]
  monitor?: string
  patience?: number
  rank: number
  alpha: number
  dropout: number
  targets: string
  normalize?: [mean: number, deviation: number]
  clip: number
  seed: number
  checkpointEvery: number
  resume?: boolean
  dryRun?: boolean
  backend?: BackendName
  precision?: TrainingPrecision
}

const pair = (text: string): [number, number] => {
  const values = text.split(',').map(part => (part.trim() === '' ? Number.NaN : Number(part)))
  if (values.length === 2 && values.every(Number.isFinite) && values[1] !== 0)
    return values as [number, number]
  throw new InvalidArgumentError('expected a mean and a deviation, such as 0.1307,0.3081')
}

const names = (text: string): string[] => text.split(',').map(name => name.trim())

/** `dgx-spark finetune`: trains an adapter, or the whole model. */
export function addFinetune(command: Command): void {
  command
    .requiredOption('--model <file>', 'the ONNX model; it stays as it is', pathFrom)
    .requiredOption('--output <folder>', 'where adapter, checkpoints, log and report go', pathFrom)
    .option('--create-adapter', 'make and save a new adapter, and train nothing')
  addDataOptions(command)
  addMethodOptions(command)
  addTrainingOptions(command)
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
  )
}

function addDataOptions(command: Command): void {
  command
    .option(
      '--data <path>',
      'a folder of IDX, npy or safetensors files, or a JavaScript module of batches',
      pathFrom,
    )
    .option(
      '--validation <path|fraction>',
      'data to validate with after each epoch, or a share of --data',
      pathFrom,
    )
    .option('--metrics <names>', 'what validation measures: accuracy, top5, mae, rmse', names)
    .option('--monitor <name>', 'what decides which parameters are best: loss or a metric (default: loss)')
    .option('--patience <n>', 'end after so many validations that are not better', integerFrom(1))
    .option('--normalize <mean,deviation>', 'images become (pixel / 255 − mean) / deviation', pair)
}

function addMethodOptions(command: Command): void {
  command
    .addOption(
      choice('--method <name>', 'what is trained: an adapter, or all weights', [
        'dora',
        'lora',
        'full',
      ]).default('dora'),
    )
    .option('--dora-rank, --rank <n>', 'rank of the adapter', integerFrom(1, 2 ** 20), 16)
    .option('--dora-alpha, --alpha <n>', 'the adapter is scaled by alpha / rank', numberFrom(0), 16)
    .option(
      '--dora-dropout, --dropout <p>',
      'probability that an input of the adapter is dropped',
      numberFrom(0, 1),
      0,
    )
    .option('--targets <names>', 'ends of module names, separated by commas', 'all-linear')
}

function addTrainingOptions(command: Command): void {
  command
    .option('--epochs <n>', 'times that all samples are seen', integerFrom(1), 10)
    .option('--batch-size <n>', 'samples of a batch', integerFrom(1), 32)
    .option('--accumulate <n>', 'batches of a step', integerFrom(1), 1)
    .addOption(choice('--optimizer <name>', 'how weights are updated', ['adamw', 'sgd']).default('adamw'))
    .option('--lr <rate>', 'learning rate', numberFrom(0), 1e-4)
    .option('--weight-decay <factor>', 'decay of weights (default: 0.01 for adamw, 0 for sgd)', numberFrom(0))
    .addOption(
      choice('--schedule <name>', 'how the learning rate changes', [
        'constant',
        'linear',
        'cosine',
        'reduce-on-plateau',
      ]).default('constant'),
    )
    .option('--warmup <steps>', 'steps over which the learning rate rises from 0', integerFrom(0))
    .option(
      '--loss <loss>',
      `what is minimised: ${lossNames.join(', ')}, with settings such as mse:output=y,target=z; or a .onnx or .json file`,
      'cross-entropy',
    )
    .option('--teacher <file>', 'an ONNX model whose outputs are targets', pathFrom)
    .option('--clip <norm>', 'largest norm of the gradients', positive, 1)
    .option('--seed <n>', 'seed of the adapter and of the order of samples', integerFrom(0, 2 ** 32 - 1), 0)
    .option('--checkpoint-every <steps>', 'steps between two checkpoints', integerFrom(1), 500)
    .option('--resume', 'go on from the newest checkpoint of the output folder')
    .option('--dry-run', 'check model, data and options with one step; write nothing')
    .addOption(choice('--backend <name>', 'engine to run on', backendNames))
    .addOption(choice('--precision <mode>', 'what products round to', ['fp32', 'fp16', 'bf16']))
}

/** Runs the command; returns its exit code. */
async function finetune(options: FinetuneOptions): Promise<number> {
  expectConsistent(options)
  const graph = canonicalise(await readOnnx(options.model))
  const adapter = await adapterFor(graph, options)
  const { output, data: source, validation } = options
  if (adapter && options.createAdapter) {
    if (!options.dryRun) await saveNew(adapter, output)
    print(options.dryRun ? 'nothing was written' : `the new adapter is in ${output}`)
    return 0
  }
  if (source === undefined)
    throw new UsageError('finetune needs --data, or --create-adapter to train nothing')
  const { loss, seed, normalize } = options
  const data = await openFinetuneData(graph, {
    data: source,
    loss,
    seed,
    ...(validation !== undefined && { validation }),
    ...(normalize && { normalize }),
  })
  using _lock = options.dryRun ? undefined : await lockFolder(output)
  const trainer = await trainerFor(graph, adapter, options)
  const result = await train(trainer, data, options)
  if (options.dryRun) {
    print(`one step works: loss ${result.loss.toPrecision(4)}; nothing was written`)
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

/** Throws for options that mean nothing together. */
function expectConsistent({ method, createAdapter, validation, ...options }: FinetuneOptions): void {
  if (createAdapter && method === 'full')
    throw new UsageError('--create-adapter makes no adapter for --method full')
  if (options.warmup !== undefined && options.schedule === 'reduce-on-plateau')
    throw new UsageError('--warmup needs --schedule constant, linear or cosine')
  const useless = (['metrics', 'monitor', 'patience'] as const).find(name => options[name] !== undefined)
  if (useless && validation === undefined)
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

async function trainerFor(graph: Graph, adapter: Adapter | null, options: FinetuneOptions): Promise<Trainer> {
  const { output, checkpointEvery: every, backend, precision, schedule, warmup, weightDecay } = options
  const teacher = options.teacher === undefined ? undefined : canonicalise(await readOnnx(options.teacher))
  const kept = options.dryRun
    ? {}
    : { checkpoint: { folder: checkpointsIn(output), every }, log: logIn(output) }
  const decay = weightDecay !== undefined && { weightDecay }
  return new Trainer({ graph }, adapter, {
    loss: await parseLoss(options.loss, graph),
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
  { output, resume, dryRun, metrics, monitor, patience }: FinetuneOptions,
): Promise<{ loss: number; interrupted: boolean }> {
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
  let loss = Number.NaN
  for (const signal of signals) process.on(signal, interrupt)
  try {
    for await (const event of trainer.steps(training, fit)) {
      loss = event.loss
      show.step(event)
      if (dryRun) break
    }
  } finally {
    for (const signal of signals) process.off(signal, interrupt)
    show.end()
  }
  return { loss, interrupted: trainer.interrupted }
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
    ['loss', options.loss],
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
