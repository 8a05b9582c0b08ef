// simulation.js: scenarios in a batch, beside one at a time; drives of the learned simulator beside rollouts around onnxruntime-node.
import assert from 'node:assert'
import { existsSync } from 'node:fs'
import path from 'node:path'
import {
  generateDrives,
  generateScenarios,
  idm,
  laneKeeping,
  loadTinyphysics,
  pid,
  ScenarioRunner,
} from 'dgx-spark'
import { gains, openSession, rollout } from '../rollout.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { BatchResult } from 'dgx-spark' */
/** @import { Case } from '../harness.js' */

const count = 1024
const drives = 64

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* simulation({ backend }) {
  if (backend === 'js') return
  yield* driving(backend)
  yield* learned(backend)
}

/** @param {BatchResult} batch */
const metricsOf = ({ results }) => results.map(({ metrics }) => metrics)

/** @param {'cpu' | 'cuda'} backend @returns {AsyncGenerator<Case>} */
async function* driving(backend) {
  const algorithm = [idm(), laneKeeping()]
  const scenarios = generateScenarios({ count })
  const runner = new ScenarioRunner({ algorithm, device: backend })
  // On a GPU the batch on the CPU is what it competes with.
  const other =
    backend === 'cpu'
      ? new ScenarioRunner({ algorithm, device: 'cpu', batchSize: 1 })
      : new ScenarioRunner({ algorithm, device: 'cpu' })
  yield {
    name: 'simulation',
    shape: `driving x${count}`,
    dtype: 'f32',
    pairs: 3,
    elements: count * 400,
    run: () => runner.runBatch(scenarios),
    check: async () => {
      const few = scenarios.slice(0, 12)
      const [ours, theirs] = [await runner.runBatch(few), await other.runBatch(few)]
      if (backend === 'cpu') assert.deepEqual(metricsOf(ours), metricsOf(theirs))
      await runner.runBatch(scenarios)
    },
    peer: {
      name: backend === 'cpu' ? 'one at a time' : 'a batch on the CPU',
      run: () => other.runBatch(scenarios),
    },
  }
  runner.dispose()
  other.dispose()
}

/** @param {'cpu' | 'cuda'} backend @returns {AsyncGenerator<Case>} */
async function* learned(backend) {
  const file = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'models/tinyphysics.onnx')
  const runtime = await import('onnxruntime-node').catch(() => null)
  if (!existsSync(file) || !runtime) return
  const list = generateDrives({ count: drives, steps: 220 })
  const world = await loadTinyphysics(file)
  const algorithm = pid({
    value: 'lateralAcceleration',
    target: 'targetLateralAcceleration',
    action: 'steer',
    ...gains,
  })
  const runner = new ScenarioRunner({ world, algorithm, device: backend })
  const session = await openSession(runtime, file)
  yield {
    name: 'simulation',
    shape: `tinyphysics x${drives}`,
    dtype: 'f32',
    pairs: 3,
    elements: drives * 200,
    run: () => runner.runBatch(list),
    check: async () => {
      const { results } = await runner.runBatch(list)
      for (const [i, drive] of list.slice(0, 2).entries()) {
        const { cost } = await rollout(runtime, session, drive, 'sampled')
        const ours = results[i]?.metrics.cost ?? Number.NaN
        assert(Math.abs(ours / cost - 1) < 1e-3, `cost ${ours} for ${cost}`)
      }
    },
    peer: {
      name: 'onnxruntime-node, one at a time',
      spins: true,
      run: async () => {
        for (const drive of list) await rollout(runtime, session, drive, 'sampled')
      },
    },
  }
  runner.dispose()
  await session.release()
}
