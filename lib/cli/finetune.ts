// finetune.ts: `dgx-spark finetune`: training of an adapter with data from files.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { type BackendName, backendNames } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { openData } from '../data/open.js'
import type { FieldRules, TableDataset } from '../data/table.js'
import type { Adapter } from '../dora/model/adapter.js'
import { createAdapter } from '../dora/model/create-adapter.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import type { Graph, TensorType } from '../graph/graph.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import type { PairTerm } from '../graph/rewrites/losses.js'
import { inferFacts } from '../graph/shape-inference.js'
import { lockFolder } from '../io/lock.js'
import { readOnnx } from '../io/onnx/read.js'
import { listCheckpoints } from '../training/checkpoint.js'
import { readEvents } from '../training/log.js'
import type { TrainingPrecision } from '../training/options.js'
import { writeReport } from '../training/report.js'
import { Trainer } from '../training/trainer.js'
import { choice, UsageError, withExamples } from './command.js'
import { integerFrom, numberFrom, pathFrom, positive } from './numbers.js'
import { print, printError, printPairs } from './output.js'
import { trainingProgress } from './progress.js'

/** Arguments of the command line. */
interface FinetuneOptions {
  model: string
  data?: string
  output: string
  createAdapter?: boolean
  epochs: number
  batchSize: number
  accumulate: number
  lr: number
  loss: PairTerm['type']
  doraRank: number
  doraAlpha: number
  doraDropout: number
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

/** `dgx-spark finetune`: trains an adapter. */
export function addFinetune(program: Command): void {
  const command = program
    .command('finetune')
    .description('train a DoRA adapter on an ONNX model')
    .requiredOption('--model <file>', 'the ONNX model; it stays as it is', pathFrom)
    .option(
      '--data <path>',
      'a folder of IDX, npy or safetensors files, or a JavaScript module of batches',
      pathFrom,
    )
    .requiredOption('--output <folder>', 'where adapter, checkpoints, log and report go', pathFrom)
    .option('--create-adapter', 'make and save a new adapter, and train nothing')
    .option('--epochs <n>', 'times that all samples are seen', integerFrom(1), 10)
    .option('--batch-size <n>', 'samples of a batch', integerFrom(1), 32)
    .option('--accumulate <n>', 'batches of a step', integerFrom(1), 1)
    .option('--lr <rate>', 'learning rate', numberFrom(0), 1e-4)
    .addOption(
      choice('--loss <name>', 'what is minimised', ['cross-entropy', 'nll', 'mse', 'l1', 'kl']).default(
        'cross-entropy',
      ),
    )
    .option('--dora-rank <n>', 'rank of the adapter', integerFrom(1, 2 ** 20), 16)
    .option('--dora-alpha <n>', 'the adapter is scaled by alpha / rank', numberFrom(0), 16)
    .option('--dora-dropout <p>', 'probability that an input of the adapter is dropped', numberFrom(0, 1), 0)
    .option('--targets <names>', 'ends of module names, separated by commas', 'all-linear')
    .option('--normalize <mean,deviation>', 'images become (pixel / 255 − mean) / deviation', pair)
    .option('--clip <norm>', 'largest norm of the gradients', positive, 1)
    .option('--seed <n>', 'seed of the adapter and of the order of samples', integerFrom(0, 2 ** 32 - 1), 0)
    .option('--checkpoint-every <steps>', 'steps between two checkpoints', integerFrom(1), 500)
    .option('--resume', 'go on from the newest checkpoint of the output folder')
    .option('--dry-run', 'check model, data and options with one step; write nothing')
    .addOption(choice('--backend <name>', 'engine to run on', backendNames))
    .addOption(choice('--precision <mode>', 'what products round to', ['fp32', 'fp16', 'bf16']))
    .action(async (options: FinetuneOptions) => {
      process.exitCode = await finetune(options)
    })
  withExamples(
    command,
    'dgx-spark finetune --model base.onnx --data train --output adapter --epochs 3',
    'dgx-spark finetune --model base.onnx --data batches.mjs --output adapter --loss mse --targets fc1,fc2',
    'dgx-spark finetune --model base.onnx --data train --output adapter --resume',
  )
}

/** Runs the command; returns its exit code. */
async function finetune(options: FinetuneOptions): Promise<number> {
  const graph = canonicalise(await readOnnx(options.model))
  const { doraRank: rank, doraAlpha: alpha, doraDropout: dropout, seed, output } = options
  const targetModules =
    options.targets === 'all-linear' ? options.targets : options.targets.split(',').map(name => name.trim())
  const { backend } = options
  const settings = { targetModules, rank, alpha, dropout, seed, ...(backend && { backend }) }
  const adapter = await createAdapter(graph, settings)
  describe(graph, adapter)
  if (options.createAdapter) {
    if (!options.dryRun) await saveNew(adapter, output)
    print(options.dryRun ? 'nothing was written' : `the new adapter is in ${output}`)
    return 0
  }
  if (options.data === undefined) {
    throw new UsageError('finetune needs --data, or --create-adapter to train nothing')
  }
  const data = await openData(options.data, rulesFor(graph, options))
  if ('bad' in data) reportBad(data)
  using _lock = options.dryRun ? undefined : await lockFolder(output)
  const result = await train(graph, adapter, data, options)
  if (options.dryRun) {
    print(`one step works: loss ${result.loss.toPrecision(4)}; nothing was written`)
    return 0
  }
  await adapter.save(output)
  const facts = [['model', options.model] as const, ['data', options.data] as const]
  const log = path.join(output, 'log.jsonl')
  await writeReport(path.join(output, 'report.html'), await readEvents(log), { title: 'Fine-tuning', facts })
  print(`${result.interrupted ? 'interrupted: the adapter so far' : 'the adapter'} is in ${output}`)
  return result.interrupted ? 130 : 0
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

function describe(graph: Graph, adapter: TrainableAdapter): void {
  const count = (names: Iterable<string>, of: (name: string) => number): number =>
    [...names].reduce((sum, name) => sum + of(name), 0)
  const trained = count(adapter.parameters, name => adapter.read(name).length)
  const base = count(graph.initializers.keys(), name => graph.initializers.get(name)!.count)
  printPairs([
    ['model', `${base.toLocaleString('en')} elements, frozen`],
    [
      'adapter',
      `${trained.toLocaleString('en')} elements, ${((100 * trained) / base).toFixed(2)} % of the model`,
    ],
  ])
}

/** Fields of a dataset as the model wants them: images and labels by their role, others by the names of inputs. */
function rulesFor(graph: Graph, { loss, normalize }: FinetuneOptions): FieldRules {
  const inputs = graph.inputs.filter(({ name }) => !graph.initializers.has(name))
  const sample = (type: TensorType): readonly number[] | undefined => {
    const sizes = type.shape?.slice(1)
    return sizes?.every(size => typeof size === 'number') ? (sizes as number[]) : undefined
  }
  const rules: Record<string, FieldRules[string]> = {}
  for (const { name, type } of inputs) {
    if (type?.kind !== 'tensor') continue
    const shape = sample(type)
    rules[name] = { dtype: type.dtype, ...(shape && { shape }) }
  }
  const [first] = inputs
  const [mean, deviation] = normalize ?? [0, 1]
  const scaling = normalize ? { scale: 1 / (255 * deviation), offset: -mean / deviation } : {}
  if (first) rules.images = { ...rules[first.name], name: first.name, ...scaling }
  const scores = inferFacts(graph).get(graph.outputs[0]?.name ?? '')?.type
  const classes = scores?.kind === 'tensor' ? scores.shape?.at(-1) : undefined
  const isClass = loss === 'cross-entropy' || loss === 'nll'
  const labels = { dtype: 'i32', ...(typeof classes === 'number' && { classes }) } as const
  rules.labels = { name: 'target', ...labels }
  if (isClass) rules.target = labels
  return rules
}

/** Signals that end a training and save it: Ctrl-C, and those of job schedulers. */
const signals = ['SIGINT', 'SIGTERM'] as const

/** Rows that are named one by one. */
const namedRows = 5

function reportBad({ bad, size }: TableDataset): void {
  if (bad.length === 0) return
  printError(`${bad.length} rows or files of the data are left out, ${size} are good:`)
  for (const { source, reason } of bad.slice(0, namedRows)) printError(`  ${source}: ${reason}`)
  if (bad.length > namedRows) printError(`  … and ${bad.length - namedRows} more`)
}

async function train(
  graph: Graph,
  adapter: TrainableAdapter,
  data: Awaited<ReturnType<typeof openData>>,
  options: FinetuneOptions,
): Promise<{ loss: number; interrupted: boolean }> {
  const { output, dryRun, checkpointEvery: every, backend, precision } = options
  const abort = new AbortController()
  const interrupt = (): void => {
    if (abort.signal.aborted) process.exit(130)
    printError('saving; press Ctrl-C again to stop at once')
    abort.abort()
  }
  const kept = dryRun
    ? {}
    : { checkpoint: { folder: path.join(output, 'checkpoints'), every }, log: path.join(output, 'log.jsonl') }
  const trainer = new Trainer({ graph }, adapter, {
    loss: options.loss,
    epochs: options.epochs,
    batchSize: options.batchSize,
    seed: options.seed,
    accumulate: options.accumulate,
    maxNorm: options.clip,
    signal: abort.signal,
    optimizer: { type: 'adamw', learningRate: options.lr },
    ...kept,
    ...(options.resume && { resume: true }),
    ...(backend && { backend }),
    ...(precision && { precision }),
  })
  if (kept.checkpoint && options.resume && (await listCheckpoints(kept.checkpoint.folder)).length === 0) {
    printError(`${kept.checkpoint.folder} has no checkpoint: the training begins anew`)
  }
  const show = trainingProgress()
  let loss = Number.NaN
  for (const signal of signals) process.on(signal, interrupt)
  try {
    for await (const event of trainer.steps(data)) {
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
