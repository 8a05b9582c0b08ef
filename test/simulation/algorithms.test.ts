// What may decide: functions, objects with memory, graphs, ONNX files and lists of them; own worlds and metrics; what is refused.
import {
  type Algorithm,
  type DrivingScenario,
  drivingWorld,
  GraphBuilder,
  idm,
  laneKeeping,
  type Metric,
  pid,
  ScenarioRunner,
  type ScenarioRunnerOptions,
  Tensor,
  type World,
  writeOnnx,
} from 'dgx-spark'
import t from 'tap'
import { backends } from '../fixtures/backends.js'

const device = backends.at(-1)!
const scenarios: DrivingScenario[] = [10, 20, 30].map(speed => ({
  duration: 1,
  ego: { speed, lateralOffset: speed / 100 },
  targetSpeed: speed + 5,
}))

async function trajectories(algorithm: Algorithm, options: Partial<ScenarioRunnerOptions> = {}) {
  using runner = new ScenarioRunner({ algorithm, device, ...options })
  const { results } = await runner.runBatch(scenarios, { trajectories: true })
  return results.map(({ trajectory }) => trajectory!)
}

const refused = (algorithm: unknown, options: Partial<ScenarioRunnerOptions> = {}) =>
  trajectories(algorithm as Algorithm, options)

/** acceleration = 0.3 (targetSpeed − speed), from inputs of a shape. */
function follower(shape: readonly (number | string)[]): GraphBuilder {
  const g = new GraphBuilder({ name: 'follower' })
  const [speed, target] = [g.input('speed', 'f32', shape), g.input('targetSpeed', 'f32', shape)]
  return g.output(g.add('Mul', [g.add('Sub', [target, speed]), 0.3]), 'acceleration')
}

/** Both actions from all observations: columns 2 − 0 and −6, by a matrix. */
function wholeModel(batch: number | string): GraphBuilder {
  const g = new GraphBuilder({ name: 'whole' })
  const seen = g.input('observation', 'f32', [batch, 11])
  const matrix = Array.from({ length: 11 }, () => [0, 0])
  matrix[2]![0] = 0.3
  matrix[0]![0] = -0.3
  matrix[6]![1] = -0.1
  return g.output(g.add('MatMul', [seen, g.initializer('matrix', matrix)]), 'action')
}

const isNear = (a: Float32Array, b: Float32Array): boolean =>
  a.every((value, i) => Math.abs(value - b[i]!) < 1e-4)

t.test('functions, graphs and files of the same controller', async t => {
  const wanted = await trajectories(({ speed, targetSpeed }) => ({
    acceleration: targetSpeed!.subtract(speed!).multiply(0.3),
  }))
  t.ok(Math.abs(wanted[0]!['action.acceleration']![0]! - 1.5) < 1e-6)
  t.ok(
    wanted[0]!['action.steeringAngle']!.every(value => value === 0),
    'what is left out is 0',
  )
  const file = `${t.testdir()}/follower.onnx`
  await writeOnnx(follower(['batch', 1]).build(), file)
  const others: Record<string, Algorithm> = {
    'graph [batch]': follower(['batch']).build(),
    'graph [batch, 1]': follower(['batch', 1]).build(),
    'graph [1, 1]': follower([1, 1]).build(),
    'graph [1]': follower([1]).build(),
    file,
    pid: pid({ value: 'speed', target: 'targetSpeed', action: 'acceleration', proportional: 0.3 }),
  }
  for (const [name, algorithm] of Object.entries(others)) {
    const found = await trajectories(algorithm)
    for (const [i, each] of found.entries())
      for (const [key, values] of Object.entries(wanted[i]!))
        t.ok(isNear(each[key]!, values), `${name}: ${key}`)
  }
})

t.test('all observations to all actions', async t => {
  const wanted = await trajectories(({ speed, targetSpeed, lateralError }) => ({
    acceleration: targetSpeed!.subtract(speed!).multiply(0.3),
    steeringAngle: lateralError!.multiply(-0.1),
  }))
  t.ok(wanted[0]!['action.steeringAngle']![0]! < 0)
  const file = `${t.testdir()}/whole.onnx`
  await writeOnnx(wholeModel(1).build(), file)
  for (const algorithm of [wholeModel('batch').build(), wholeModel(1).build(), file]) {
    const found = await trajectories(algorithm)
    for (const [i, each] of found.entries())
      for (const [key, values] of Object.entries(wanted[i]!)) t.ok(isNear(each[key]!, values), key)
  }
})

t.test('numbers, lists and limits', async t => {
  const [first] = await trajectories([() => ({ acceleration: 100 }), () => ({ steeringAngle: -7 })])
  t.equal(first!['action.acceleration']![0], 4)
  t.equal(first!['action.steeringAngle']![0], Math.fround(-0.6))
  const [later] = await trajectories([() => ({ acceleration: 1 }), () => ({ acceleration: 2 })])
  t.equal(later!['action.acceleration']![0], 2, 'the last one that gives an action decides')
  const [nested] = await trajectories([[idm()], [follower(['n']).build(), [laneKeeping()]]])
  t.ok(Math.abs(nested!['action.acceleration']![0]! - 1.5) < 1e-6)
  t.ok(nested!['action.steeringAngle']![0]! < 0)
})

