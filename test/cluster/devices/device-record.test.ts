// Device records: what this machine tells of itself, and what is refused of peers.
import type { HardwareInfo, ModelOptions } from 'dgx-spark'
import t from 'tap'
import { checkDeviceRecord } from '#lib/cluster/devices/check-record.js'
import { detectDevices, gpuOfModel } from '#lib/cluster/devices/detect-devices.js'
import { stateOf } from '#lib/cluster/devices/device-record.js'
import { loweredOperators } from '#lib/plan/lower/index.js'
import { gpuDevice } from '../../fixtures/cluster/devices.js'

const onWire = (value: unknown): unknown => JSON.parse(JSON.stringify(value))

t.test('this machine describes itself, and the wire changes nothing', async t => {
  const devices = await detectDevices('node-1')
  const cpu = devices.find(({ kind }) => kind === 'cpu')!
  t.equal(cpu.id, 'node-1/cpu')
  t.ok(cpu.memoryBytes! > 2 ** 20)
  t.ok(cpu.backends.length > 0)
  for (const device of devices) t.same(checkDeviceRecord('device', onWire(device)), device)
  const operators = cpu.backends[0]!.operators.flatMap(set => set.operators)
  t.equal(new Set(operators).size, operators.length, 'no operator twice')
  for (const name of loweredOperators().get('')!) t.ok(operators.includes(name), name)
  const dtypesOf = (op: string) => cpu.backends[0]!.operators.find(set => set.operators.includes(op))!.dtypes
  t.ok(dtypesOf('MatMul').includes('f4'))
  t.notOk(dtypesOf('Softmax').includes('i64'))
  t.ok(dtypesOf('Add').includes('i64'))
})

t.test('what is not known is missing, not 0', async t => {
  const device = gpuDevice('n', 'GPU-1')
  const { driver: _, memoryBytes: __, ...rest } = device
  const checked = checkDeviceRecord('device', onWire(rest))
  t.notOk('driver' in checked)
  t.notOk('memoryBytes' in checked)
  t.equal(stateOf({ time: 1 }), undefined)
})

t.test('states', async t => {
  t.equal(stateOf({ time: 1, utilization: 0 }), 'idle')
  t.equal(stateOf({ time: 1, utilization: 90, throttleReasons: ['software power cap'] }), 'computing')
  t.equal(stateOf({ time: 1, utilization: 90, throttleReasons: ['hardware thermal slowdown'] }), 'throttled')
})

t.test('hostile records are refused by field', async t => {
  const good = onWire(
    gpuDevice('n', 'GPU-1', {
      telemetry: { time: 1, utilization: 3 },
      rates: { time: 1, flops: { f32: 1e12 } },
    }),
  )
  const change = (path: string, value: unknown): unknown => {
    const copy = structuredClone(good) as Record<string, unknown>
    const keys = path.split('.')
    const last = keys.pop()!
    const target = keys.reduce((at, key) => at[key] as Record<string, unknown>, copy)
    target[last] = value
    return copy
  }
  const cases: readonly (readonly [string, unknown])[] = [
    ['id', ''],
    ['id', 'a\u001b[31m'],
    ['model', 'x'.repeat(3000)],
    ['kind', 'tpu'],
    ['vendor', null],
    ['memoryBytes', -1],
    ['memoryBytes', 1.5],
    ['memoryBytes', 1e300],
    ['memoryBytes', '7'],
    ['computeUnits', Number.NaN],
    ['runtime', []],
    ['runtime.state', 'fine'],
    ['support', undefined],
    ['backends', {}],
    ['backends', Array(100).fill({})],
    ['backends.0.operators', Array(1000).fill({ operators: [], dtypes: [] })],
    ['backends.0.operators.0.operators', Array(100_000).fill('Add')],
    ['backends.0.native.0', 5],
    ['rates.flops', { f32: Number.POSITIVE_INFINITY }],
    ['rates.flops', Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`t${i}`, 1]))],
    ['telemetry.utilization', 101],
    ['telemetry.temperature', 'hot'],
    ['telemetry.time', -5],
    ['state', 'on fire'],
  ]
  for (const [path, value] of cases) {
    const field = path.replace(/\.(\d+)/g, '[$1]')
    t.throws(
      () => checkDeviceRecord('device', change(path, value)),
      { code: 'ERR_FORMAT', message: field.split('.')[0]! },
      path,
    )
  }
  for (const value of [null, 5, 'x', [], () => 1])
    t.throws(() => checkDeviceRecord('device', value), { code: 'ERR_FORMAT' })
})

t.test('unknown fields and prototypes do not pass', async t => {
  const hostile = JSON.parse(
    `${JSON.stringify(gpuDevice('n', 'GPU-1', { rates: { time: 1, flops: {} } })).slice(0, -1)},"admin":true,"__proto__":{"admin":true}}`,
  )
  const checked = checkDeviceRecord('device', hostile) as unknown as Record<string, unknown>
  t.equal(checked.admin, undefined)
  t.equal(({} as Record<string, unknown>).admin, undefined)
})

t.test('the GPU that a model runs on', async t => {
  const gpus = [
    { index: 0, uuid: 'GPU-1', pci: null },
    { index: 1, uuid: null, pci: { address: '0000:01:00.0' } },
  ]
  const hardware = { gpus, bestGpu: gpus[1], backend: { name: 'cuda' } } as unknown as HardwareInfo
  const gpuOf = (options: ModelOptions) => gpuOfModel('node-1', hardware, options)
  t.equal(gpuOf({}), 'node-1/pci-0000:01:00.0')
  t.equal(gpuOf({ backend: 'cuda', device: 0 }), 'GPU-1')
  t.equal(gpuOf({ device: 'GPU-1' }), 'GPU-1')
  t.equal(gpuOf({ backend: 'cuda', device: 7 }), undefined)
  t.equal(gpuOf({ backend: 'cpu' }), undefined)
})
