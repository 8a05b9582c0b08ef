// Constraints of a node, what they lead to, and work that waits and goes on.
import t from 'tap'
import {
  type Constraints,
  checkConstraints,
  LocalConstraints,
  RemoteConstraints,
} from '#lib/cluster/devices/constraints.js'
import { NodePressure } from '#lib/cluster/devices/node-pressure.js'
import { PressurePolicy, thermalHeadroom } from '#lib/cluster/devices/pressure.js'
import { PressureGate } from '#lib/cluster/devices/pressure-gate.js'
import { gpuDevice } from '../../fixtures/cluster/devices.js'
import { studyDevice } from '../../fixtures/cluster/thermal-plant.js'
import { FakeRoot } from '../../fixtures/machine.js'

const zone = (celsius: number, trips: Record<string, number>): Record<string, string> => ({
  'sys/class/thermal/thermal_zone0/temp': `${celsius * 1000}\n`,
  ...Object.fromEntries(
    Object.entries(trips).flatMap(([type, at], i) => [
      [`sys/class/thermal/thermal_zone0/trip_point_${i}_type`, `${type}\n`],
      [`sys/class/thermal/thermal_zone0/trip_point_${i}_temp`, `${at * 1000}\n`],
    ]),
  ),
})

async function constraintsOf(
  t: { teardown(done: () => void): void },
  files: Record<string, string>,
): Promise<Constraints> {
  const root = new FakeRoot({ files })
  t.teardown(() => root.dispose())
  return new LocalConstraints(root.path).read()
}

t.test('a laptop on its battery, hot, short of memory', async t => {
  const found = await constraintsOf(t, {
    ...zone(88, { passive: 95, critical: 105 }),
    'sys/class/power_supply/BAT0/type': 'Battery\n',
    'sys/class/power_supply/BAT0/capacity': '41\n',
    'sys/class/power_supply/BAT0/status': 'Discharging\n',
    'sys/class/power_supply/AC/type': 'Mains\n',
    'sys/class/power_supply/AC/online': '0\n',
    'sys/class/power_supply/hidpp_battery_0/type': 'Battery\n',
    'sys/class/power_supply/hidpp_battery_0/scope': 'Device\n',
    'sys/class/power_supply/hidpp_battery_0/capacity': '3\n',
    'proc/meminfo': 'MemTotal: 1000 kB\nMemAvailable: 50 kB\n',
    'proc/pressure/memory':
      'some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n',
  })
  t.same(found, {
    thermal: 'warm',
    batteryPercent: 41,
    charging: false,
    memoryFree: 50 * 1024,
    memoryTotal: 1000 * 1024,
    memoryStall: 12.5,
  })
})

t.test('thermal states, and what is not known is missing', async t => {
  const stateAt = async (celsius: number, trips: Record<string, number>) =>
    (await constraintsOf(t, zone(celsius, trips))).thermal
  t.equal(await stateAt(60, { passive: 95, critical: 105 }), 'normal')
  t.equal(await stateAt(96, { passive: 95, critical: 105 }), 'throttled')
  t.equal(await stateAt(101, { passive: 95, critical: 105 }), 'critical')
  t.equal(await stateAt(91, { critical: 105 }), 'warm')
  t.equal(await stateAt(60, {}), undefined)
  t.equal(await stateAt(60, { passive: 0 }), undefined, 'a trip point that is off')
  const bare = await constraintsOf(t, {})
  t.notOk('batteryPercent' in bare || 'thermal' in bare || 'foreground' in bare || 'memoryStall' in bare)
})

