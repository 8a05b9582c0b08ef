// bench.ts: `dgx-spark bench`: latency, throughput, energy and accuracy of models, beside peers.
import path from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { benchmark, benchmarkTogether } from '../benchmark/benchmark.js'
import {
  type BenchmarkComparison,
  type CompareBenchmarksOptions,
  compareBenchmarks,
} from '../benchmark/comparison.js'
import { type BenchmarkVariant, parsePeer } from '../benchmark/options.js'
import type { BenchmarkMeasurement, BenchmarkResult, TogetherResult } from '../benchmark/result.js'
import type { Precision } from '../core/config.js'
import { didYouMean } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import { readBytes } from '../io/read-file.js'
import { type ModelBackend, modelBackends } from '../model/engine.js'
import type { Feeds } from '../model/feeds.js'
import { Model } from '../model/model.js'
import {
  comparisonTable,
  energyNotes,
  facts,
  latencyTable,
  outputTable,
  togetherTable,
  useTable,
} from './bench-report.js'
import type { BenchmarkPage } from './benchmark-page/page.js'
import { UsageError, withExamples } from './command.js'
import { type FileOptions, feedsFor, fileFeeds, parseInput, readTensors } from './feeds.js'
import { integerFrom, pathFrom, positive } from './numbers.js'
import { jsonText, print, printError, printJson, printPairs, styled } from './output.js'
import { parseMode, parseShape, parseSize, type SizeOptions } from './shapes.js'
import { printTable } from './table.js'

interface Flags extends SizeOptions, FileOptions {
  runs?: number
  warmup?: number
  precision?: Precision[]
  backend?: ModelBackend[]
  batch?: number
  seed?: number
  threads?: number
  vs?: string[]
  compare?: string[]
  together?: string[]
  hz?: number
  seconds?: number
  json?: boolean
  html?: string
  output?: string
  labels?: string
}

/** `dgx-spark bench`: measures a model and its peers in turns, several models together, or compares saved results. */
export function addBench(command: Command): void {
  command
    .argument('[model.onnx]', 'what is measured')
    .option('--runs <count>', 'runs that are timed (default: 100)', integerFrom(1, 999_999))
    .option('--warmup <count>', 'runs before them (default: 20)', integerFrom(0, 999_999))
    .option('--precision <modes>', 'formats of weights, such as fp32,bf16', listOf(parseMode))
    .option('--backend <names>', 'engines, such as cpu,js', listOf(parseBackend))
    .option('--batch <size>', 'size of the first dimension of the inputs', integerFrom(1))
    .option('--seed <n>', 'seed of random inputs (default: 0)', integerFrom(0, 2 ** 32 - 1))
    .option('--input <name=file.npy>', 'an input from a file; the others are random', parseInput)
    .option('--inputs <file.safetensors>', 'inputs by their names')
    .option('--size <name=number>', 'size of an open dimension (default: 1)', parseSize)
    .option('--shape <input=sizes>', 'shape of an input, such as image=1,3,320,320', parseShape)
    .option(
      '--labels <file.npy>',
      'the right class of each row of the first output, for the accuracy',
      pathFrom,
    )
    .option('--threads <count>', 'threads of the CPU; 0: one per core', integerFrom(0))
    .option('--vs <peer>', 'onnxruntime[:provider], trtexec or another .onnx file; repeatable', parseVersus)
    .option('--compare <results...>', 'compare results that --output wrote')
    .option('--together <models>', 'run models one after another on a clock: a.onnx,b.onnx', listOf(pathFrom))
    .option('--hz <rate>', 'frames of a second of --together (default: 20)', positive)
    .option('--seconds <time>', 'how long --together runs (default: 10)', positive)
    .option('--json', 'print one JSON document')
    .option('--html <file>', 'write a page with tables and plots', pathFrom)
    .option('-o, --output <file.json>', 'save the result', pathFrom)
    .action(run)
  withExamples(
    command,
    'dgx-spark bench model.onnx --runs 200 --vs onnxruntime',
    'dgx-spark bench model.onnx --precision fp32,bf16 --backend cpu --html bench.html',
    'dgx-spark bench model.onnx --output before.json',
    'dgx-spark bench --compare before.json after.json',
    'dgx-spark bench --together vision.onnx,policy.onnx --hz 20',
  )
}

