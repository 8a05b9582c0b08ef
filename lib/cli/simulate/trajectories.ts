// trajectories.ts: what happens in each step of scenarios, run again a part at a time and written to a file.
import type { DrivingScenario } from '../../simulation/driving-scenario.js'
import type { ScenarioResult } from '../../simulation/results.js'
import type { ScenarioRunner } from '../../simulation/runner.js'
import { jsonText } from '../output.js'

/** What runs scenarios again. */
export interface TrajectorySource {
  readonly label: string
  readonly runner: ScenarioRunner
}

/** A scenario with its trajectory. */
export type Trajectory = ScenarioResult & { readonly trajectory: Readonly<Record<string, Float32Array>> }

/** Scenarios of which the trajectories are in memory at the same time. */
const partSize = 256

/**
 * Runs scenarios again, by their indices, and gives their trajectories.
 * @throws SparkError as {@link ScenarioRunner.runBatch}; the reason of the signal
 */
export async function* trajectories(
  runner: ScenarioRunner,
  scenarios: readonly DrivingScenario[],
  indices: readonly number[],
  signal: AbortSignal,
): AsyncGenerator<Trajectory> {
  for (let first = 0; first < indices.length; first += partSize) {
    const part = indices.slice(first, first + partSize)
    const options = { trajectories: true, signal }
    const { results } = await runner.runBatch(
      part.map(index => scenarios[index]!),
      options,
    )
    for (const result of results) yield { ...result, index: part[result.index]! } as Trajectory
  }
}

/** The bytes of a file of trajectories: JSON, or CSV for a name that ends with .csv. */
export async function* trajectoryFile(
  file: string,
  sources: readonly TrajectorySource[],
  scenarios: readonly DrivingScenario[],
  indices: readonly number[],
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const write = file.toLowerCase().endsWith('.csv') ? csvPiece : jsonPiece
  const encoder = new TextEncoder()
  let isFirst = true
  for (const { label, runner } of sources) {
    for await (const trajectory of trajectories(runner, scenarios, indices, signal)) {
      yield encoder.encode(write(label, trajectory, isFirst))
      isFirst = false
    }
  }
  if (write === jsonPiece) yield encoder.encode(isFirst ? '[]\n' : '\n]\n')
}

/** Nine digits, which give the f32 back. */
const exact = (value: number): number => Number(value.toPrecision(9))

function jsonPiece(algorithm: string, { trajectory, ...result }: Trajectory, isFirst: boolean): string {
  const columns = Object.entries(trajectory).map(([name, values]) => [name, Array.from(values, exact)])
  const item = { algorithm, ...result, trajectory: Object.fromEntries(columns) }
  return `${isFirst ? '[' : ','}\n${jsonText(item)}`
}

function csvPiece(algorithm: string, { index, name, trajectory }: Trajectory, isFirst: boolean): string {
  const { time, ...others } = trajectory
  const columns = [time!, ...Object.values(others)]
  const begin = `${quoted(algorithm)},${index},${quoted(name)}`
  const rows = Array.from(time!, (_, step) =>
    [begin, ...columns.map(column => (Number.isFinite(column[step]) ? exact(column[step]!) : ''))].join(','),
  )
  const head = ['algorithm', 'index', 'name', 'time', ...Object.keys(others)].join(',')
  return `${(isFirst ? [head, ...rows] : rows).join('\n')}\n`
}

const quoted = (text: string): string => `"${text.replaceAll('"', '""')}"`
