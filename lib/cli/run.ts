import type { Command } from 'commander'
import type { NamedStage } from '../cluster/own-models.js'
import { type ActivationType, activationTypes } from '../core/activation-types.js'
import { type Precision, parsePrecision, precisions } from '../core/config.js'
import { didYouMean } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'
import type { OutputDifference } from '../diagnostics/compare.js'
import type { Graph } from '../graph/graph.js'
import { type ModelBackend, modelBackends } from '../model/engine.js'
import { Model } from '../model/model.js'
import type { ModelOutput } from '../model/results.js'
import { type NodeFlags, nodeOptions, openOnNodes } from './cluster/run-on-nodes.js'
import { choice, UsageError, withExamples } from './command.js'
import { type FileOptions, feedsFor, fileFeeds, parseInput, type Tensors } from './feeds.js'
import { integerFrom, numberFrom, pathFrom } from './numbers.js'
import { formatBytes, print, printJson, printPairs, styled } from './output.js'
import {
  compareWithFile,
  compareWithOutputs,
  describeOutput,
  expectTarget,
  jsonOutput,
  type Outputs,
  saveOutputs,
} from './outputs.js'
import { parseShape, parseSize, precisionOption, type SizeOptions, sizeHint } from './shapes.js'
import { printTable } from './table.js'

interface EngineFlags {
  backend?: ModelBackend
  precision?: Precision
}

interface RunFlags extends EngineFlags, SizeOptions, FileOptions, NodeFlags {
  activations?: ActivationType
  seed: number
  runs: number
  output?: string
  compare?: string
  tolerance?: number
  json?: boolean
}

interface Latency {
  readonly first: number
  readonly median: number
  readonly best: number
}

/** What a run gave, and how far it is from what it was compared with. */
interface Ran {
  readonly outputs: Outputs
  readonly latency: Latency
  readonly files: readonly string[]
  readonly differences: readonly OutputDifference[] | undefined
  readonly stages: readonly NamedStage[] | undefined
}

/** `dgx-spark run`: runs a model, prints its outputs and how long it took, saves and compares them. */
export function addRun(command: Command): void {
  command
    .argument('<model.onnx>')
    .option('--input <name=file.npy>', 'an input from a file; the others are random', parseInput)
    .option('--inputs <file.safetensors>', 'inputs by their names')
    .option('--seed <n>', 'seed of random inputs', integerFrom(0, 2 ** 32 - 1), 0)
    .option('--size <name=number>', 'size of an open dimension (default: 1)', parseSize)
    .option('--shape <input=sizes>', 'shape of an input, such as image=1,3,320,320', parseShape)
    .addOption(choice('--backend <name>', 'engine', modelBackends))
    .addOption(precisionOption('format of weights (default: the best of the hardware)'))
    .addOption(choice('--activations <type>', 'what rows are rounded to (default: f32)', activationTypes))
    .option('--runs <count>', 'runs that are timed', integerFrom(1, 999_999), 10)
    .option(
      '-o, --output <path>',
      'write outputs to a .safetensors or .npy file, or a folder of .npy files',
      pathFrom,
    )
    .option(
      '--compare <with>',
      'a backend, a precision, an .onnx model, or outputs that --output wrote',
      pathFrom,
    )
    .option('--tolerance <error>', 'exit with 1 when a relative error of --compare is larger', numberFrom(0))
    .option('--json', 'print one JSON document, with all values')
  for (const option of nodeOptions()) command.addOption(option)
  command.action(run)
  withExamples(
    command,
    'dgx-spark run model.onnx --precision bf16 --compare fp32',
    'dgx-spark run model.onnx --input image=photo.npy --output scores.npy',
    'dgx-spark run model.onnx --size batch=4 --backend cpu --compare onnxruntime',
    'dgx-spark run model.onnx --shape image=1,3,320,320 --runs 100',
    'dgx-spark run model.onnx --cluster --nodes 2 --compare cpu',
  )
}

async function run(file: string, flags: RunFlags): Promise<void> {
  const reference = flags.compare === undefined ? undefined : referenceOf(flags.compare)
  if (flags.tolerance !== undefined && !reference) throw new UsageError('--tolerance needs --compare')
  const { backend, precision, activations } = flags
  if (flags.cluster && activations) throw new UsageError('--activations works without --cluster only')
  const engine = { ...(backend && { backend }), ...(precision && { precision }) }
  const onNodes = flags.cluster ? await openOnNodes(file, flags, engine) : undefined
  const model = await Model.load(file, { ...engine, ...(activations && { activations }) }).catch(
    async error => {
      await onNodes?.close()
      throw error
    },
  )
  try {
    if (flags.output !== undefined) expectTarget(flags.output, file, model.outputs.length)
    const feeds = feedsFor(model, await fileFeeds(model, flags), flags, flags.seed)
    const timed = await timedRuns(
      model.graph,
      onNodes ?? { run: feeds => model.run<ModelOutput>(feeds) },
      feeds,
      flags,
    )
    const files = flags.output === undefined ? [] : await saveOutputs(timed.outputs, flags.output)
    const differences = reference && (await differencesTo(reference, file, engine, feeds, timed.outputs))
    const ran: Ran = { ...timed, files, differences, stages: onNodes?.stages }
    if (flags.json) printJson(document(model, ran))
    else report(model, ran, flags)
    const { tolerance = Number.POSITIVE_INFINITY } = flags
    if (differences?.some(({ relativeError }) => !(relativeError <= tolerance))) process.exitCode = 1
  } finally {
    model.dispose()
    await onNodes?.close()
  }
}