t.test('messages of a phone', async t => {
  let now = 0
  const remote = new RemoteConstraints(() => now)
  t.same(await remote.read(), { foreground: false }, 'nothing is known yet')
  remote.receive({ thermal: 'warm', batteryPercent: 50, charging: true, foreground: true, admin: true })
  t.same(await remote.read(), { thermal: 'warm', batteryPercent: 50, charging: true, foreground: true })
  now = 120_000
  t.same(await remote.read(), { foreground: false }, 'it has gone')
  for (const wrong of [
    null,
    [],
    'hot',
    { thermal: 'tepid' },
    { batteryPercent: 101 },
    { charging: 'yes' },
    { memoryFree: -1 },
  ])
    t.throws(() => remote.receive(wrong), { code: 'ERR_FORMAT' })
  t.same(checkConstraints({}), {})
})

t.test('levels rise at once, and fall one by one when what pressed is far away', async t => {
  const policy = new PressurePolicy({ calmMs: 1000 })
  let now = 0
  const at = (constraints: Constraints, ms = 0): string => {
    now += ms
    return policy.decide({ now, constraints }).level
  }
  t.equal(at({ batteryPercent: 50, charging: false }), 'full')
  t.equal(at({ batteryPercent: 30, charging: false }), 'lower-precision')
  t.equal(at({ batteryPercent: 19, charging: false }), 'offload')
  t.equal(at({ batteryPercent: 9, charging: false }), 'paused')
  t.equal(at({ batteryPercent: 12, charging: false }, 5000), 'paused', 'not far enough')
  t.equal(at({ batteryPercent: 12, charging: true }, 5000), 'paused', 'not calm for long enough')
  t.equal(at({ batteryPercent: 13, charging: true }, 1000), 'offload')
  t.equal(at({ batteryPercent: 13, charging: true }, 500), 'offload')
  t.equal(at({ batteryPercent: 13, charging: true }, 500), 'lower-precision')
  t.equal(at({ batteryPercent: 13, charging: true }, 1000), 'full')
})

t.test('each constraint has its level and its words', async t => {
  const cases: readonly (readonly [Constraints, string, RegExp])[] = [
    [{ thermal: 'warm' }, 'lower-precision', /says that it is warm/],
    [{ thermal: 'throttled' }, 'offload', /throttled/],
    [{ thermal: 'critical' }, 'paused', /critical/],
    [{ foreground: false }, 'paused', /background/],
    [{ memoryFree: 5 * 2 ** 20, memoryTotal: 100 * 2 ** 20 }, 'offload', /5 MiB of 100 MiB are free/],
    [{ memoryFree: 2 ** 20, memoryTotal: 100 * 2 ** 20 }, 'paused', /1 MiB/],
    [{ memoryStall: 12 }, 'offload', /12 %/],
    [{ memoryStall: 60 }, 'paused', /60 %/],
    [{ batteryPercent: 5 }, 'paused', /5 %/],
    [{ batteryPercent: 5, charging: true }, 'full', /^$/],
  ]
  for (const [constraints, level, words] of cases) {
    const decision = new PressurePolicy().decide({ now: 0, constraints })
    t.equal(decision.level, level, JSON.stringify(constraints))
    t.match(decision.reasons[0] ?? '', words)
  }
  const forecast = [{ seconds: 60, temperature: 85, upper: 89 }]
  t.match(new PressurePolicy().decide({ now: 0, temperature: 70, forecast }), {
    level: 'lower-precision',
    changed: true,
  })
  t.equal(new PressurePolicy().decide({ now: 0, temperature: 88 }).level, 'paused')
  t.throws(() => new PressurePolicy({ temperatureMargin: 50 }), { code: 'ERR_ARGUMENT' })
})

t.test('work waits between steps and loses none; actions come in order', async t => {
  const calls: string[] = []
  const gate = new PressureGate({
    lowerPrecision: on => void calls.push(`precision ${on}`),
    offload: async on => void calls.push(`offload ${on}`),
  })
  const steps: number[] = []
  const work = (async () => {
    for (let i = 0; i < 6; i++) {
      await gate.pass()
      steps.push(i)
      if (i === 2) await gate.apply({ level: 'paused' })
    }
  })()
  await new Promise<void>(resolve => setImmediate(resolve))
  t.same(steps, [0, 1, 2])
  t.ok(gate.isClosed)
  const abort = new AbortController()
  const other = gate.pass(abort.signal)
  abort.abort(new Error('the user left'))
  await t.rejects(other, { message: 'the user left' })
  await gate.apply({ level: 'lower-precision' })
  await work
  t.same(steps, [0, 1, 2, 3, 4, 5])
  await gate.apply({ level: 'full' })
  t.same(calls, ['precision true', 'offload true', 'offload false', 'precision false'])
})

