// simulate: scenarios from files, stdin and generators; tables, documents, files; wrong usage; Ctrl-C.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { GraphBuilder, Model } from 'dgx-spark'
import t from 'tap'
import { refusal } from '#lib/cli/simulate/scenarios.js'
import { endings, metricStatistics, quantile } from '#lib/cli/simulate/statistics.js'
import { SparkError } from '#lib/core/errors.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const root = t.testdir({})

interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

function simulate(args: readonly string[], input = ''): Ended {
  const all = ['--no-warnings', main, 'simulate', '--device', 'cpu', ...args]
  return spawnSync(process.execPath, all, { encoding: 'utf8', cwd: root, input })
}

const ego = { speed: 20 }
/** Two that run, and three that are wrong. */
const mixed = [
  { name: 'free', duration: 2, ego },
  { name: 'fast', duration: 2, ego: { speed: -1 } },
  { duration: 2 },
  { name: 'wall', duration: 4, ego: { speed: 30 }, lead: { gap: 20, speed: 0 } },
  {
    name: 'turn',
    duration: 2,
    ego,
    targetSpeed: [
      [1, 20],
      [0, 20],
    ],
  },
]

function file(name: string, content: unknown): string {
  const text = typeof content === 'string' ? content : JSON.stringify(content)
  writeFileSync(path.join(root, name), text)
  return name
}

t.test('a table of metrics, from a generator', async t => {
  const { status, stdout, stderr } = simulate(['--generate', '12', '--duration', '4'])
  t.equal(status, 0, stderr)
  t.equal(stderr, '')
  t.match(stdout, /^12 scenarios on cpu: bicycle, steps of 0\.05 s\n +idm \+ laneKeeping +finished 12; /)
  t.match(stdout, /idm \+ laneKeeping +│ +mean │ +p5 │ +p95 │ +worst │ in /)
  t.match(stdout, /timeToCollision, s +│/)
  t.match(stdout, /cost +│( +[\d.]+ │){4} \w+ \d+ +│/)
})

t.test('scenarios that are wrong are listed, and the others run', async t => {
  const list = simulate(['--scenarios', file('mixed.json', mixed)])
  t.equal(list.status, 1, list.stderr)
  t.match(list.stdout, /1 │ fast +│ ego\.speed +│ must be >= 0, got -1 +│/)
  t.match(list.stdout, /2 │ scenario 2 +│ +│ lacks 'ego' +│/)
  t.match(list.stdout, /4 │ turn +│ targetSpeed\[1\]\[0\] +│ must be at least 1, that before it, got 0/)
  t.match(list.stdout, /2 scenarios on cpu.*finished 1, collision 1;/s)
  const object = simulate(['--scenarios', '-', '--json'], `\ufeff${JSON.stringify({ scenarios: mixed })}`)
  t.equal(object.status, 1)
  const document = JSON.parse(object.stdout)
  t.match(document.failed, [
    { index: 1, name: 'fast', field: 'ego.speed', reason: 'must be >= 0, got -1' },
    { index: 2, name: 'scenario 2', field: '', reason: "lacks 'ego'" },
    { index: 4, name: 'turn', field: 'targetSpeed[1][0]' },
  ])
  t.match(document.results, [
    { index: 0, name: 'free', ended: 'finished', steps: 40, seconds: 2 },
    { index: 3, name: 'wall', ended: 'collision', metrics: { collision: 1 } },
  ])
  t.same(document.endings, { finished: 1, collision: 1 })
  t.match(document.metrics.collision, { mean: 0.5, worst: { value: 1, index: 3, name: 'wall' } })
  const none = simulate(['--scenarios', file('wrong.json', [7]), '--compare', 'acc', '--html', 'wrong.html'])
  t.match(none, { status: 1, stdout: /must be an object, got 7.*0 scenarios on cpu/s })
  t.match(readFileSync(path.join(root, 'wrong.html'), 'utf8'), 'No scenario ran.')
  const empty = simulate(['--scenarios', 'wrong.json', '--compare', 'acc', '--json'])
  t.match(JSON.parse(empty.stdout), { results: [], comparison: null, failed: [{ index: 0 }] })
})

