// results.ts: what a ScenarioRunner is told, and what it gives.
import type { BackendName } from '../core/config.js'
import type { Algorithm } from './algorithm.js'
import type { DrivingScenario } from './driving-scenario.js'
import type { FailedScenario } from './scenarios.js'
import type { Metric, World } from './world.js'

/** Where scenarios run: `auto` is a usable NVIDIA GPU, else the CPU, else JavaScript. */
export type SimulationDevice = BackendName

/** Options of {@link ScenarioRunner}. */
export interface ScenarioRunnerOptions<S = DrivingScenario> {
  /** What decides. */
  algorithm: Algorithm
  /** Where it runs. Default: auto. */
  device?: SimulationDevice
  /** Names of metrics of the world, or more of one's own by name. Default: all of the world. */
  metrics?: readonly string[] | Readonly<Record<string, Metric>>
  /** The world. Default: {@link drivingWorld}. */
  world?: World<S>
  /** Scenarios that advance together at most. Default: 4096. */
  batchSize?: number
}

/** Options of {@link ScenarioRunner.runBatch}. */
export interface RunBatchOptions {
  /** Also gives what was seen, done and measured in each step. Default: false. */
  trajectories?: boolean
  /** Ends the simulation. */
  signal?: AbortSignal
  /** Is told how many scenarios are done. */
  onProgress?: (progress: { readonly done: number; readonly total: number }) => void
}

/** What came of one scenario. */
export interface ScenarioResult {
  /** Its index in the list. */
  readonly index: number
  /** Its name. */
  readonly name: string
  /** `finished`, one of the endings of the world, or `not finite` where a number of it became infinite or NaN. */
  readonly ended: string
  /** Steps until then. */
  readonly steps: number
  /** Seconds until then. */
  readonly seconds: number
  /** Metrics by name. */
  readonly metrics: Readonly<Record<string, number>>
  /** One number for each step, by name: observations, `action.…` and measures; at their end `time` in s. */
  readonly trajectory?: Readonly<Record<string, Float32Array>>
}

/** What came of a list of scenarios. */
export interface BatchResult {
  /** Of those that ran, in their order. */
  readonly results: readonly ScenarioResult[]
  /** Those that were wrong. */
  readonly failed: readonly FailedScenario[]
  /** Where they ran. */
  readonly device: 'cuda' | 'cpu' | 'js'
  /** Milliseconds of the simulation, without compilation. */
  readonly ms: number
}