t.test('memory: numbers and rows, from step to step', async t => {
  const found = await trajectories({
    memory: { count: 0, last: [1, 2, 3] },
    act: ({ speed }, { count, last }) => ({
      action: { acceleration: count!.multiply(0.01), steeringAngle: last!.columns(0, 1).multiply(0.001) },
      memory: { count: count!.add(1), last: last!.columns(1, 3).concat(speed!) },
    }),
  })
  for (const [i, { speed, ...each }] of found.entries()) {
    const steering = [1, 2, 3, ...speed!].slice(0, 20)
    t.ok(
      isNear(
        each['action.acceleration']!,
        Float32Array.from({ length: 20 }, (_, k) => k * 0.01),
      ),
    )
    t.ok(
      isNear(
        each['action.steeringAngle']!,
        Float32Array.from(steering, v => v * 0.001),
      ),
      `scenario ${i}`,
    )
  }
})

t.test('pid with all of its parts', async t => {
  const gains = { proportional: 0.02, integral: 0.001, derivative: 0.1 }
  const [{ lateralError, ...first } = {}] = await trajectories(
    pid({ value: 'lateralError', action: 'steeringAngle', ...gains }),
  )
  let [sum, before] = [0, 0]
  const wanted = lateralError!.map(value => {
    const error = -value
    sum += error
    const output = 0.02 * error + 0.001 * sum + 0.1 * (error - before)
    before = error
    return output
  })
  t.ok(isNear(first['action.steeringAngle']!, wanted))
})

t.test('memory of a model', async t => {
  for (const shape of [
    ['batch', 2],
    [1, 2],
  ]) {
    const g = new GraphBuilder()
    const [state, speed] = [g.input('state_h', 'f32', shape), g.input('speed', 'f32', [shape[0]!, 1])]
    const next = g.add('Add', [state, Tensor.from([[0.1, 0.2]])])
    g.output(next, 'next_state_h')
    const sum = g.add('ReduceSum', [state, Tensor.from([1n])], { keepdims: 1 })
    g.output(g.add('Add', [sum, g.add('Mul', [speed, 0.01])]), 'acceleration')
    for (const { speed, ...each } of await trajectories(g.build()))
      t.ok(
        isNear(
          each['action.acceleration']!,
          speed!.map((value, k) => 0.3 * k + 0.01 * value).map(v => Math.min(4, v)),
        ),
      )
  }
})

t.test('algorithms that are wrong', async t => {
  const model = (input: string, output: string): Algorithm => {
    const g = new GraphBuilder({ name: 'odd' })
    return g.output(g.add('Neg', [g.input(input, 'f32', ['batch', 1])]), output).build()
  }
  const cases: Record<string, readonly [unknown, RegExp]> = {
    'an unknown observation': [({ sped }: never) => ({ acceleration: sped }), /no observation 'sped'.*speed/],
    'an unknown action': [() => ({ accelerate: 1 }), /no action 'accelerate'.*acceleration/],
    'nothing returned': [() => undefined, /action must be an object/],
    'nothing returned by act': [{ act: () => undefined }, /action must be an object/],
    'an action that is a text': [() => ({ acceleration: 'full' }), /action\.acceleration must be .*'full'/],
    'an operand that is NaN': [
      ({ speed }: Record<string, { add(x: number): unknown }>) => ({ acceleration: speed!.add(Number.NaN) }),
      /operand of Add must be .*NaN/,
    ],
    'unknown memory': [
      { memory: { sum: 0 }, act: () => ({ action: {}, memory: { summ: 1 } }) },
      /no memory 'summ'.*sum/,
    ],
    'an unknown input': [model('sped', 'acceleration'), /input 'sped' of graph 'odd'.*speed/],
    'an unknown output': [model('speed', 'throttle'), /output 'throttle' of graph 'odd'.*acceleration/],
    'no next state': [model('state_h', 'acceleration'), /'state_h' needs an output 'next_state_h'/],
    'an empty list': [[], /algorithm must be at least one algorithm/],
    'a number in a list': [[idm(), 7], /algorithm\[1\] must be a function/],
    null: [null, /algorithm must be a function/],
  }
  for (const [name, [algorithm, message]] of Object.entries(cases))
    await t.rejects(refused(algorithm), { code: 'ERR_ARGUMENT', message }, name)
  await t.rejects(refused('/nowhere/model.onnx'), { name: 'SparkError', message: /nowhere/ })
})