t.test('files that hold no scenarios', async t => {
  const wrong = (name: string, content: string): string =>
    simulate(['--scenarios', file(name, content)]).stderr
  t.match(wrong('text.json', 'not json'), /text\.json is no JSON: .*ERR_FORMAT/)
  t.match(wrong('empty.json', ' \n'), /empty\.json is no JSON: it is empty/)
  t.match(wrong('number.json', '7'), /must hold a list of scenarios, or an object \{ "scenarios": \[ … \] \}/)
  t.match(wrong('null.json', 'null'), /must hold a list of scenarios/)
  t.match(wrong('single.json', '{"duration":1,"ego":{"speed":1}}'), /write \[ … \] around it/)
  t.match(wrong('none.json', '[]'), /none\.json has no scenarios/)
  t.match(simulate(['--scenarios', 'missing.json']), { status: 1, stderr: /missing\.json: no such file/ })
  t.match(simulate(['--scenarios', '.']), { status: 1, stderr: /it is a folder/ })
  t.match(simulate(['--scenarios', '-']), { status: 1, stderr: /stdin is no JSON: it is empty/ })
})

t.test('a file that is too long', { skip: !existsSync('/dev/zero') && 'there is no /dev/zero' }, async t => {
  t.match(simulate(['--scenarios', '/dev/zero']), { status: 1, stderr: /has more than 256 MiB: divide it/ })
})