/** Reads values that are separated by commas. */
const listOf =
  <T>(parse: (text: string) => T) =>
  (text: string): T[] =>
    text.split(',').map(part => parse(part.trim()))

function parseBackend(text: string): ModelBackend {
  if (modelBackends.includes(text as ModelBackend)) return text as ModelBackend
  const hint = didYouMean(text, modelBackends)
  throw new InvalidArgumentError(`expected some of ${modelBackends.join(', ')}${hint}`)
}

function parseVersus(text: string, peers: readonly string[] = []): string[] {
  try {
    parsePeer('--vs', text)
  } catch (error) {
    throw new InvalidArgumentError((error as SparkError).message)
  }
  return [...peers, text]
}

/** Options that mean something in one use of the command only. */
const usesOf: Readonly<Record<string, readonly (keyof Flags)[]>> = {
  '--compare': ['compare', 'labels'],
  '--together': ['runs', 'warmup', 'precision', 'backend', 'seed', 'threads', 'together', 'hz', 'seconds'],
}

async function run(model: string | undefined, flags: Flags, command: Command): Promise<void> {
  expectOneUse(model, flags, command)
  if (flags.compare) return compareFiles(flags.compare, flags)
  const stop = new AbortController()
  const interrupt = (): void => {
    process.exitCode = 130
    stop.abort()
  }
  process.once('SIGINT', interrupt)
  try {
    if (flags.together) await together(flags.together, flags, stop.signal)
    else await measure(model!, flags, stop.signal)
  } catch (error) {
    if (!stop.signal.aborted) throw error
    printError('interrupted before anything was measured')
  } finally {
    process.off('SIGINT', interrupt)
  }
}

/** Ends with a usage error unless the command line asks for one thing. */
function expectOneUse(model: string | undefined, flags: Flags, command: Command): void {
  const fail = (message: string): never => command.error(`error: ${message}`)
  const use = flags.compare ? '--compare' : flags.together ? '--together' : undefined
  if (use === undefined) {
    if (model === undefined) fail('a model is missing: give a path, --together or --compare')
    if (flags.hz !== undefined || flags.seconds !== undefined) fail('--hz and --seconds need --together')
    return
  }
  if (model !== undefined) fail(`${use} takes no model beside it, but there is '${model}'`)
  const fitting = [...usesOf[use]!, 'json', 'html', 'output']
  const other = Object.keys(flags).find(name => !fitting.includes(name))
  if (other !== undefined) fail(`--${other} means nothing beside ${use}`)
  if (flags.compare?.length === 1) fail('--compare needs two results')
  if (flags.runs !== undefined && flags.seconds !== undefined && use === '--together')
    fail('--runs and --seconds: give one of them')
  if (use === '--together' && Math.max(flags.precision?.length ?? 0, flags.backend?.length ?? 0) > 1)
    fail('--together takes one precision and one backend')
}

/** Options of both benchmarks, without those that are not given. */
const engineOf = ({ runs, warmup, seed, threads }: Flags, signal: AbortSignal) => ({
  ...(runs !== undefined && { runs }),
  ...(warmup !== undefined && { warmup }),
  ...(seed !== undefined && { seed }),
  ...(threads !== undefined && { threads }),
  signal,
})

