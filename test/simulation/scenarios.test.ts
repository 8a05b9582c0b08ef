// Scenarios that are wrong are named, the others run; generated ones depend on kind and seed only.
import {
  type DrivingScenario,
  type GenerateOptions,
  generateScenarios,
  ScenarioRunner,
  scenarioKinds,
} from 'dgx-spark'
import t from 'tap'
import { drivingWorld } from '#lib/simulation/driving.js'
import { drivingSchema } from '#lib/simulation/driving-scenario.js'
import { readScenarios } from '#lib/simulation/scenarios.js'

const good: DrivingScenario = { duration: 1, ego: { speed: 20 } }
const ramps = (count: number) => Array.from({ length: count }, (_, i) => [i * 10, i * 1e-4])

/** What is wrong with each: texts that its message has. */
const wrong: readonly [scenario: unknown, ...texts: string[]][] = [
  [null, 'scenario 1 must be an object', 'null'],
  [undefined, 'scenario 1 must be an object', 'undefined'],
  ['cut in', 'must be an object', "'cut in'"],
  [[], 'must be an object', '[]'],
  [{}, "lacks 'duration'"],
  [{ duration: 5 }, "lacks 'ego'"],
  [{ duration: 5, ego: {} }, "scenario 1.ego lacks 'speed'"],
  [{ ...good, lead: { gap: 5 } }, "scenario 1.lead lacks 'speed'"],
  [{ ...good, name: 'a', ego: { speed: -3 } }, "scenario 1 'a'.ego.speed must be >= 0", 'got -3'],
  [{ ...good, duration: 0 }, 'scenario 1.duration must be > 0', 'got 0'],
  [{ ...good, duration: -2 }, '.duration', 'got -2'],
  [{ ...good, duration: 1e9 }, '.duration must be <= 3600', 'got 1000000000'],
  [{ ...good, duration: Number.POSITIVE_INFINITY }, '.duration', 'Infinity'],
  [{ ...good, duration: Number.NaN }, '.duration', 'NaN'],
  [{ ...good, duration: '5' }, '.duration must be number', "got '5'"],
  [{ ...good, duration: 5n }, '.duration', '5n'],
  [{ ...good, name: '' }, '.name', "got ''"],
  [{ ...good, name: 7 }, '.name must be string', 'got 7'],
  [{ ...good, seed: 1.5 }, '.seed must be integer', 'got 1.5'],
  [{ ...good, seed: -1 }, '.seed', 'got -1'],
  [{ ...good, seed: 2 ** 53 }, '.seed', '9007199254740992'],
  [{ ...good, targetspeed: 3 }, "scenario 1 has a field 'targetspeed'"],
  [{ ...good, ego: { speed: 1, lenght: 4 } }, "scenario 1.ego has a field 'lenght'"],
  [{ ...good, ego: { speed: 1, wheelbase: 0 } }, '.ego.wheelbase must be > 0', 'got 0'],
  [{ ...good, ego: { speed: 1, steeringLag: -0.1 } }, '.ego.steeringLag', 'got -0.1'],
  [{ ...good, lead: { gap: -1, speed: 0 } }, '.lead.gap', 'got -1'],
  [
    { ...good, lead: { gap: 1, speed: 0, acceleration: 'hard' } },
    '.lead.acceleration',
    'a list of pairs',
    "'hard'",
  ],
  [
    { ...good, lead: { gap: 1, speed: 0, acceleration: [[0, Number.NaN]] } },
    '.lead.acceleration',
    'a list of pairs',
  ],
  [{ ...good, targetSpeed: [] }, '.targetSpeed', 'a list of pairs', 'got []'],
  [{ ...good, targetSpeed: [[0, 1, 2]] }, '.targetSpeed', 'a list of pairs'],
  [{ ...good, targetSpeed: [[0, -1]] }, '.targetSpeed'],
  [
    {
      ...good,
      targetOffset: [
        [3, 0],
        [2, 1],
      ],
    },
    'targetOffset[1][0] must be at least 3',
    'got 2',
  ],
  [{ ...good, road: { curvature: ramps(17) } }, 'road.curvature must be at most 16 breakpoints'],
  [{ ...good, road: { laneWidth: -1 } }, '.road.laneWidth', 'got -1'],
  [{ ...good, road: 5 }, '.road must be object', 'got 5'],
  [{ ...good, noise: { gap: -0.5 } }, '.noise.gap', 'got -0.5'],
  [{ ...good, noise: { yaw: 1 } }, ".noise has a field 'yaw'"],
]

t.test('each wrong field is named with its value, and the others run', async t => {
  const world = drivingWorld()
  for (const [scenario, ...texts] of wrong) {
    const { starts, failed } = await readScenarios(world, [good, scenario as DrivingScenario, good])
    t.same([...starts.keys()], [0, 2], texts[0])
    t.match(failed, [{ index: 1, error: { code: 'ERR_ARGUMENT' } }])
    for (const text of texts) t.match(failed[0]!.error.message, text)
  }
})

