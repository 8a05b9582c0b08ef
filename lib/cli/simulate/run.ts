// run.ts: any number of scenarios, a part at a time, so that memory is bounded and Ctrl-C is heard in between.
import type { DrivingScenario } from '../../simulation/driving-scenario.js'
import type { BatchResult, ScenarioResult } from '../../simulation/results.js'
import type { ScenarioRunner } from '../../simulation/runner.js'
import type { FailedScenario } from '../../simulation/scenarios.js'

/** Steps of all scenarios of a part: a batch of 4,096 scenarios of 20 s. */
const maxSteps = 2e6

/** What a run is told. */
export interface RunOptions {
  /** s */
  readonly timeStep: number
  readonly signal: AbortSignal
  onProgress(progress: { readonly done: number; readonly total: number }): void
}

/**
 * Runs all scenarios. Those without a name are called by their index.
 * @throws SparkError as {@link ScenarioRunner.runBatch}; the reason of the signal
 */
export async function runScenarios(
  runner: ScenarioRunner,
  scenarios: readonly DrivingScenario[],
  { timeStep, signal, onProgress }: RunOptions,
): Promise<BatchResult> {
  const results: ScenarioResult[] = []
  const failed: FailedScenario[] = []
  let [ms, device] = [0, 'js' as BatchResult['device']]
  for (let first = 0; first < scenarios.length; ) {
    const part = partFrom(scenarios, first, timeStep)
    const batch = await runner.runBatch(part, { signal })
    for (const result of batch.results) results.push({ ...result, index: first + result.index })
    for (const { index, error } of batch.failed)
      failed.push({ index: first + index, name: nameOf(scenarios[first + index], first + index), error })
    ms += batch.ms
    device = batch.device
    first += part.length
    onProgress({ done: first, total: scenarios.length })
    // Timers and signals are heard here, where a part did not wait for anything.
    await new Promise(resolve => setImmediate(resolve))
    signal.throwIfAborted()
  }
  return { results, failed, device, ms }
}

/** Scenarios from an index on, all with names, that fit into memory together. */
function partFrom(scenarios: readonly DrivingScenario[], first: number, timeStep: number): DrivingScenario[] {
  const part: DrivingScenario[] = []
  let steps = 0
  for (let index = first; index < scenarios.length; index++) {
    const scenario = scenarios[index]!
    steps += Math.max(1, Number(scenario?.duration) / timeStep || 1)
    if (part.length > 0 && steps > maxSteps) break
    part.push(withName(scenario, index))
  }
  return part
}

function withName(scenario: DrivingScenario, index: number): DrivingScenario {
  const isNamed =
    typeof scenario !== 'object' || scenario === null || Array.isArray(scenario) || 'name' in scenario
  return isNamed ? scenario : { ...scenario, name: nameOf(scenario, index) }
}

function nameOf(scenario: { readonly name?: unknown } | undefined, index: number): string {
  const name = scenario?.name
  return typeof name === 'string' ? name : `scenario ${index}`
}