t.test('wrong usage', async t => {
  const cases: readonly (readonly [string, RegExp])[] = [
    ['', /give --scenarios <file> or --generate <count>/],
    ['--generate 1 --scenarios mixed.json', /give one of them/],
    ['--scenarios mixed.json --seed 3', /--seed needs --generate/],
    ['--generate 1 --kinds cutin', /expected names of cruise, .*did you mean 'cutIn'/],
    ['--generate 1 --metrics costs', /did you mean 'cost'/],
    ['--generate 1 --time-step 0', /expected a number from 0\.001 to 1/],
    ['--generate 1 --algorithm imd', /expected idm, acc, .*path of an ONNX file \(did you mean 'idm'/],
    ['--generate 1 --algorithm toString', /expected idm, acc/],
    ['--generate 1 --algorithm idm:timeGab=1', /no option 'timeGab' \(did you mean 'timeGap'\?\)/],
    ['--generate 1 --algorithm idm:timeGap', /expected key=value, got 'timeGap'/],
    ['--generate 1 --algorithm pid', /options\.value must be a non-empty string/],
    ['--generate 1 --compare pid:{', /the options are no JSON/],
    ['--generate 1 --trajectories steps.txt', /ends with \.json or \.csv/],
  ]
  for (const [line, message] of cases) {
    const { status, stderr } = simulate(line.split(' ').filter(word => word !== ''))
    t.equal(status, 2, `${line}: ${stderr}`)
    t.match(stderr, message, line)
  }
  const unknown = simulate(['--generate', '1', '--algorithm', 'pid:value=lateralErr,action=steeringAngle'])
  t.match(unknown, { status: 1, stderr: /no observation 'lateralErr' \(did you mean 'lateralError'\?\)/ })
  t.match(simulate(['--generate', '1', '--algorithm', 'missing.onnx']), {
    status: 1,
    stderr: /missing\.onnx/,
  })
})

t.test('two algorithms on the same scenarios', async t => {
  const args = ['--generate', '12', '--duration', '6', '--algorithm', 'idm:timeGap=1', 'laneKeeping']
  const table = simulate([...args, '--compare', 'idm:{"timeGap":2.5}', '--compare', 'laneKeeping'])
  t.equal(table.status, 0, table.stderr)
  t.match(table.stdout, /metric +│ +A │ +B │ +B − A │ +95 % interval │ +│ B lower │ B higher │/)
  t.match(table.stdout, /jerk, m\/s³ .* to .*│ \* │/)
  t.match(table.stdout, /collision +│ +0 │ +0 │ +0 │ +0 to 0 │ +│ +0 │ +0 │/)
  t.match(table.stdout, 'A: idm:timeGap=1 + laneKeeping; B: idm:{"timeGap":2.5} + laneKeeping; 12 scenarios')
  const { results, compare, comparison } = JSON.parse(
    simulate([...args, '--compare', 'acc', '--json']).stdout,
  )
  t.equal(compare.algorithm, 'acc')
  t.equal(comparison.count, 12)
  const { a, b, difference, lower, higher, interval } = comparison.metrics.cost
  const costs = (all: readonly { metrics: { cost: number } }[]): number[] =>
    all.map(each => each.metrics.cost)
  const mean = (all: readonly number[]): number => all.reduce((sum, cost) => sum + cost, 0) / all.length
  t.ok(Math.abs(a - mean(costs(results))) < 1e-9)
  t.ok(Math.abs(b - mean(costs(compare.results))) < 1e-9)
  t.ok(Math.abs(difference - (b - a)) < 1e-9)
  t.ok(interval[0] < difference && difference < interval[1])
  t.equal(lower, costs(results).filter((cost, i) => costs(compare.results)[i]! < cost).length)
  t.equal(higher, costs(results).filter((cost, i) => costs(compare.results)[i]! > cost).length)
})

t.test('metrics, vehicles, steps and batches', async t => {
  const args = ['--generate', '5', '--duration', '2', '--seed', '9', '--kinds', 'cutIn,hardBrake', '--json']
  const document = (...more: readonly string[]) => JSON.parse(simulate([...args, ...more]).stdout)
  const all = document()
  t.same(
    all.results.map(({ name }: { name: string }) => name),
    ['cutIn 9', 'hardBrake 10', 'cutIn 11', 'hardBrake 12', 'cutIn 13'],
  )
  t.same(document('--batch-size', '2').results, all.results, 'whatever runs beside it')
  t.match(document('--device', 'js', '--metrics', 'cost,gap'), { device: 'js', vehicle: 'bicycle' })
  t.same(Object.keys(document('--metrics', 'cost,gap').results[0].metrics), ['cost', 'gap'])
  const coarse = document('--vehicle', 'pointMass', '--time-step', '0.1', '--algorithm', 'acc')
  t.match(coarse, {
    vehicle: 'pointMass',
    timeStep: 0.1,
    algorithm: 'acc',
    results: [{ steps: 20, seconds: 2 }],
  })
})

t.test('an ONNX file', async t => {
  const g = new GraphBuilder()
  g.output(g.add('Mul', [g.input('speed', 'f32', ['n']), -0.1]), 'acceleration')
  using model = await Model.fromGraph(g.build(), { backend: 'cpu' })
  await model.save(path.join(root, 'brake.onnx'))
  const args = ['--generate', '3', '--algorithm', 'brake.onnx', 'laneKeeping', '--compare', 'acc', '--json']
  const { algorithm, metrics, compare } = JSON.parse(simulate(args).stdout)
  t.equal(algorithm, 'brake.onnx + laneKeeping')
  t.ok(metrics.speed.mean < compare.metrics.speed.mean - 5, 'it brakes')
})

t.test('files that are written', async t => {
  const args = ['--scenarios', 'mixed.json', '--compare', 'acc', '--metrics', 'cost,gap']
  const written = simulate([...args, '-o', 'out/all.json', '--trajectories', 'out/steps.csv'])
  t.match(written, { status: 1, stdout: /wrote out\/all\.json\nwrote out\/steps\.csv\n$/ })
  const { results } = JSON.parse(readFileSync(path.join(root, 'out/all.json'), 'utf8'))
  const [head, ...rows] = readFileSync(path.join(root, 'out/steps.csv'), 'utf8').trimEnd().split('\n')
  t.match(head, /^algorithm,index,name,time,speed,/)
  t.equal(rows[0]!.split(',').length, head!.split(',').length)
  t.match(rows[0], /^"idm \+ laneKeeping",0,"free",0,20,/)
  t.ok(rows.some(row => row.startsWith('"acc",3,"wall",0.0')))
  simulate([...args, '--trajectories', 'out/steps.json'])
  const steps = JSON.parse(readFileSync(path.join(root, 'out/steps.json'), 'utf8'))
  t.equal(steps.length, 4)
  t.match(steps[1], { algorithm: 'idm + laneKeeping', index: 3, name: 'wall', ended: 'collision' })
  t.same(steps[1].metrics, results[1].metrics, 'the same drive once more')
  t.equal(steps[1].trajectory.time.length, results[1].steps)
  t.equal(
    rows.length,
    steps.reduce((sum: number, each: { steps: number }) => sum + each.steps, 0),
  )
  t.match(simulate([...args, '-o', 'mixed.json/x.json']), { status: 1, stderr: /could not write/ })
})

t.test('--schema', async t => {
  const { status, stdout } = simulate(['--schema'])
  t.equal(status, 0)
  t.match(JSON.parse(stdout), { $schema: /2020-12/, required: ['duration', 'ego'], properties: { lead: {} } })
})

t.test('Ctrl-C ends it, and nothing is written half', async t => {
  const folder = t.testdir({})
  // Says when the command listens to the signal.
  const ready = "process.on('newListener', name => name === 'SIGINT' && process.stderr.write('listens\\n'))"
  const args = ['simulate', '--device', 'cpu', '--generate', '20000', '--duration', '60', '--compare', 'acc']
  const files = ['-o', 'all.json', '--html', 'page.html', '--trajectories', 'steps.csv']
  const preload = `data:text/javascript,${encodeURIComponent(ready)}`
  const child = spawn(process.execPath, ['--no-warnings', '--import', preload, main, ...args, ...files], {
    cwd: folder,
  })
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (stderr === '') setTimeout(() => child.kill('SIGINT'), 200)
    stderr += text
  })
  const code = await new Promise(resolve => child.on('close', resolve))
  t.equal(code, 130, stderr)
  t.match(stderr, /^listens\ndgx-spark: interrupted: a file that was not complete has not been written\n$/)
  t.same(readdirSync(folder), [])
})

