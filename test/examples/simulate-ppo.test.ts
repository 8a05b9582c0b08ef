// The example of reinforcement learning: its loss and advantages by hand, a short training, its policy in ONNX Runtime.
import path from 'node:path'
import { Model, ScenarioRunner, Tensor, writeOnnx } from 'dgx-spark'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { close } from '../fixtures/close.js'

const example = path.resolve(import.meta.dirname, '../../examples/simulate-ppo')
const { ppoLoss, logProbability } = await import(path.join(example, 'loss.js'))
const { generalizedAdvantages } = await import(path.join(example, 'rollout.js'))
const { trainPolicy } = await import(path.join(example, 'ppo.js'))
const { metrics, observations, scenarioOf, seeds } = await import(path.join(example, 'scenarios.js'))

t.test('the loss is that of the paper', async t => {
  const count = 64
  const draw = (seed: number) => Tensor.random([count, 1], { seed, distribution: 'normal' })
  const [mean, value, sampled, advantage, wanted] = [1, 2, 3, 4, 5].map(draw) as Tensor<'f32'>[]
  const logDeviation = Math.fround(-0.3)
  const before = Tensor.from(
    sampled!.data.map((action, i) => {
      const deviations = (action - mean!.data[i]!) / Math.exp(logDeviation)
      return logProbability(deviations, logDeviation) + 0.4 * Math.sin(i)
    }),
    { shape: [count, 1] },
  )
  const options = { clip: 0.2, valueWeight: 0.5, entropyWeight: 0.01 }
  const model = await Model.fromGraph(ppoLoss(options))
  const { loss } = await model.run({
    mean: mean!,
    value: value!,
    sampled: sampled!,
    logProbability: before,
    advantage: advantage!,
    return: wanted!,
    logDeviations: [[logDeviation]],
  })
  model.dispose()
  let expected = -options.entropyWeight * logDeviation
  for (let i = 0; i < count; i++) {
    const ratio = Math.exp(-0.4 * Math.sin(i))
    const a = advantage!.data[i]!
    expected -= Math.min(ratio * a, Math.min(Math.max(ratio, 0.8), 1.2) * a) / count
    expected += (0.5 * (value!.data[i]! - wanted!.data[i]!) ** 2) / count
  }
  const got = Number(loss!.data[0])
  t.ok(Math.abs(got - expected) < 1e-5, `${got} is ${expected}`)
})

t.test('advantages reach back to the beginning of a scenario', t => {
  // Two scenarios, three steps; the second one begins anew after its second step.
  const advantages = generalizedAdvantages(
    {
      rewards: Float32Array.of(1, 1, 1, 1, 1, 1),
      values: Float32Array.of(0, 0, 2, 2, 4, 4),
      nextValues: Float32Array.of(2, 2, 4, 8, 6, 6),
      ends: Float32Array.of(0, 0, 0, 1, 0, 0),
    },
    2,
    0.5,
    0.5,
  )
  // Errors: [2, 2], [1, 3], [0, 0]; each later one counts a quarter.
  t.same([...advantages], [2.25, 2.75, 1, 3, 0, 0])
  t.end()
})

t.test('training and held-out seeds have none in common', t => {
  t.equal(new Set([...seeds.training, ...seeds.heldOut]).size, seeds.training.length + 200)
  t.equal(seeds.heldOut.length, 200)
  t.end()
})

t.test('a short training', { skip: !loadAddon().addon && 'too slow without the addon' }, async t => {
  const progress: { iteration: number; reward: number; loss: number; deviation: number }[] = []
  const train = (iterations: number) =>
    trainPolicy({ iterations, seed: 3, backend: 'cpu' }, (numbers: (typeof progress)[number]) =>
      progress.push(numbers),
    )
  const graph = await train(10)
  const rewards = progress.map(({ reward }) => reward)
  t.equal(progress.length, 10)
  for (const { loss, deviation } of progress) t.ok(Number.isFinite(loss) && deviation > 0, `${loss}`)
  // The first iteration drives straight roads alone; the second one reaches the bends.
  t.ok(rewards[9]! > 0.5 * rewards[1]!, `less than half of the errors: ${rewards}`)
  progress.length = 0
  await train(1)
  t.equal(progress[0]!.reward, rewards[0], 'the same seed, the same drive')

  const file = path.join(t.testdir(), 'policy.onnx')
  await writeOnnx(graph, file)
  const runner = new ScenarioRunner({ algorithm: file, metrics, device: 'cpu' })
  // Without noise: trajectories have the lateral error and the speed that are true, policies see the noisy ones.
  const { results } = await runner.runBatch([0, 2].map(scenarioOf), { trajectories: true })
  runner.dispose()
  const seen = results.flatMap(({ trajectory, steps }) =>
    Array.from({ length: steps }, (_, step) => observations.map((name: string) => trajectory![name]![step])),
  )
  const steering = Float32Array.from(
    results.flatMap(({ trajectory }) => [...trajectory!['action.steeringAngle']!]),
  )
  t.ok(steering.some(angle => Math.abs(angle) > 1e-3))
  t.ok(results.every(({ trajectory }) => trajectory!['action.acceleration']!.every(value => value === 0)))
  await t.test('in ONNX Runtime', { skip: await withoutRuntime() }, async t => {
    const model = await Model.load(file, { backend: 'onnxruntime' })
    const { action } = await model.run({ observation: seen })
    model.dispose()
    const angles = (action!.data as Float32Array).filter((_, i) => i % 2 === 1)
    close(t, angles, steering, 1e-5, 'the same angles')
  })
})

async function withoutRuntime(): Promise<false | string> {
  try {
    await import('onnxruntime-node')
    return false
  } catch {
    return 'onnxruntime-node is not installed'
  }
}