async function measure(model: string, flags: Flags, signal: AbortSignal): Promise<void> {
  const { precision: modes = [undefined], backend: names = [undefined], batch, vs = [] } = flags
  const [first, ...others] = names.flatMap(backend =>
    modes.map(
      (precision): BenchmarkVariant => ({ ...(precision && { precision }), ...(backend && { backend }) }),
    ),
  )
  if (flags.labels !== undefined && others.length + vs.length === 0)
    throw new UsageError('--labels needs a comparison: give --vs, or several of --precision or --backend')
  const [feeds, accuracy] = [await feedsOf(model, flags), await labelsOf(flags)]
  const result = await benchmark(model, {
    ...engineOf(flags, signal),
    ...first,
    ...(batch !== undefined && { batch }),
    ...(feeds && { feeds }),
    versus: [...others, ...vs],
  })
  const comparisons = result.peers.map(peer => compareBenchmarks(result, peer, accuracy))
  const measurements = [result, ...result.peers]
  const { runs, interrupted } = result
  await finish(flags, comparisons.length > 0 ? { ...result, comparisons } : result, {
    title: `Benchmark of ${path.basename(model)}`,
    facts: facts(result, [
      ['model', model],
      ['runs', `${runs}${interrupted ? ', interrupted' : ''}, batch ${result.batch}, in turns`],
    ]),
    warnings: result.warnings,
    tables: [latencyTable(measurements), useTable(measurements), ...comparisonTables(comparisons)],
    series: measurements,
    notes: [...energyNotes(measurements.map(({ use }) => use)), ...comparisonNotes(comparisons)],
  })
}

/** Inputs, where sizes or files are given. */
async function feedsOf(file: string, flags: Flags): Promise<Feeds | undefined> {
  const { size, shape, input, inputs, batch, seed = 0 } = flags
  if (!size && !shape && !input && inputs === undefined) return undefined
  // What it runs on is open: only its inputs are looked at.
  using model = await Model.load(file, {
    backend: 'js',
    precision: 'fp32',
    ...(batch && { batchSize: batch }),
  })
  return feedsFor(model, await fileFeeds(model, flags), flags, seed)
}

/** The classes of `--labels`. */
async function labelsOf({ labels: file }: Flags): Promise<CompareBenchmarksOptions> {
  if (file === undefined) return {}
  const [tensor] = Object.values(await readTensors(file, ''))
  return { labels: Array.from(tensor?.data ?? [], Number) }
}

async function together(models: string[], flags: Flags, signal: AbortSignal): Promise<void> {
  const { hz, seconds, precision: [precision] = [], backend: [backend] = [] } = flags
  const result: TogetherResult = await benchmarkTogether(models, {
    ...engineOf(flags, signal),
    ...(hz !== undefined && { hz }),
    ...(seconds !== undefined && { seconds }),
    ...(precision && { precision }),
    ...(backend && { backend }),
  })
  const { frames, misses, dropped, combined, use, interrupted } = result
  await finish(flags, result, {
    title: `Benchmark of ${models.length} models at ${result.hz} Hz`,
    facts: facts(result, [
      ['models', models.join(', ')],
      [
        'frames',
        `${frames}${interrupted ? ', interrupted' : ''}, one each ${(1000 / result.hz).toFixed(1)} ms`,
      ],
      ['deadline', `missed by ${misses} frames; ${dropped} ticks were left out`],
    ]),
    warnings: result.warnings,
    tables: [togetherTable(result), useTable([{ name: 'all models', use }])],
    series: [...result.models, { name: 'all models', samples: combined.samples }],
    notes: energyNotes([use]),
  })
}

const comparisonTables = (comparisons: readonly BenchmarkComparison[]): BenchmarkPage['tables'] =>
  [comparisonTable(comparisons), outputTable(comparisons)].filter(({ rows }) => rows.length > 0)

/** What comparisons say beside their numbers; warnings are told elsewhere. */
const comparisonNotes = (comparisons: readonly BenchmarkComparison[]): string[] =>
  comparisons.flatMap(({ names, notes }) =>
    notes.filter(note => note.startsWith('outputs are')).map(note => `${names.b}: ${note}`),
  )

