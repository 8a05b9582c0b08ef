// placement.js: layers of a model on devices, exactly: any order of them, any subset. The goal for 80 layers on 8 devices is 64 ms.
import assert from 'node:assert'
import { objectiveOf } from '#lib/cluster/placement/chain.js'
import { solveExactly } from '#lib/cluster/placement/dynamic-programming.js'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Chain } from '#lib/cluster/placement/chain.js' */

const sizes = [
  { devices: 8, layers: 80 },
  { devices: 10, layers: 126 },
]

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* placement({ backend }) {
  if (backend !== 'cpu') return
  for (const { devices, layers } of sizes) {
    const chain = randomChain(devices, layers)
    for (const objective of /** @type {const} */ (['latency', 'throughput']))
      yield {
        name: 'placement',
        shape: `${layers} layers x${devices} ${objective}`,
        dtype: 'f64',
        run: () => solveExactly(chain, objective),
        check: () => {
          const blocks = solveExactly(chain, objective)
          assert(blocks && blocks[0]?.from === 0 && blocks.at(-1)?.end === layers)
          assert(objectiveOf(chain, blocks, objective) < Number.POSITIVE_INFINITY)
        },
      }
  }
}

/**
 * Devices of memory for a tenth to a half of the layers, whose weights differ by 10 %, and links of 0.05 to 5 ms beside layers of 1 ms.
 * @param {number} devices @param {number} layers @returns {Chain}
 */
function randomChain(devices, layers) {
  const numbers = uniform(devices * (devices + 2) + layers, 1)
  let next = 0
  const share = () => Math.abs(numbers[next++] ?? 0)
  const weights = Array.from({ length: layers }, () => 0.9 + 0.2 * share())
  const speeds = Array.from({ length: devices }, () => 0.2 + 2 * share())
  const first = new Int32Array(devices * (layers + 1))
  const hops = new Float64Array(devices * devices * layers)
  for (let d = 0; d < devices; d++) {
    const memory = layers * (0.1 + 0.4 * share())
    for (let [p, q, held] = [0, 1, 0]; q <= layers; q++) {
      held += weights[q - 1] ?? 0
      while (held > memory) held -= weights[p++] ?? 0
      first[d * (layers + 1) + q] = p
    }
    for (let e = 0; e < devices; e++)
      hops.fill(0.05 + 5 * share(), (d * devices + e) * layers, (d * devices + e + 1) * layers)
  }
  const seconds = speeds.flatMap(speed => weights.map(weight => weight / speed))
  return {
    ...{ devices, layers, first, hops, seconds: Float64Array.from(seconds) },
    ...{ fixed: new Float64Array(devices), moved: new Float64Array(devices * layers) },
  }
}
