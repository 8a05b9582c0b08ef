// simulate.ts: `dgx-spark simulate`: driving scenarios with an algorithm, or with two that are compared.
import path from 'node:path'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { type BackendName, backendNames } from '../../core/config.js'
import { didYouMean } from '../../core/did-you-mean.js'
import { makeFolder, writeFileAtomic } from '../../io/atomic-write.js'
import { compareResults } from '../../simulation/comparison.js'
import { drivingWorld } from '../../simulation/driving.js'
import { type DrivingScenario, drivingSchema } from '../../simulation/driving-scenario.js'
import { generateScenarios, type ScenarioKind, scenarioKinds } from '../../simulation/generators.js'
import type { BatchResult } from '../../simulation/results.js'
import { ScenarioRunner } from '../../simulation/runner.js'
import { choice, UsageError, withExamples } from '../command.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { print, printError, printJson, printPieces } from '../output.js'
import { countProgress } from '../progress.js'
import { joinAlgorithms, type NamedAlgorithm, parseAlgorithm } from './algorithms.js'
import { jsonPieces, type Outcome, printOutcome } from './outcome.js'
import { runScenarios } from './run.js'
import { readScenarioFile, refusal } from './scenarios.js'
import { type TrajectorySource, trajectoryFile } from './trajectories.js'

interface Flags {
  scenarios?: string
  generate?: number
  kinds?: ScenarioKind[]
  seed?: number
  duration?: number
  algorithm?: NamedAlgorithm[]
  compare?: NamedAlgorithm[]
  vehicle: 'bicycle' | 'pointMass'
  timeStep: number
  device: BackendName
  metrics?: string[]
  batchSize: number
  output?: string
  trajectories?: string
  html?: string
  json?: boolean
  schema?: boolean
}

const notes = `
Algorithms:
  idm, acc           follow the car in front; options such as idm:timeGap=1.2,minimumGap=3
  laneKeeping        steers; options frequency, damping
  pid:<options>      such as pid:value=lateralError,action=steeringAngle,proportional=0.02,derivative=0.4
  <file.onnx>        inputs are named as observations, outputs as actions
  Several give some of the actions each. An action that none of them gives stays 0.

A scenario that is wrong is listed, and the others run; the exit code is 1 then.`

/** `dgx-spark simulate`: runs scenarios, prints their metrics, compares algorithms, writes a page. */
export function addSimulate(command: Command): void {
  command
    .option('--scenarios <file>', 'JSON: a list, or { "scenarios": [...] }; - for stdin', pathFrom)
    .option('--generate <count>', 'make so many scenarios', integerFrom(1, 1_000_000))
    .option('--kinds <names>', `kinds to make: ${scenarioKinds.join(', ')} (default: all)`, parseKinds)
    .option('--seed <n>', 'seed of the first scenario that is made (default: 0)', integerFrom(0, 2 ** 32))
    .option('--duration <s>', 'seconds of each scenario that is made (default: 20)', numberIn(0.05, 3600))
    .option('--algorithm <name...>', 'what drives (default: idm laneKeeping)', parseAlgorithm)
    .option('--compare <name...>', 'another algorithm on the same scenarios', parseAlgorithm)
    .addOption(choice('--vehicle <name>', 'how the car moves', ['bicycle', 'pointMass']).default('bicycle'))
    .option('--time-step <s>', 'seconds of a step', numberIn(0.001, 1), 0.05)
    .addOption(choice('--device <name>', 'where it runs', backendNames).default('auto'))
    .option('--metrics <names>', 'metrics, with commas between them (default: all)', parseMetrics)
    .option('--batch-size <count>', 'scenarios that advance together', integerFrom(1, 2 ** 24), 4096)
    .option('-o, --output <file.json>', 'write the JSON document to a file', pathFrom)
    .option('--trajectories <file>', 'write each step to a .json or .csv file', parseTrajectories)
    .option('--html <file>', 'write a page: metrics, scenarios, and plots of the worst ones', pathFrom)
    .option('--json', 'print one JSON document')
    .addOption(new Option('--schema', 'print the JSON schema of a scenario'))
    .addHelpText('after', notes)
    .action(run)
  withExamples(
    command,
    'dgx-spark simulate --generate 1000',
    'dgx-spark simulate --scenarios scenarios.json --algorithm controller.onnx',
    'dgx-spark simulate --generate 500 --kinds cutIn,hardBrake --compare acc laneKeeping --html page.html',
    'dgx-spark simulate --generate 100 --algorithm idm:timeGap=1.2 laneKeeping --trajectories steps.csv',
    'dgx-spark simulate --schema',
  )
}

async function run(flags: Flags): Promise<void> {
  if (flags.schema) return printJson(drivingSchema)
  const scenarios = await scenariosOf(flags)
  const algorithms = [flags.algorithm ?? ['idm', 'laneKeeping'].flatMap(name => parseAlgorithm(name))]
  if (flags.compare) algorithms.push(flags.compare)
  const world = drivingWorld({ timeStep: flags.timeStep, vehicle: flags.vehicle })
  const { device, metrics, batchSize } = flags
  const options = { world, device, batchSize, ...(metrics && { metrics }) }
  const sources = algorithms.map(joinAlgorithms).map(({ label, algorithm }): TrajectorySource => {
    return { label, runner: new ScenarioRunner({ ...options, algorithm }) }
  })
  try {
    await untilInterrupted(signal => simulate(flags, scenarios, sources, signal))
  } finally {
    for (const { runner } of sources) runner.dispose()
  }
}

