// baseline.js: the PID controller with the best gains on the training seeds.
import { pid, ScenarioRunner } from 'dgx-spark'
import { metrics } from './scenarios.js'

/** @import { DrivingScenario, PidOptions, SimulationDevice } from 'dgx-spark' */

/** Gains in rad/m, rad/m for each step, and rad/m of change in a step. */
const grid = {
  proportional: [0.02, 0.04, 0.06, 0.08, 0.12],
  integral: [0.001, 0.002, 0.004, 0.006, 0.008],
  derivative: [0.2, 0.4, 0.6, 0.8, 1.2],
}

/** A PID controller of the lateral error. @param {Partial<PidOptions>} gains */
export const steeringPid = gains => pid({ value: 'lateralError', action: 'steeringAngle', ...gains })

/**
 * Runs all scenarios with all combinations of gains.
 * @param {readonly DrivingScenario[]} scenarios @param {SimulationDevice} device
 * @returns the gains with the smallest mean cost among those with which the fewest cars leave the road
 */
export async function searchGains(scenarios, device) {
  const combinations = grid.proportional.flatMap(proportional =>
    grid.integral.flatMap(integral =>
      grid.derivative.map(derivative => ({ proportional, integral, derivative })),
    ),
  )
  const results = []
  for (const gains of combinations) {
    const runner = new ScenarioRunner({ algorithm: steeringPid(gains), metrics, device })
    const { results: ran } = await runner.runBatch(scenarios)
    runner.dispose()
    const cost = ran.reduce((sum, { metrics }) => sum + metrics.cost, 0) / ran.length
    results.push({ gains, cost, left: ran.filter(({ ended }) => ended !== 'finished').length })
  }
  results.sort((a, b) => a.left - b.left || a.cost - b.cost)
  return { ...results[0], count: results.length }
}
