// api.ts: what the package exports of this folder.
// biome-ignore-all assist/source/organizeImports: exports stand in reading order
export { ScenarioRunner } from './runner.js'
export type {
  BatchResult,
  RunBatchOptions,
  ScenarioResult,
  ScenarioRunnerOptions,
  SimulationDevice,
} from './results.js'
export { createEnvironment } from './create-environment.js'
export type { EnvironmentOptions } from './environment-options.js'
export type { Environment, EnvironmentStep } from './environment.js'
export type { FailedScenario } from './scenarios.js'
export type { Comparison, MetricDifference } from './comparison.js'
export type { Actions, Algorithm, Decision, Policy, PolicyWithMemory } from './algorithm.js'
export {
  type AccOptions,
  acc,
  type IdmOptions,
  idm,
  type LaneKeepingOptions,
  laneKeeping,
  type PidOptions,
  pid,
} from './controllers.js'
export { type DrivingWorldOptions, drivingWorld } from './driving.js'
export type { DrivingScenario, EgoCar, LeadCar, Road, SensorNoise } from './driving-scenario.js'
export type { Profile } from './profile.js'
export {
  type GenerateOptions,
  generateScenarios,
  type ScenarioKind,
  scenarioKinds,
} from './generators.js'
export type { Traced, TracedOperand } from './traced.js'
export type {
  ActionRange,
  Metric,
  Numbers,
  RunModel,
  ScenarioStart,
  TracedValues,
  World,
  WorldChange,
  WorldStep,
} from './world.js'
export { loadTinyphysics, type TinyphysicsDrive, type TinyphysicsOptions } from './tinyphysics.js'
export { type GenerateDrivesOptions, generateDrives, parseDrive } from './drives.js'
