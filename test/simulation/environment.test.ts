// Environments: what agents see after steps is what a runner sees with the same actions; ends, rewards, several agents, new beginnings.
import {
  createEnvironment,
  type DrivingScenario,
  drivingWorld,
  type Environment,
  generateScenarios,
  type PolicyWithMemory,
  ScenarioRunner,
  type Tensor,
  type Traced,
  type TracedValues,
} from 'dgx-spark'
import t from 'tap'
import { backends } from '../fixtures/backends.js'

const scenario = (seed: number): DrivingScenario => generateScenarios({ count: 1, seed, duration: 2 })[0]!
const reward = ({ cost }: TracedValues) => cost!.negate()

/** Actions that have no reason. */
const actionsAt = (count: number, step: number): Float32Array =>
  Float32Array.from({ length: 2 * count }, (_, i) =>
    i % 2 === 0 ? Math.sin(step + i) : 0.01 * Math.cos(step * i),
  )

/** An algorithm that gives actions of a list, [step][action]. */
function replay(actions: readonly (readonly number[])[]): PolicyWithMemory {
  const [acceleration, steeringAngle] = [0, 1].map(i => actions.map(action => action[i]!))
  return {
    memory: {
      step: 0,
      steps: actions.map((_, i) => i),
      acceleration: acceleration!,
      steeringAngle: steeringAngle!,
    },
    act(_, { step, steps, acceleration, steeringAngle }) {
      const now = steps!.equal(step!)
      const of = (list: Traced): Traced => list.multiply(now).sum()
      return {
        action: { acceleration: of(acceleration!), steeringAngle: of(steeringAngle!) },
        memory: { step: step!.add(1) },
      }
    },
  }
}

const speeds = ({ observations }: Environment<DrivingScenario>, seen: Tensor<'f32'>): number[] => {
  const [column, width] = [observations.indexOf('speed'), observations.length]
  return [...seen.data].filter((_, i) => i % width === column)
}

for (const device of backends) {
  t.test(`steps on ${device}`, async t => {
    const count = 3
    const env = await createEnvironment({ count, scenario, reward, device, autoReset: false })
    t.same(Object.keys(env.actions), ['acceleration', 'steeringAngle'])
    const { observations: first } = await env.reset([5, 0, 7])
    t.same(first.shape, [3, env.observations.length])
    const seen = [first]
    const costs = [0, 0, 0]
    for (let step = 0; step < 40; step++) {
      const result = await env.step(actionsAt(count, step))
      seen.push(result.observations)
      for (const [i, value] of result.rewards.data.entries()) costs[i]! -= value
      t.same([...result.truncated.data], step === 39 ? [1, 1, 1] : [0, 0, 0], `step ${step}`)
      t.same([...result.ended.data, ...result.reset.data], [0, 0, 0, 0, 0, 0])
    }
    const after = await env.step(actionsAt(count, 40))
    t.same([...after.rewards.data], [0, 0, 0], 'nothing moves any more')
    t.same(speeds(env, after.observations), speeds(env, seen[40]!))
    env.dispose()
    await t.rejects(env.reset(), { code: 'ERR_DISPOSED' })
    for (const [row, seed] of [5, 0, 7].entries()) {
      const actions = Array.from({ length: 40 }, (_, step) => [
        ...actionsAt(count, step).subarray(2 * row, 2 * row + 2),
      ])
      const runner = new ScenarioRunner({ algorithm: replay(actions), device })
      const { results } = await runner.runBatch([scenario(seed)], { trajectories: true })
      const { trajectory, metrics } = results[0]!
      t.ok(Math.abs(metrics.cost! - costs[row]!) <= 1e-4 * metrics.cost!, `cost of seed ${seed}`)
      for (const name of ['hasLead', 'headingError', 'steeringAngle', 'leadSpeed']) {
        const column = env.observations.indexOf(name)
        const values = seen.slice(0, 40).map(tensor => tensor.data[row * env.observations.length + column]!)
        t.same(values, [...trajectory![name]!], `${name} of seed ${seed}`)
      }
      runner.dispose()
    }
  })
}

t.test('scenarios begin anew with the next seed, each by itself', async t => {
  const lengths = [0.5, 1, 2]
  const of = (seed: number): DrivingScenario => ({ duration: lengths[seed % 3]!, ego: { speed: 10 + seed } })
  const options = { scenario: of, reward: () => 1, nextSeed: (seed: number) => seed + 1, maximumSteps: 40 }
  const env = await createEnvironment({ ...options, count: 2 })
  await env.reset([0, 4])
  const begun: [step: number, scenario: number, speed: number][] = []
  let total = 0
  for (let step = 1; step <= 100; step++) {
    const { reset, truncated, observations, finalObservations, rewards } = await env.step(new Float32Array(4))
    total += rewards.data[0]!
    t.same([...reset.data], [...truncated.data])
    for (const [i, isNew] of reset.data.entries())
      if (isNew) begun.push([step, i, speeds(env, observations)[i]!])
      else t.equal(speeds(env, finalObservations)[i], speeds(env, observations)[i])
  }
  t.equal(total, 100, 'a reward in each step')
  t.same(begun, [
    [10, 0, 11],
    [20, 1, 15],
    [30, 0, 12],
    [60, 1, 16],
    [70, 0, 13],
    [70, 1, 17],
    [80, 0, 14],
    [90, 1, 18],
    [100, 0, 15],
  ])
  await env.reset([2, 2])
  t.same(speeds(env, (await env.step(new Float32Array(4))).observations), [12, 12])
  env.dispose()

  const hashed = await createEnvironment({ ...options, nextSeed: seed => seed, count: 1 })
  await hashed.reset()
  t.notOk((await hashed.step(new Float32Array(2))).reset.data[0])
  hashed.dispose()
})

