// create-environment.ts: environments load their work when they are made.
import type { DrivingScenario } from './driving-scenario.js'
import type { Environment } from './environment.js'
import type { EnvironmentOptions } from './environment-options.js'

/**
 * Makes an environment for reinforcement learning: batched observations, rewards and ends of many scenarios, on the device.
 * @example
 * const env = await createEnvironment({
 *   count: 256,
 *   scenario: seed => generateScenarios({ count: 1, seed, kinds: ['curve'] })[0],
 *   reward: ({ cost }) => cost.negate(),
 * })
 * let { observations } = await env.reset()
 * for (let step = 0; step < 1000; step++) {
 *   const actions = policy(observations) // [256, 2]
 *   const result = await env.step(actions)
 *   observations = result.observations
 * }
 * env.dispose()
 * @throws SparkError ERR_ARGUMENT, and what opening the device throws
 */
export async function createEnvironment<S = DrivingScenario>(
  options: EnvironmentOptions<S>,
): Promise<Environment<S>> {
  const { Environment } = await import('./environment.js')
  return Environment.create(options)
}
