// chain-accuracy.ts: what a chain of stages loses whose nodes compute in different precisions.
import { argumentError, expectKnownOptions, expectSignal, expectText } from '../../core/checks.js'
import type { BackendName, Precision } from '../../core/config.js'
import { SparkError } from '../../core/errors.js'
import { DifferenceSums, type OutputDifference } from '../../diagnostics/compare.js'
import type { Graph } from '../../graph/graph.js'
import type { Feeds } from '../../model/feeds.js'
import { Model } from '../../model/model.js'
import type { AnyTensor } from '../../model/results.js'

/** A stage of a chain. Its inputs are those of the whole model, and outputs of earlier stages by their names. */
export interface ChainStage {
  /** Such as the name of its node. */
  readonly name: string
  /** What it computes, such as a stage of `cutGraph`. */
  readonly graph: Graph
  /** What its node computes in. */
  readonly precision: Precision | 'fp4'
}

/** Options of {@link chainAccuracy}. */
export interface ChainAccuracyOptions {
  /** Engine. Default: as `Model.fromGraph`. */
  readonly backend?: BackendName
  /** Ends it. */
  readonly signal?: AbortSignal
}

/** What a stage loses, over all of its outputs and all data. */
export interface StageAccuracy {
  /** Name of the stage. */
  readonly stage: string
  /** What it was measured in. */
  readonly precision: Precision | 'fp4'
  /** Of this stage alone: its inputs are those of the chain in fp32. */
  readonly own: ChainDifference
  /** Of the chain up to here: its inputs are what earlier stages gave. */
  readonly chain: ChainDifference
}

/** How far values are from those of fp32. */
export type ChainDifference = Omit<OutputDifference, 'name'>

/** What a chain loses. */
export interface ChainAccuracy {
  /** By stage, in order. */
  readonly stages: readonly StageAccuracy[]
  /** Of each output of the last stage. */
  readonly outputs: readonly OutputDifference[]
  /** Runs that were compared. */
  readonly runs: number
}

/** A stage in fp32 and in its precision, and its sums. */
interface Measured {
  readonly stage: ChainStage
  readonly exact: Model
  readonly rounded: Model
  readonly own: DifferenceSums
  readonly chain: DifferenceSums
}

type Values = Map<string, AnyTensor | Feeds[string]>

/**
 * Runs calibration data through a chain in fp32 and in the precisions of its stages, on this machine, and says what each stage and
 * the whole lose.
 * @param data - inputs of the whole model for each run
 * @throws SparkError ERR_ARGUMENT for no stage, no data, or an input that nobody gives; as `Model.fromGraph` and `Model.run`; the
 * reason of the signal
 * @example
 * const accuracy = await chainAccuracy(stages, [{ image }])
 * console.log(accuracyTable(accuracy))
 */
export async function chainAccuracy(
  stages: readonly ChainStage[],
  data: Iterable<Feeds> | AsyncIterable<Feeds>,
  options: ChainAccuracyOptions = {},
): Promise<ChainAccuracy> {
  expectKnownOptions('options', options, ['backend', 'signal'])
  expectSignal('options.signal', options.signal)
  if (!Array.isArray(stages) || stages.length === 0)
    throw argumentError('stages', 'at least one stage', stages)
  for (const [i, { name }] of stages.entries()) expectText(`stages[${i}].name`, name)
  const models: Model[] = []
  const open = async (graph: Graph, precision: Precision | 'fp4'): Promise<Model> => {
    const model = await Model.fromGraph(graph, { ...options, precision })
    models.push(model)
    return model
  }
  try {
    const measured: Measured[] = []
    for (const stage of stages) {
      const exact = await open(stage.graph, 'fp32')
      const rounded = await open(stage.graph, stage.precision)
      measured.push({ stage, exact, rounded, own: new DifferenceSums(), chain: new DifferenceSums() })
    }
    return await measure(measured, data, options.signal)
  } finally {
    for (const model of models) model.dispose()
  }
}

async function measure(
  measured: readonly Measured[],
  data: Iterable<Feeds> | AsyncIterable<Feeds>,
  signal: AbortSignal | undefined,
): Promise<ChainAccuracy> {
  const last = measured.at(-1)!
  const outputs = last.exact.outputs.map(({ name }) => ({ name, sums: new DifferenceSums() }))
  let runs = 0
  for await (const feeds of data) {
    const exact: Values = new Map(Object.entries(feeds))
    const chain: Values = new Map(Object.entries(feeds))
    for (const part of measured) await runStage(part, exact, chain, signal)
    for (const { name, sums } of outputs)
      sums.add(name, chain.get(name) as AnyTensor, exact.get(name) as AnyTensor)
    runs++
  }
  if (runs === 0) throw new SparkError('ERR_ARGUMENT', 'data is empty: there is nothing to compare')
  return {
    stages: measured.map(({ stage, own, chain }) => ({
      stage: stage.name,
      precision: stage.precision,
      own: differenceOf(own),
      chain: differenceOf(chain),
    })),
    outputs: outputs.map(({ name, sums }) => sums.difference(name)),
    runs,
  }
}

/** Runs a stage three times: in fp32, in its precision on the inputs of fp32, and on those of the chain. */
async function runStage(
  part: Measured,
  exact: Values,
  chain: Values,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { stage, rounded } = part
  const run = async (model: Model, values: Values): Promise<Readonly<Record<string, AnyTensor>>> => {
    const feeds = model.inputs.map(({ name }) => {
      const value = values.get(name)
      if (value !== undefined) return [name, value] as const
      const remedy = 'feed it, or put the stage that gives it before this one'
      throw new SparkError(
        'ERR_ARGUMENT',
        `stage '${stage.name}' reads '${name}', which nobody gives: ${remedy}`,
      )
    })
    return model.run(Object.fromEntries(feeds) as Feeds, { ...(signal && { signal }) })
  }
  const [wanted, alone, given] = [
    await run(part.exact, exact),
    await run(rounded, exact),
    await run(rounded, chain),
  ]
  for (const [name, value] of Object.entries(wanted)) {
    part.own.add(name, alone[name], value)
    part.chain.add(name, given[name], value)
    exact.set(name, value)
    chain.set(name, given[name]!)
  }
}

function differenceOf(sums: DifferenceSums): ChainDifference {
  const { name: _, ...difference } = sums.difference('')
  return difference
}

/** The numbers of a chain as a table of text: a row for each stage, then one for each output. */
export function accuracyTable({ stages, outputs, runs }: ChainAccuracy): string {
  const numbers = ({ maxError, relativeError, cosine }: ChainDifference): string[] => [
    maxError.toExponential(2),
    relativeError.toExponential(2),
    cosine.toFixed(6),
  ]
  const head = [
    'stage',
    'precision',
    'own max',
    'own relative',
    'own cosine',
    'chain max',
    'chain relative',
    'chain cosine',
  ]
  const rows = [
    head,
    ...stages.map(({ stage, precision, own, chain }) => [
      stage,
      precision,
      ...numbers(own),
      ...numbers(chain),
    ]),
    ...outputs.map(output => [`output ${output.name}`, '', '', '', '', ...numbers(output)]),
  ]
  const widths = head.map((_, column) => Math.max(...rows.map(row => row[column]!.length)))
  const line = (row: readonly string[]): string =>
    row
      .map((cell, i) => (i < 2 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
      .join('  ')
      .trimEnd()
  return [...rows.map(line), `${runs} runs, beside fp32`].join('\n')
}
