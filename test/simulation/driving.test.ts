// The driving world against a plain program in f64: steps from the same state, whole drives, metrics; and how drives end.
import {
  type DrivingScenario,
  drivingWorld,
  generateScenarios,
  idm,
  laneKeeping,
  type Policy,
  type ScenarioResult,
  ScenarioRunner,
  scenarioKinds,
} from 'dgx-spark'
import t from 'tap'
import { backends } from '../fixtures/backends.js'
import {
  at,
  type Car,
  type Command,
  decide,
  drive,
  dt,
  metricsOf,
  Reference,
} from '../fixtures/driving-reference.js'

/** Every field away from its default. */
const unusual: DrivingScenario[] = [
  {
    name: 'all fields',
    duration: 12,
    seed: 2 ** 40 + 5,
    ego: {
      speed: 17,
      lateralOffset: 0.7,
      heading: -0.05,
      wheelbase: 3.1,
      length: 5.5,
      width: 2.1,
      accelerationLag: 0.7,
      steeringLag: 0.25,
    },
    lead: {
      gap: 35,
      speed: 14,
      length: 9,
      width: 2.5,
      acceleration: [
        [2, 0],
        [2, -4],
        [6, 1],
      ],
      lateralOffset: [
        [1, 0],
        [9, 2],
      ],
    },
    road: {
      curvature: [
        [0, 0.001],
        [60, 0.006],
        [150, -0.004],
      ],
      laneWidth: 3.2,
      edge: 8,
    },
    targetSpeed: [
      [0, 17],
      [10, 22],
    ],
    targetOffset: [
      [3, 0],
      [7, 0.5],
    ],
    noise: { gap: 0.5, leadSpeed: 0.2, lateralError: 0.05, headingError: 0.002, speed: 0.1 },
  },
  { name: 'no lags', duration: 6, ego: { speed: 25, accelerationLag: 0, steeringLag: 0, heading: 0.02 } },
  { name: 'standing', duration: 5, ego: { speed: 0 }, lead: { gap: 4, speed: 0 }, targetSpeed: 10 },
]

const scenarios = [
  ...scenarioKinds.flatMap((kind, i) => generateScenarios({ count: 3, kinds: [kind], seed: 20 * i })),
  ...unusual,
]

/** The states of a step, from what is recorded of it. */
function carAt(reference: Reference, { trajectory }: ScenarioResult, k: number): Car {
  const seen = (name: string): number => trajectory![name]![k]!
  return {
    ...(Object.fromEntries(
      ['position', 'speed', 'acceleration', 'steeringAngle', 'x', 'y', 'yaw'].map(name => [name, seen(name)]),
    ) as unknown as Car),
    lateralOffset: seen('lateralError') + at(reference.s.targetOffset ?? 0, k * dt),
    heading: seen('headingError') - reference.noise[3]![k]!,
  }
}

/** What is wrong with a number that should be another one; '' for nothing. */
const differs = (what: string, found: number, wanted: number, tolerance: number): string =>
  Math.abs(found - wanted) <= tolerance * Math.max(1, Math.abs(wanted))
    ? ''
    : `${what}: ${found}, not ${wanted}`

/** What is wrong with the steps of a drive, each from the state that was recorded before it. */
function wrongSteps(reference: Reference, result: ScenarioResult): string[] {
  const wrong: string[] = []
  const measures: Record<string, number>[] = []
  const { trajectory, steps, name } = result
  for (let k = 0; k < steps; k++) {
    const car = carAt(reference, result, k)
    const command = {
      acceleration: trajectory!['action.acceleration']![k]!,
      steeringAngle: trajectory!['action.steeringAngle']![k]!,
    }
    const next = reference.move(car, command)
    const measured = reference.measure(car, next, k)
    measures.push(measured)
    const seen = reference.observe(car, k)
    // The jerk is a difference divided by 0.05 s.
    for (const [key, value] of Object.entries({ ...seen, ...measured }))
      wrong.push(
        differs(
          `${name} ${k} ${key}`,
          trajectory![key]![k]!,
          value,
          key === 'jerk' || key === 'cost' ? 1e-3 : 1e-4,
        ),
      )
    for (const [key, value] of Object.entries(decide(seen)))
      wrong.push(differs(`${name} ${k} ${key}`, command[key as keyof Command], value, 1e-4))
    if (k + 1 === steps) continue
    for (const [key, value] of Object.entries(carAt(reference, result, k + 1)))
      wrong.push(differs(`${name} ${k + 1} ${key}`, value, next[key as keyof Car], 1e-4))
  }
  for (const [key, value] of Object.entries(metricsOf(measures)))
    wrong.push(differs(`${name} ${key}`, result.metrics[key]!, value, 1e-3))
  return wrong.filter(each => each !== '')
}