t.test('failed scenarios beside those that run', async t => {
  using runner = new ScenarioRunner({ algorithm: () => ({}), device: 'js' })
  const list = [good, { ...good, name: 'first', duration: -1 }, null as never, { ...good, name: 'last' }]
  const { results, failed } = await runner.runBatch(list)
  t.same(
    results.map(({ index, name, ended }) => [index, name, ended]),
    [
      [0, 'scenario 0', 'finished'],
      [3, 'last', 'finished'],
    ],
  )
  t.same(
    failed.map(({ index, name }) => [index, name]),
    [
      [1, 'first'],
      [2, 'scenario 2'],
    ],
  )
  t.match(await runner.runBatch([null as never]), { results: [], failed: [{ index: 0 }] })
  t.match(await runner.runBatch([good]), { results: [{ ended: 'finished' }] }, 'the runner goes on')
})

t.test('what is just allowed', async t => {
  const list: DrivingScenario[] = [
    { ...good, road: { curvature: ramps(16) as [number, number][] } },
    { ...good, duration: 3600 },
    { ...good, duration: 1e-9 },
    { ...good, seed: Number.MAX_SAFE_INTEGER, noise: { gap: 0.1 } },
    {
      ...good,
      targetSpeed: [
        [5, 10],
        [5, 20],
      ],
    },
    { ...good, lead: { gap: 0, speed: 0 } },
  ]
  const { starts, failed } = await readScenarios(drivingWorld(), list)
  t.same(failed, [])
  t.equal(starts.get(1)!.steps, 72000)
  t.equal(starts.get(2)!.steps, 1, 'at least one step')
})

t.test('a scenario is not changed, and may be frozen', async t => {
  const [scenario] = generateScenarios({ count: 1, kinds: ['sensorNoise'] })
  const text = JSON.stringify(scenario)
  const { starts } = await readScenarios(drivingWorld(), [Object.freeze(JSON.parse(text)), scenario!])
  t.same(starts.get(0), starts.get(1), 'through JSON and back')
  t.equal(JSON.stringify(scenario), text)
})

t.test('generated scenarios', async t => {
  const ten = generateScenarios({ count: 10, seed: 5 })
  t.same(generateScenarios({ count: 10, seed: 5 }), ten)
  t.same(
    generateScenarios({ count: 200, seed: 5 }).slice(0, 10),
    ten,
    'more of them begin with the same ones',
  )
  t.same(generateScenarios({ count: 3 }), generateScenarios({ count: 3, seed: 0 }))
  t.equal(new Set(generateScenarios({ count: 300 }).map(each => JSON.stringify(each))).size, 300)
  t.same(
    ten.map(({ name, seed }) => [name, seed]),
    ten.map((_, i) => [`${scenarioKinds[i % 6]} ${5 + i}`, 5 + i]),
  )
  t.same(generateScenarios({ count: 0 }), [])
  const two = generateScenarios({ count: 4, kinds: ['curve', 'cutIn'], duration: 7 })
  t.same(
    two.map(({ name, duration }) => [name, duration]),
    [
      ['curve 0', 7],
      ['cutIn 1', 7],
      ['curve 2', 7],
      ['cutIn 3', 7],
    ],
  )
  const [moved] = generateScenarios({ count: 1, kinds: ['cutIn'], seed: 1 })
  t.same({ ...moved, duration: 7 }, two[1], 'by kind and seed alone')
  const { failed } = await readScenarios(drivingWorld(), generateScenarios({ count: 600, seed: 2 ** 32 }))
  t.same(failed, [], 'all are valid')
})

t.test('options of the generator that are wrong', t => {
  const make = (options: object) => () => generateScenarios({ count: 1, ...options } as GenerateOptions)
  const refused: readonly [object, RegExp][] = [
    [{ count: -1 }, /options\.count .*got -1/],
    [{ count: 1.5 }, /options\.count .*got 1.5/],
    [{ count: undefined }, /options\.count/],
    [{ seed: -1 }, /options\.seed .*got -1/],
    [{ kinds: ['cutin'] }, /options\.kinds\[0\] .*'cutin'/],
    [{ kinds: [] }, /options\.kinds .*got \[\]/],
    [{ kinds: 'cutIn' }, /options\.kinds .*'cutIn'/],
    [{ duration: -5 }, /options\.duration .*got -5/],
    [{ duration: 3601 }, /options\.duration .*got 3601/],
    [{ seeds: 3 }, /seeds/],
  ]
  for (const [options, message] of refused) t.throws(make(options), { code: 'ERR_ARGUMENT', message })
  t.end()
})

t.test('the schema and the type name the same fields', t => {
  const scenario = generateScenarios({ count: 6 })
  const known = Object.keys(drivingSchema.properties as object)
  for (const each of scenario) for (const field of Object.keys(each)) t.ok(known.includes(field), field)
  t.same(drivingSchema.required, ['duration', 'ego'])
  t.end()
})