t.test('statistics', async t => {
  t.equal(quantile([1, 2, 4], 0.25), 1.5)
  t.equal(quantile([7], 0.95), 7)
  const result = (index: number, ended: string, gap: number, cost: number) => {
    return { index, name: `n${index}`, ended, steps: 1, seconds: 0.05, metrics: { gap, cost } }
  }
  const results = [
    result(0, 'finished', 3, 5),
    result(2, 'not finite', Number.NaN, 5),
    result(5, 'finished', 1, 5),
  ]
  t.match(metricStatistics(results), {
    gap: { mean: 2, p5: 1.1, worst: { value: 1, index: 5, name: 'n5' } },
    cost: { mean: 5, p95: 5, worst: null },
  })
  t.same(Object.entries(endings(results)), [
    ['finished', 2],
    ['not finite', 1],
  ])
  t.same(metricStatistics([]), {})
  const nothing = [result(0, 'not finite', Number.NaN, Number.POSITIVE_INFINITY)]
  t.match(metricStatistics(nothing).gap, { mean: null, worst: null })
})

t.test('a hostile name is no part of what is wrong', async t => {
  const name = 'x\u001b[2J.ego y'
  const error = new SparkError('ERR_ARGUMENT', `scenario 3 '${name}'.ego.speed must be >= 0, got -1`)
  t.match(refusal({ index: 3, name, error }), { field: 'ego.speed', reason: 'must be >= 0, got -1' })
  const hostile = [
    { name, duration: 1, ego },
    { name: `${name}2`, duration: 0, ego },
  ]
  const { status, stdout } = simulate(['--scenarios', '-'], JSON.stringify(hostile))
  t.equal(status, 1)
  t.notMatch(stdout, '\u001b[2J')
  t.match(stdout, String.raw`x\x1b[2J.ego y2 │ duration`)
  const csv = simulate(
    ['--scenarios', '-', '--trajectories', 'hostile.csv'],
    JSON.stringify([{ ...hostile[0], name: 'a"b\nc' }]),
  )
  t.equal(csv.status, 0)
  t.match(readFileSync(path.join(root, 'hostile.csv'), 'utf8'), '"a""b\nc",0,20')
})