for (const device of backends) {
  t.test(`every step and every metric on ${device}`, async t => {
    using runner = new ScenarioRunner({ algorithm: [idm(), laneKeeping()], device })
    const { results, failed } = await runner.runBatch(scenarios, { trajectories: true })
    t.same(failed, [])
    t.equal(results.length, scenarios.length)
    for (const result of results) {
      const reference = new Reference(scenarios[result.index]!)
      t.same(wrongSteps(reference, result).slice(0, 3), [], result.name)
      t.equal(result.trajectory!.x![0]!, 0)
      t.equal(result.trajectory!.time!.at(-1), Math.fround((result.steps - 1) * dt))
    }
  })
}

for (const device of backends) {
  t.test(`whole drives on ${device}`, async t => {
    using runner = new ScenarioRunner({ algorithm: [idm(), laneKeeping()], device })
    const { results } = await runner.runBatch(scenarios, { trajectories: true })
    for (const result of results.filter(each => each.ended === 'finished')) {
      const reference = new Reference(scenarios[result.index]!)
      const { cars, metrics } = drive(reference)
      t.equal(result.steps, reference.steps)
      const wrong = cars.flatMap((car, k) =>
        Object.entries(carAt(reference, result, k)).map(([name, value]) =>
          differs(`${k} ${name}`, value, car[name as keyof Car], 2e-3),
        ),
      )
      for (const [name, value] of Object.entries(result.metrics))
        wrong.push(differs(name, value, metrics[name]!, 1e-2))
      t.same(wrong.filter(each => each !== '').slice(0, 3), [], result.name)
    }
    t.ok(results.filter(each => each.ended === 'finished').length > results.length / 2)
  })

  t.test(`a collision ends a drive on ${device}`, async t => {
    // 1 m a step: the bumpers are 0.5 m into each other before step 11, of which nothing moves any more.
    const wall = { duration: 3, ego: { speed: 20 }, lead: { gap: 10.5, speed: 0 } }
    using runner = new ScenarioRunner({ algorithm: () => ({}), device })
    const beside = { ...wall, lead: { ...wall.lead, lateralOffset: 1.9 } }
    const { results } = await runner.runBatch([wall, beside], { trajectories: true })
    t.match(results[0], { ended: 'collision', steps: 12, seconds: 0.6 })
    const { collision, gap, cost, timeToCollision, speed } = results[0]!.metrics
    t.equal(collision, 1)
    t.ok(Math.abs(gap! + 0.5) < 1e-4)
    t.ok(Math.abs(cost! - 100) < 1e-3)
    t.equal(timeToCollision, 0)
    t.equal(speed, 20)
    t.same(
      Object.values(results[0]!.trajectory!).map(each => each.length),
      Array(Object.keys(results[0]!.trajectory!).length).fill(12),
    )
    t.match(
      results[1],
      { ended: 'finished', steps: 60, metrics: { collision: 0, timeToCollision: 100, gap: 200 } },
      'past it',
    )
  })

  t.test(`leaving the road ends a drive on ${device}`, async t => {
    // sin 0.1 m a step: 2.0966 m before step 21.
    const astray = { duration: 3, ego: { speed: 20, heading: 0.1 }, road: { edge: 2 } }
    using runner = new ScenarioRunner({ algorithm: () => ({}), device })
    const [result] = (await runner.runBatch([astray])).results
    t.match(result, { ended: 'off road', steps: 22 })
    t.ok(Math.abs(result!.metrics.largestLateralError! - 21 * Math.sin(0.1)) < 1e-4)
  })

  t.test(`numbers that are not finite end their own drive on ${device}`, async t => {
    const dividing: Policy = ({ speed, targetSpeed }) => {
      const error = targetSpeed!.subtract(speed!)
      return { acceleration: error.divide(error), steeringAngle: 0 }
    }
    const own = { duration: 2, ego: { speed: 10 } }
    const list: DrivingScenario[] = [
      { ...own, targetSpeed: 100 },
      own,
      {
        ...own,
        targetSpeed: [
          [1, 10.5],
          [1, 50],
        ],
      },
      { ...own, targetSpeed: 20 },
    ]
    using runner = new ScenarioRunner({ algorithm: dividing, device })
    const { results, failed } = await runner.runBatch(list, { trajectories: true })
    t.same(failed, [])
    t.same(
      results.map(({ ended }) => ended),
      ['finished', 'not finite', 'finished', 'finished'],
    )
    t.equal(results[1]!.steps, 1)
    for (const { metrics } of results) t.ok(Object.values(metrics).every(Number.isFinite))
    for (const { trajectory, steps, ended } of results)
      for (const [name, values] of Object.entries(trajectory!)) {
        const certain = ended === 'finished' ? steps : steps - 1
        t.ok(values.subarray(0, certain).every(Number.isFinite), name)
      }
    using alone = new ScenarioRunner({ algorithm: dividing, device })
    t.same(
      (await alone.runBatch([list[3]!])).results[0]!.metrics,
      results[3]!.metrics,
      'as without the others',
    )
  })
}

