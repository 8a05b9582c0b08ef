// scenarios.js: what is driven: bends with exact and with noisy sensors, at a constant speed. Only the steering is to be learned.
import { createEnvironment, drivingWorld, generateScenarios } from 'dgx-spark'

/** @import { DrivingScenario, SimulationDevice } from 'dgx-spark' */

const kinds = /** @type {const} */ (['curve', 'sensorNoise'])

/** Seeds that controllers may be fitted to, and those that they are compared on. */
export const seeds = { training: range(0, 256), heldOut: range(3_000_000, 200) }

/** The scenario of a seed: of two kinds that take turns, 20 s. @param {number} seed */
export function scenarioOf(seed) {
  const [scenario] = generateScenarios({ count: 1, seed, kinds: [kinds[seed % 2] ?? 'curve'] })
  return /** @type {DrivingScenario} */ (scenario)
}

/** Metrics of the world that controllers are compared by: at a constant speed its cost is ∫ 10·(lateral error/m)² dt. */
export const metrics = ['cost', 'lateralError', 'largestLateralError']

/** m from the middle of the lane to the end of the road, where a scenario ends. */
const edge = 5.4

/**
 * Scenarios of the training seeds in lock step; each begins anew with the next of these seeds. The reward of a step is
 * −|lateral error/m| / horizon, not below −2 / horizon, so that sums discounted over `horizon` steps are about lateral errors; a car
 * that leaves the road gets as little as for `horizon` more of the worst steps.
 * @param {number} count @param {number} horizon @param {SimulationDevice} device
 */
export function trainingEnvironment(count, horizon, device) {
  return createEnvironment({
    count,
    scenario: scenarioOf,
    nextSeed: seed => (seed + 1) % seeds.training.length,
    reward({ lateralDistance }) {
      const distance = /** @type {NonNullable<typeof lateralDistance>} */ (lateralDistance)
      const left = distance.greater(edge)
      return distance.minimum(2).divide(-horizon).subtract(left.multiply(2))
    },
    device,
  })
}

/** Names of the observations. */
export const observations = drivingWorld().observations

/** @param {number} first @param {number} count */
function range(first, count) {
  return Array.from({ length: count }, (_, i) => first + i)
}