async function timedRuns(
  graph: Graph,
  model: { run(feeds: Tensors): Promise<Outputs> },
  feeds: Tensors,
  flags: RunFlags,
): Promise<{ outputs: Outputs; latency: Latency }> {
  const start = performance.now()
  let outputs: Outputs = await model.run(feeds).catch((error: unknown) => {
    const hint = error instanceof SparkError && error.code === 'ERR_SHAPE' && sizeHint(graph, flags)
    throw hint ? new SparkError('ERR_SHAPE', `${error.message}; ${hint}`, { cause: error }) : error
  })
  const first = performance.now() - start
  const times: number[] = []
  for (let run = 0; run < flags.runs; run++) {
    const start = performance.now()
    outputs = await model.run(feeds)
    times.push(performance.now() - start)
  }
  times.sort((a, b) => a - b)
  return { outputs, latency: { first, median: times[times.length >> 1]!, best: times[0]! } }
}

/** What `--compare` names. */
type Reference = EngineFlags & { model?: string; file?: string }

function referenceOf(text: string): Reference {
  if (modelBackends.includes(text as ModelBackend)) return { backend: text as ModelBackend }
  const precision = parsePrecision(text)
  if (precision) return { precision }
  if (text.endsWith('.onnx')) return { model: text }
  if (/\.(npy|safetensors)$/.test(text) || text.includes('/') || text.includes('\\')) return { file: text }
  const hint = didYouMean(text, [...modelBackends, ...precisions])
  if (hint === '') return { file: text }
  const kinds = `a backend (${modelBackends.join(', ')}), a precision (${precisions.join(', ')}), or a file`
  throw new UsageError(`--compare ${text}: expected ${kinds}${hint}`)
}

async function differencesTo(
  { model: other, file: saved, ...changed }: Reference,
  file: string,
  engine: EngineFlags,
  feeds: Tensors,
  outputs: Outputs,
): Promise<OutputDifference[]> {
  if (saved !== undefined) return compareWithFile(outputs, saved)
  const reference = await Model.load(other ?? file, { ...engine, ...changed })
  try {
    return compareWithOutputs(outputs, await reference.run<ModelOutput>(feeds))
  } finally {
    reference.dispose()
  }
}

function document(model: Model, { outputs, latency, files, differences, stages }: Ran): object {
  const { backend, precision, precisionReason, stats } = model
  return {
    backend,
    precision,
    precisionReason,
    latency,
    outputs: Object.entries(outputs).map(([name, output]) => jsonOutput(name, output)),
    ...(files.length > 0 && { files }),
    ...(differences && { differences }),
    ...(stages ? { stages } : { stats }),
  }
}

function report(model: Model, { outputs, latency, files, differences, stages }: Ran, flags: RunFlags): void {
  const { backend, stats } = model
  const { first, median, best } = latency
  const ms = (time: number): string => `${time.toFixed(time < 10 ? 3 : 1)} ms`
  if (stages)
    for (const { node, from, end, sums } of stages)
      print(styled('bold', `${node}: nodes ${from} to ${end - 1}${sums ? `, sums over ${sums}` : ''}`))
  else {
    print(styled('bold', `${backend.name}: ${backend.reason}`))
    print(styled('bold', `${model.precision}: ${model.precisionReason}`))
  }
  printTable(
    ['output', 'type', 'first values'],
    Object.entries(outputs).flatMap(([name, output]) => describeOutput(name, output)),
  )
  const pairs: (readonly [string, string])[] = [
    ['latency', `${ms(median)} (median), ${ms(best)} (best)`],
    ['first run', `${ms(first)}, compilation included`],
  ]
  if (!stages && stats.plans > 0) {
    pairs.push(
      ['compilation', `${stats.compileMs.toFixed(1)} ms`],
      ['plans', `${stats.plans}, ${stats.steps} kernel calls`],
      ['memory', `arena ${formatBytes(stats.arenaBytes)}, weights ${formatBytes(stats.constantBytes)}`],
    )
  }
  printPairs(pairs)
  if (differences) reportDifferences(flags.compare!, differences)
  for (const file of files) print(`wrote ${file}`)
}

function reportDifferences(reference: string, differences: readonly OutputDifference[]): void {
  const digits = (error: number): string => (error === 0 ? '0' : error.toExponential(2))
  printTable(
    [`compared with ${reference}`, 'cosine', 'relative error', 'largest error'],
    differences.map(({ name, cosine, relativeError, maxError }) => [
      name,
      cosine.toFixed(7),
      digits(relativeError),
      digits(maxError),
    ]),
    [1, 2, 3],
  )
  print('relative error: ‖a − b‖ / ‖b‖ over the output; largest error: max |a − b|')
}