async function compareFiles(files: readonly string[], flags: Flags): Promise<void> {
  const results = await Promise.all(files.map(readResult))
  const labels = await labelsOf(flags)
  const [base, ...others] = results
  const comparisons = others.flatMap(other => pairsOf(base!, other, labels))
  const measurements = results.flatMap(result => [result, ...result.peers])
  const warnings = results.flatMap(result => result.warnings)
  await finish(
    flags,
    { warnings, comparisons },
    {
      title: `Comparison of ${files.map(file => path.basename(file)).join(' and ')}`,
      facts: results.flatMap((result, i) => facts(result, [['result', files[i]!]])),
      warnings,
      tables: [latencyTable(measurements), useTable(measurements), ...comparisonTables(comparisons)],
      series: measurements,
      notes: comparisonNotes(comparisons),
    },
  )
}

/** Measurements of two results that have the same name; where there are none, the first ones. */
function pairsOf(
  a: BenchmarkResult,
  b: BenchmarkResult,
  labels: CompareBenchmarksOptions,
): BenchmarkComparison[] {
  const [ours, theirs] = [a, b].map(result => [result, ...result.peers] as BenchmarkMeasurement[])
  // The names have files before them, as tables have.
  const plain = ({ name }: BenchmarkMeasurement): string => name.slice(name.indexOf(': ') + 2)
  const pairs = theirs!.flatMap(other => {
    const same = ours!.find(each => plain(each) === plain(other))
    return same ? [compareBenchmarks(same, other, labels)] : []
  })
  return pairs.length > 0 ? pairs : [compareBenchmarks(a, b, labels)]
}

/**
 * Reads a saved result. The names of its measurements begin with that of the file.
 * @throws SparkError ERR_FORMAT for what is none
 */
async function readResult(file: string): Promise<BenchmarkResult> {
  let result: BenchmarkResult
  try {
    result = JSON.parse(new TextDecoder().decode(await readBytes(file))) as BenchmarkResult
    const measurements = [result, ...result.peers]
    for (const measurement of measurements) compareBenchmarks(measurement, measurement)
    // What tables need is there, too.
    for (const table of [latencyTable, useTable]) table(measurements)
    facts(result, [])
  } catch (cause) {
    if (cause instanceof SparkError && cause.code === 'ERR_IO') throw cause
    const message = `${file} holds no result that dgx-spark bench --output has written`
    throw new SparkError('ERR_FORMAT', message, { cause })
  }
  const label = path.basename(file, '.json')
  const named = <T extends BenchmarkMeasurement>(measurement: T): T => ({
    ...measurement,
    name: `${label}: ${measurement.name}`,
    warnings: measurement.warnings.map(text => `${label}: ${text}`),
  })
  return { ...named(result), peers: result.peers.map(named) }
}

/** Prints a result, and writes the files that are asked for. */
async function finish(
  { json, html, output }: Flags,
  document: object,
  page: BenchmarkPage & { readonly notes: readonly string[] },
): Promise<void> {
  const written: string[] = []
  const write = async (file: string, text: string): Promise<void> => {
    await writeFileAtomic(path.resolve(file), [Buffer.from(text)])
    written.push(file)
  }
  if (output !== undefined) await write(output, `${jsonText(document, 0)}\n`)
  if (html !== undefined) {
    const { benchmarkPage } = await import('./benchmark-page/page.js')
    await write(html, benchmarkPage({ ...page, facts: [...page.facts, ...page.notes.map(noteFact)] }))
  }
  if (json) return printJson(document)
  for (const warning of page.warnings) print(styled('yellow', `warning: ${warning}`))
  for (const { head, rows } of page.tables) printTable(head, rows, rightColumns(head, rows))
  for (const note of page.notes) print(note)
  printPairs(page.facts)
  for (const file of written) print(`wrote ${file}`)
}

const noteFact = (note: string): [string, string] => ['note', note]

/** Columns that begin with a digit in every row. */
const rightColumns = (head: readonly string[], rows: readonly (readonly string[])[]): number[] =>
  head.flatMap((_, i) => (i > 0 && rows.every(row => /^[\d–]/.test(row[i]!)) ? [i] : []))