t.test('an action that fails does not leave the gate closed', async t => {
  const gate = new PressureGate({ lowerPrecision: () => Promise.reject(new Error('no memory for it')) })
  await t.rejects(gate.apply({ level: 'paused' }), { message: 'no memory' })
  t.ok(gate.isClosed)
  await t.rejects(gate.apply({ level: 'full' }), { message: 'no memory' })
  t.notOk(gate.isClosed)
  await gate.pass()
})

t.test('a node: its hottest device and its constraints close the gate, and open it again', async t => {
  const gate = new PressureGate()
  let constraints: Constraints = {}
  const pressure = new NodePressure({ gate, constraints: { read: async () => constraints }, calmMs: 0 })
  const devices = (...celsius: (number | undefined)[]) =>
    celsius.map((temperature, i) => {
      const telemetry = { time: 1000 * ++time, power: 50, ...(temperature !== undefined && { temperature }) }
      return gpuDevice('node-1', `GPU-${i}`, { telemetry })
    })
  let time = 0
  t.match(await pressure.update(devices(60, 70, undefined)), { level: 'full', changed: false, reasons: [] })
  t.match(await pressure.update(devices(60, 89, undefined)), { level: 'paused', reasons: [/89 °C/] })
  t.ok(gate.isClosed)
  t.equal(pressure.predictor('GPU-1')!.temperature, 89)
  t.equal(pressure.predictor('GPU-2'), undefined, 'a device without a sensor')
  t.match(await pressure.update(devices(60, 85)), { level: 'paused' }, 'not cool enough')
  t.match(await pressure.update(devices(60, 81)), { level: 'offload' })
  t.notOk(gate.isClosed)
  constraints = { foreground: false }
  t.match(await pressure.update(devices(50)), { level: 'paused', reasons: [/background/] })
  const gone = devices(95).map(device => ({ ...device, state: 'offline' as const }))
  constraints = {}
  t.match(await pressure.update(gone), { level: 'offload' }, 'a device that is gone is not hot')
})

t.test('a device that is hot beside one that will be hotter', async t => {
  const thermal = () => ({ parameters: studyDevice })
  const constraints = { read: async () => ({}) }
  const pressure = new NodePressure({ gate: new PressureGate(), constraints, thermal })
  const devices = [
    { temperature: 88, power: 10 },
    { temperature: 80, power: 300 },
  ].map((measured, i) => gpuDevice('node-1', `GPU-${i}`, { telemetry: { time: 1000, ...measured } }))
  const { reasons } = await pressure.update(devices)
  t.match(reasons, [/has 88 °C/, /may have \d+\.\d °C in 5 s/])
})

t.test('actions that are added later, and the headroom of a hot device', async t => {
  const gate = new PressureGate()
  const calls: string[] = []
  const remove = gate.add({
    lowerPrecision: on => void calls.push(`precision ${on}`),
    offload: on => void calls.push(`offload ${on}`),
  })
  await gate.apply({ level: 'paused' })
  await gate.apply({ level: 'full' })
  t.strictSame(calls, ['precision true', 'offload true', 'offload false', 'precision false'])
  remove()
  await gate.apply({ level: 'offload' })
  t.equal(calls.length, 4)
  t.strictSame(
    [20, 82, 84.5, 87, 99].map(temperature => thermalHeadroom(temperature)),
    [1, 1, 0.5, 0, 0],
  )
})