t.test('sizes', async t => {
  const wide: Algorithm = {
    memory: { h: [0, 0] },
    act: (_, { h }) => ({ action: { acceleration: h!.sum() }, memory: { h: 1 } }),
  }
  t.same(
    [...(await trajectories(wide))[0]!['action.acceleration']!.subarray(0, 3)],
    [0, 2, 2],
    'a number fills a row',
  )
  const two: Algorithm = ({ speed, gap }) => ({ acceleration: speed!.concat(gap!) })
  await t.rejects(refused(two), { name: 'SparkError', message: /state/ }, 'an action of two columns')
  const g = new GraphBuilder({ name: 'narrow' })
  g.output(g.add('Neg', [g.input('speed', 'f32', ['batch', 1])]), 'action')
  await t.rejects(refused(g.build()), { name: 'SparkError', message: /state/ }, 'one column for two actions')
})

t.test('metrics by name and of one own', async t => {
  const rideHeight: Metric = {
    unit: 'm/s',
    start: 1000,
    accumulate: (total, { speed }) => total.minimum(speed!),
    finish: (total, steps) => total * steps,
  }
  const run = async (metrics: ScenarioRunnerOptions['metrics']) => {
    using runner = new ScenarioRunner({ algorithm: idm(), device, metrics: metrics! })
    return (await runner.runBatch(scenarios)).results.map(result => result.metrics)
  }
  t.same(await run({ rideHeight }), [{ rideHeight: 200 }, { rideHeight: 400 }, { rideHeight: 600 }])
  const [both] = await run(['jerk', 'cost'])
  t.same(Object.keys(both!), ['jerk', 'cost'])
  t.same(await run([]), [{}, {}, {}])
  await t.rejects(run(['jrek']), { code: 'ERR_ARGUMENT', message: /options\.metrics\[0\].*'jrek'/ })
  const unknown: Metric = { unit: '', start: 0, accumulate: (total, { sped }) => total.add(sped!) }
  await t.rejects(run({ unknown }), { code: 'ERR_ARGUMENT', message: /no measure 'sped'.*speed/ })
})

interface Tank {
  readonly name?: string
  readonly steps: number
  readonly levels: readonly number[]
  readonly inflow: number
}

/** Tanks that fill up by the clock and are emptied by an action; one that is full ends a scenario. */
const tanks: World<Tank> = {
  name: 'tanks',
  timeStep: 1,
  schema: { type: 'object', required: ['steps', 'levels', 'inflow'] },
  actions: { outflow: [1, 5] },
  observations: ['total'],
  endings: ['overflow'],
  metrics: { peak: { unit: 'm', start: 0, accumulate: (total, { total: level }) => total.maximum(level!) } },
  begin: ({ name = 'tank', steps, levels, inflow }) => ({
    name,
    steps,
    states: { levels },
    parameters: { share: 1 / levels.length },
    timeline: { inflow: Float32Array.from({ length: steps }, (_, k) => inflow * k) },
  }),
  observe: ({ states }) => ({ total: states.levels!.sum() }),
  advance({ states, parameters, now }, { outflow }) {
    const change = now.inflow!.subtract(outflow!).multiply(parameters.share!)
    const levels = states.levels!.add(change).maximum(0)
    return {
      states: { levels },
      measures: { total: states.levels!.sum() },
      ends: { overflow: levels.sum().greater(50) },
    }
  },
}

for (const device of backends) {
  t.test(`a world of one own on ${device}`, async t => {
    const list: Tank[] = [
      { steps: 6, levels: [10, 20], inflow: 0 },
      { steps: 6, levels: [10, 20], inflow: 4 },
      { steps: 9, levels: [1, 1], inflow: 1 },
    ]
    using idle = new ScenarioRunner({ algorithm: () => ({}), world: tanks, device })
    const { results } = await idle.runBatch(list, { trajectories: true })
    // The lowest outflow, 1, where nobody says more; inflow 4 · k is 30, 29, 32, 39, 50, 65 in total.
    t.same(
      results.map(({ ended, steps }) => [ended, steps]),
      [
        ['finished', 6],
        ['overflow', 5],
        ['finished', 9],
      ],
    )
    t.same([...results[0]!.trajectory!.total!], [30, 29, 28, 27, 26, 25])
    t.same([...results[1]!.trajectory!.total!], [30, 29, 32, 39, 50])
    t.same(
      results.map(({ metrics }) => metrics.peak),
      [30, 50, 22],
    )
  })
}

t.test('worlds whose scenarios do not fit', async t => {
  using runner = new ScenarioRunner({ algorithm: () => ({}), world: tanks, device })
  const odd: Tank[] = [
    { steps: 3, levels: [1, 2], inflow: 0 },
    { steps: 3, levels: [1, 2, 3], inflow: 0 },
  ]
  await t.rejects(runner.runBatch(odd), { code: 'ERR_SHAPE', message: /levels has 3 numbers, and 2 in/ })
  t.equal((await runner.runBatch(odd.slice(0, 1))).results[0]!.steps, 3)
})

t.test('devices', async t => {
  for (const device of backends) {
    using runner = new ScenarioRunner({ algorithm: idm(), device })
    t.equal((await runner.runBatch(scenarios)).device, device)
  }
  using auto = new ScenarioRunner({ algorithm: idm(), world: drivingWorld() })
  t.match((await auto.runBatch(scenarios)).device, /^(cuda|cpu|js)$/)
})
