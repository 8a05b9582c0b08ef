// main.js: trains a steering controller by PPO in the simulator and compares it with a PID controller on scenarios that neither has
// seen. Usage: node examples/simulate-ppo/main.js [--iterations 80] [--seed 1] [--output policy.onnx] [--backend auto]
import { parseArgs } from 'node:util'
import { ScenarioRunner, writeOnnx } from 'dgx-spark'
import { searchGains, steeringPid } from './baseline.js'
import { trainPolicy } from './ppo.js'
import { metrics, scenarioOf, seeds } from './scenarios.js'

/** @import { BackendName } from 'dgx-spark' */

const { values } = parseArgs({
  options: {
    iterations: { type: 'string', default: '80' },
    seed: { type: 'string', default: '1' },
    output: { type: 'string', default: 'policy.onnx' },
    backend: { type: 'string', default: 'auto' },
  },
})
const backend = /** @type {BackendName} */ (values.backend)
const [iterations, seed] = [Number(values.iterations), Number(values.seed)]
if (
  !(Number.isInteger(iterations) && iterations >= 1 && Number.isInteger(seed) && seed >= 0 && seed < 10_000)
) {
  console.error('--iterations must be an integer from 1 on, --seed one from 0 to 9999')
  process.exit(2)
}
const began = performance.now()
const seconds = () => `${((performance.now() - began) / 1000).toFixed(0)} s`

const training = seeds.training.map(scenarioOf)
const best = await searchGains(training, backend)
const { proportional, integral, derivative } = best.gains
console.log(`PID: ${best.count} combinations of gains on ${training.length} training scenarios, ${seconds()}`)
console.log(
  `  best: proportional ${proportional}, integral ${integral}, derivative ${derivative}: cost ${best.cost.toFixed(3)}`,
)

const graph = await trainPolicy({ iterations, seed, backend }, ({ iteration, reward, loss, deviation }) => {
  if (iteration % 5 > 0 && iteration !== 1) return
  const numbers = `reward ${reward.toFixed(5)}, loss ${loss.toFixed(4)}, deviation ${deviation.toFixed(3)}`
  console.log(`PPO: iteration ${iteration}, ${numbers}, ${seconds()}`)
})
await writeOnnx(graph, values.output)

const heldOut = seeds.heldOut.map(scenarioOf)
const runner = new ScenarioRunner({ algorithm: values.output, metrics, device: backend })
const comparison = await runner.compareAlgorithms(steeringPid(best.gains), values.output, heldOut)
runner.dispose()
const { a, b, difference, interval, lower } = comparison.metrics.cost
const left = [comparison.a, comparison.b].map(
  ({ results }) => results.filter(({ ended }) => ended !== 'finished').length,
)
console.log(`cost of ${comparison.count} held-out scenarios: PID ${a.toFixed(3)}, PPO ${b.toFixed(3)}`)
console.log(`  left the road: PID ${left[0]}, PPO ${left[1]}`)
const [low, high] = interval.map(value => value.toFixed(3))
console.log(`  difference ${difference.toFixed(3)}, 95 % [${low}, ${high}], lower in ${lower}; ${seconds()}`)
if (!(interval[1] < 0 && left[1] <= left[0])) {
  console.error('the policy is not better than the PID controller')
  process.exitCode = 1
}
