// The learned simulator against a plain rollout around onnxruntime-node, in f64, with the cost of the controls challenge.
import { existsSync } from 'node:fs'
import path from 'node:path'
import {
  generateDrives,
  loadTinyphysics,
  parseDrive,
  pid,
  ScenarioRunner,
  type TinyphysicsDrive,
} from 'dgx-spark'
import t from 'tap'
import { gains, openSession, rollout } from '../../bench/rollout.js'

const file = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'models/tinyphysics.onnx')
const skip =
  !(process.env.DGX_SPARK_TEST_DATA && existsSync(file)) && 'DGX_SPARK_TEST_DATA has no tinyphysics.onnx'
const runtime = await import('onnxruntime-node').catch(() => undefined)

const algorithm = pid({
  value: 'lateralAcceleration',
  target: 'targetLateralAcceleration',
  action: 'steer',
  ...gains,
})

for (const prediction of ['expected', 'sampled'] as const) {
  t.test(`each step, ${prediction}`, { skip: skip || (!runtime && 'no onnxruntime-node') }, async t => {
    const world = await loadTinyphysics(file, { prediction })
    using runner = new ScenarioRunner({ world, algorithm })
    const drives = generateDrives({ count: 3, seed: 11, steps: 220 })
    const { results, failed } = await runner.runBatch(drives, { trajectories: true })
    t.same(failed, [])
    const session = await openSession(runtime!, file)
    for (const [i, drive] of drives.entries()) {
      const plain = await rollout(runtime!, session, drive, prediction)
      const { trajectory, metrics } = results[i]!
      const far = (name: string, expected: readonly number[]): number =>
        expected
          .slice(20)
          .reduce((worst, value, step) => Math.max(worst, Math.abs(value - trajectory![name]![step]!)), 0)
      t.ok(
        far('predicted', plain.accelerations) < 2e-3,
        `${drive.name}: lateral accelerations by ${far('predicted', plain.accelerations)}`,
      )
      t.ok(far('steer', plain.steers) < 2e-3, `${drive.name}: steering by ${far('steer', plain.steers)}`)
      t.ok(
        Math.abs(metrics.cost! / plain.cost - 1) < 1e-3,
        `${drive.name}: cost ${metrics.cost} for ${plain.cost}`,
      )
    }
  })
}

t.test('drives do not depend on those beside them', { skip }, async t => {
  const world = await loadTinyphysics(file)
  const drives = generateDrives({ count: 5, steps: 140 })
  const metricsOf = async (batchSize: number, list: readonly TinyphysicsDrive[]): Promise<unknown[]> => {
    using runner = new ScenarioRunner({ world, algorithm, batchSize })
    const { results } = await runner.runBatch(list)
    return results.map(({ name, metrics }) => ({ name, metrics }))
  }
  const all = await metricsOf(5, drives)
  t.same(await metricsOf(1, drives), all)
  t.same(await metricsOf(2, drives), all)
  t.same((await metricsOf(5, [...drives].reverse())).reverse(), all)
})

t.test('what is wrong with drives is named', { skip }, async t => {
  const world = await loadTinyphysics(file, { futureSteps: 3 })
  const [drive] = generateDrives({ count: 1, steps: 120 })
  using runner = new ScenarioRunner({
    world,
    algorithm: ({ futureTarget, targetLateralAcceleration }) => ({
      steer: futureTarget!.sum().divide(3).add(targetLateralAcceleration!).multiply(0.1),
    }),
  })
  const short = { ...drive!, name: 'short', vEgo: drive!.vEgo.slice(1) }
  const odd = { ...drive!, name: 'odd', steer: ['left'] }
  const { results, failed } = await runner.runBatch([short, drive!, odd as never, null as never])
  t.equal(results.length, 1)
  t.same(
    failed.map(({ index, name }) => [index, name]),
    [
      [0, 'short'],
      [2, 'odd'],
      [3, 'scenario 3'],
    ],
  )
  t.match(failed[0]!.error.message, /vEgo must be a list of 120 numbers/)
  t.match(failed[1]!.error.message, /steer/)
  await t.rejects(loadTinyphysics(file, { prediction: 'mean' as never }), { message: /prediction/ })
  await t.rejects(loadTinyphysics('nothing.onnx'), { message: /nothing.onnx/ })
})

t.test('drives of the controls challenge', async t => {
  const header = 't,vEgo,aEgo,roll,targetLateralAcceleration,steerCommand'
  const rows = Array.from({ length: 3 }, (_, i) => `${i / 10},${20 + i},0.5,0.1,${i},${i === 2 ? '' : -i}`)
  const drive = parseDrive([header, ...rows].join('\r\n'), 'a.csv')
  t.match(drive, {
    name: 'a.csv',
    vEgo: [20, 21, 22],
    steer: [0, 1, 1],
    targetLateralAcceleration: [0, 1, 2],
  })
  t.ok(Math.abs(drive.rollLateralAcceleration[0]! - 9.81 * Math.sin(0.1)) < 1e-12)
  t.throws(() => parseDrive(`${header}\n1,2,3,4,x,5`, 'b.csv'), {
    code: 'ERR_FORMAT',
    message: /b.csv: line 2: .*'x'/,
  })
  t.throws(() => parseDrive('a,b\n1,2'), {
    code: 'ERR_FORMAT',
    message: /no column 'vEgo'|no column 'target/,
  })
})