t.test('a point mass keeps its lane', async t => {
  const world = drivingWorld({ vehicle: 'pointMass', timeStep: 0.1 })
  using runner = new ScenarioRunner({
    algorithm: () => ({ acceleration: 1, steeringAngle: 0.3 }),
    world,
    device: 'js',
  })
  const scenario = { duration: 4, ego: { speed: 10, heading: 0.3, lateralOffset: 0.5, accelerationLag: 0 } }
  const [result] = (await runner.runBatch([scenario], { trajectories: true })).results
  t.equal(result!.steps, 40)
  const { position, speed, lateralError, time } = result!.trajectory!
  for (const [k, seconds] of time!.entries()) {
    t.ok(Math.abs(position![k]! - (10 * seconds + seconds ** 2 / 2)) < 1e-3)
    t.ok(Math.abs(speed![k]! - (10 + seconds)) < 1e-4)
    t.equal(lateralError![k], 0.5)
  }
})

t.test('a car does not drive backwards', async t => {
  using runner = new ScenarioRunner({ algorithm: () => ({ acceleration: -100 }), device: 'js' })
  const [result] = (await runner.runBatch([{ duration: 5, ego: { speed: 8 } }], { trajectories: true }))
    .results
  const { trajectory } = result!
  t.ok(
    trajectory!['action.acceleration']!.every(value => value === -9),
    'the strongest braking there is',
  )
  t.equal(trajectory!.speed!.at(-1), 0)
  t.ok(trajectory!.speed!.every(value => value >= 0))
})

t.test('options that are wrong', async t => {
  t.throws(() => drivingWorld({ timeStep: 0 }), {
    code: 'ERR_ARGUMENT',
    message: /options\.timeStep must be .*, got 0/,
  })
  t.throws(() => drivingWorld({ timeStep: Number.NaN }), { code: 'ERR_ARGUMENT', message: /timeStep/ })
  t.throws(() => drivingWorld({ vehicle: 'tricycle' as never }), {
    code: 'ERR_ARGUMENT',
    message: /'tricycle'/,
  })
  t.throws(() => drivingWorld({ timestep: 1 } as never), { code: 'ERR_ARGUMENT', message: /timeStep/ })
})