async function simulate(
  flags: Flags,
  scenarios: readonly DrivingScenario[],
  sources: readonly TrajectorySource[],
  signal: AbortSignal,
): Promise<void> {
  const { timeStep } = flags
  const batches: BatchResult[] = []
  for (const { label, runner } of sources) {
    const progress = countProgress(label, scenarios.length, 'scenarios')
    try {
      batches.push(await runScenarios(runner, scenarios, { timeStep, signal, onProgress: progress.update }))
    } finally {
      progress.end()
    }
  }
  const outcome = outcomeOf(flags, sources, batches)
  const files = await writeFiles(flags, outcome, { scenarios, sources, signal })
  if (flags.json) await printPieces(eachOf(jsonPieces(outcome)))
  else {
    printOutcome(outcome)
    for (const file of files) print(`wrote ${file}`)
  }
  if (outcome.refusals.length > 0) process.exitCode = 1
}

function outcomeOf(
  { vehicle, timeStep }: Flags,
  sources: readonly TrajectorySource[],
  batches: readonly BatchResult[],
): Outcome {
  const [a, b] = batches
  const units = Object.entries(drivingWorld().metrics).map(([name, { unit }]) => [name, unit])
  return {
    vehicle,
    timeStep,
    units: Object.fromEntries(units),
    runs: sources.map(({ label }, i) => ({ label, batch: batches[i]! })),
    ...(b && b.results.length > 0 && { comparison: compareResults(a!, b) }),
    refusals: a!.failed.map(refusal),
  }
}

/** What trajectories are made of. */
interface Again {
  readonly scenarios: readonly DrivingScenario[]
  readonly sources: readonly TrajectorySource[]
  readonly signal: AbortSignal
}

/** Writes the files that were asked for, and gives their names. A signal ends it, and removes what is not complete. */
async function writeFiles(flags: Flags, outcome: Outcome, again: Again): Promise<string[]> {
  const { scenarios, sources, signal } = again
  const files: string[] = []
  const write = async (file: string, chunks: AsyncIterable<Uint8Array>): Promise<void> => {
    signal.throwIfAborted()
    await makeFolder(path.dirname(path.resolve(file)))
    await writeFileAtomic(path.resolve(file), untilAborted(chunks, signal))
    files.push(file)
  }
  const { output, trajectories, html } = flags
  if (output !== undefined) await write(output, encoded(jsonPieces(outcome)))
  if (trajectories !== undefined) {
    const indices = outcome.runs[0]!.batch.results.map(({ index }) => index)
    await write(trajectories, trajectoryFile(trajectories, sources, scenarios, indices, signal))
  }
  if (html !== undefined) {
    const { simulationPage } = await import('../simulation-page/page.js')
    await write(html, encoded([await simulationPage(outcome, sources, scenarios, signal)]))
  }
  return files
}

async function* untilAborted<T>(chunks: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  for await (const chunk of chunks) {
    signal.throwIfAborted()
    yield chunk
  }
}

async function* eachOf<T>(items: Iterable<T>): AsyncGenerator<T> {
  yield* items
}

async function* encoded(texts: Iterable<string>): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder()
  for (const text of texts) yield encoder.encode(text)
}

/** Does something that Ctrl-C ends with exit code 130; a second one at once. */
async function untilInterrupted(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const signals = ['SIGINT', 'SIGTERM'] as const
  const abort = new AbortController()
  const interrupt = (): void => {
    if (abort.signal.aborted) process.exit(130)
    abort.abort()
  }
  for (const signal of signals) process.on(signal, interrupt)
  try {
    await work(abort.signal)
  } catch (error) {
    if (!abort.signal.aborted) throw error
    printError('interrupted: a file that was not complete has not been written')
    process.exitCode = 130
  } finally {
    for (const signal of signals) process.off(signal, interrupt)
  }
}

async function scenariosOf({
  scenarios,
  generate,
  kinds,
  seed,
  duration,
}: Flags): Promise<DrivingScenario[]> {
  if (scenarios !== undefined && generate !== undefined)
    throw new UsageError('--scenarios and --generate: give one of them')
  if (generate !== undefined)
    return generateScenarios({
      count: generate,
      ...(seed !== undefined && { seed }),
      ...(kinds && { kinds }),
      ...(duration !== undefined && { duration }),
    })
  for (const [name, value] of Object.entries({ kinds, seed, duration }))
    if (value !== undefined) throw new UsageError(`--${name} needs --generate`)
  if (scenarios === undefined) throw new UsageError('give --scenarios <file> or --generate <count>')
  return readScenarioFile(scenarios)
}

/** Names with commas between them, each one of those that are known. */
const namesOf =
  <T extends string>(known: readonly T[]) =>
  (text: string): T[] =>
    text.split(',').map(name => {
      const found = known.find(each => each === name.trim())
      if (found === undefined)
        throw new InvalidArgumentError(`expected names of ${known.join(', ')}${didYouMean(name, known)}`)
      return found
    })

const parseKinds = namesOf(scenarioKinds)
const parseMetrics = namesOf(Object.keys(drivingWorld().metrics))

function parseTrajectories(text: string): string {
  if (/\.(json|csv)$/i.test(text)) return text
  throw new InvalidArgumentError('expected a name that ends with .json or .csv')
}

const numberIn =
  (min: number, max: number) =>
  (text: string): number => {
    const value = Number(text)
    if (text.trim() !== '' && value >= min && value <= max) return value
    throw new InvalidArgumentError(`expected a number from ${min} to ${max}`)
  }
