// environment-options.ts: what an environment is told.
import type { DrivingScenario } from './driving-scenario.js'
import type { SimulationDevice } from './results.js'
import type { TracedOperand } from './traced.js'
import type { TracedValues, World } from './world.js'

/** Options of {@link createEnvironment}. */
export interface EnvironmentOptions<S = DrivingScenario> {
  /** Scenarios that advance together. */
  count: number
  /** The scenario of a seed. */
  scenario: (seed: number) => S
  /** The reward of a step from what the world measures. It is called once, with values that stand for those of all scenarios. */
  reward: (measures: TracedValues) => TracedOperand
  /** The world. Default: {@link drivingWorld}. */
  world?: World<S>
  /** Whether a scenario whose agents have all ended, or whose time is over, begins anew with the next seed. Default: true. */
  autoReset?: boolean
  /** The seed after another one. Default: a hash of it, so that seeds do not depend on the number of scenarios. */
  nextSeed?: (seed: number) => number
  /** The most steps that a scenario may have. Default: those of the longest one of the first reset. */
  maximumSteps?: number
  /** Where it runs. Default: auto. */
  device?: SimulationDevice
}