t.test('a scenario that began anew is what it is from the beginning', async t => {
  const noisy = (seed: number): DrivingScenario => ({
    duration: 0.5,
    seed,
    ego: { speed: 20 },
    lead: {
      gap: 30,
      speed: 18,
      acceleration: [
        [0, 0],
        [0.4, -3],
      ],
    },
    noise: { gap: 1, speed: 1 },
  })
  const options = { scenario: noisy, reward: ({ gap }: TracedValues) => gap!, count: 1, nextSeed: () => 9 }
  const env = await createEnvironment(options)
  const drive = async (steps: number): Promise<number[]> => {
    const seen: number[] = []
    for (let step = 0; step < steps; step++) {
      const { observations, rewards } = await env.step(Float32Array.of(1, 0.01))
      seen.push(...observations.data, ...rewards.data)
    }
    return seen
  }
  await env.reset([1])
  await drive(10)
  const later = await drive(9)
  await env.reset([9])
  t.same(await drive(9), later)
  env.dispose()
})

t.test('several agents: each follows the one before, and ends by itself', async t => {
  const world = drivingWorld({ agents: 3, vehicle: 'pointMass' })
  const of = (): DrivingScenario => ({ duration: 10, ego: { speed: 20 }, lead: { gap: 50, speed: 20 } })
  const options = { world, scenario: of, count: 2, reward: ({ gap }: TracedValues) => gap! }
  const env = await createEnvironment(options)
  const { observations } = await env.reset()
  t.same(observations.shape, [2, 3, env.observations.length])
  const gap = env.observations.indexOf('gap')
  const gaps = (tensor: Tensor<'f32'>): number[] =>
    [...tensor.data]
      .filter((_, i) => i % env.observations.length === gap)
      .map(value => Math.round(value * 100) / 100)
  t.same(gaps(observations), [50, 32, 32, 50, 32, 32])
  // The second car of the first scenario drives into the first one.
  const actions = Float32Array.from({ length: 12 }, (_, i) => (i === 2 ? 4 : 0))
  let ended: number[] = []
  let steps = 0
  while (!ended.some(Boolean) && steps++ < 200) {
    const result = await env.step(actions)
    t.same(result.rewards.shape, [2, 3])
    ended = [...result.ended.data]
    t.same([...result.reset.data], [0, 0], 'others still drive')
  }
  t.same(ended, [0, 1, 0, 0, 0, 0])
  const later = await env.step(new Float32Array(12))
  t.equal(later.rewards.data[1], 0)
  t.ok(later.rewards.data[0]! > 0 && later.rewards.data[2]! > 0)
  env.dispose()
  t.throws(() => drivingWorld({ agents: 0 }), { code: 'ERR_ARGUMENT', message: /options.agents/ })
  const runner = new ScenarioRunner({ world, algorithm: () => ({}) })
  await t.rejects(runner.runBatch([of()]), {
    code: 'ERR_ARGUMENT',
    message: /several are for createEnvironment/,
  })
})

t.test('what a caller gets wrong', async t => {
  const good = { count: 2, scenario, reward }
  const refused = (options: object, message: RegExp) =>
    t.rejects(createEnvironment({ ...good, ...options } as never), { code: 'ERR_ARGUMENT', message })
  await refused({ count: 0 }, /options.count/)
  await refused({ scenario: {} }, /options.scenario/)
  await refused({ reward: 1 }, /options.reward/)
  await refused({ device: 'gpu' }, /options.device/)
  await refused({ seeds: [] }, /seeds/)
  const env = await createEnvironment(good)
  await t.rejects(env.step(new Float32Array(4)), { message: /reset/ })
  await t.rejects(env.reset([1]), { message: /seeds must be a list of 2/ })
  await t.rejects(env.reset([1, -1]), { message: /seeds\[1\]/ })
  await env.reset()
  await t.rejects(env.step(new Float32Array(3)), { code: 'ERR_SHAPE', message: /\[2, 2\]/ })
  await t.rejects(env.step([1] as never), { message: /actions/ })
  const both = await Promise.allSettled([env.step(new Float32Array(4)), env.step(new Float32Array(4))])
  t.match(both, [{ status: 'fulfilled' }, { status: 'rejected', reason: { message: /busy/ } }])
  env.dispose()
  const bad = await createEnvironment({ ...good, scenario: seed => ({ duration: -seed, ego: { speed: 1 } }) })
  await t.rejects(bad.reset([3, 4]), { message: /seed 3: .*duration/ })
  const unknown = await createEnvironment({ ...good, reward: ({ costs }) => costs! })
  await t.rejects(unknown.reset(), { message: /no measure 'costs'.*cost/ })
})
