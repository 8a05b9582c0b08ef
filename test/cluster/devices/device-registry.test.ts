// The registry of devices: restarts, plugging in and out, peers, damaged files, several processes.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import type { DeviceRecord, DeviceTelemetry } from '#lib/cluster/devices/device-record.js'
import { type DeviceEvent, DeviceRegistry } from '#lib/cluster/devices/device-registry.js'
import { fitting } from '#lib/cluster/devices/registry-file.js'
import { gpuDevice } from '../../fixtures/cluster/devices.js'

const telemetry = (utilization: number): DeviceTelemetry => ({ time: 1, utilization })

/** A machine whose devices a test changes. */
class Bench {
  devices: DeviceRecord[] = []
  readonly measured = new Map<string, DeviceTelemetry>()
  open = (file: string, intervalMs = 20): Promise<DeviceRegistry> =>
    DeviceRegistry.open({
      nodeId: 'node-1',
      file,
      intervalMs,
      detect: async () => this.devices,
      measure: async () => this.measured,
    })
}

const briefly = (events: readonly DeviceEvent[]): string[] =>
  events.map(({ type, device }) => `${type} ${device.id} ${device.state}`)

t.test('devices come, change, go, return, and survive a restart', async t => {
  const file = path.join(t.testdir(), 'state', 'devices.json')
  const bench = new Bench()
  const registry = await bench.open(file)
  bench.devices = [gpuDevice('node-1', 'GPU-a'), gpuDevice('node-1', 'GPU-b')]
  bench.measured.set('GPU-a', telemetry(80))
  t.same(briefly(await registry.poll()), ['added GPU-a computing', 'added GPU-b undefined'])
  t.same(await registry.poll(), [], 'nothing new')
  bench.devices = [gpuDevice('node-1', 'GPU-a', { driver: '590.1' })]
  t.same(briefly(await registry.poll()), ['changed GPU-a computing', 'removed GPU-b offline'])
  t.equal(registry.get('GPU-b')?.telemetry, undefined, 'a device that is gone has no measurement')
  const { first } = registry.seen('GPU-b')!

  const again = await bench.open(file)
  t.same(
    again.devices.map(({ id, state, driver }) => [id, state, driver]),
    [
      ['GPU-a', 'offline', '590.1'],
      ['GPU-b', 'offline', '580.95.05'],
    ],
  )
  bench.devices = [gpuDevice('node-1', 'GPU-b')]
  t.same(briefly(await again.poll()), ['returned GPU-b undefined'])
  t.equal(again.seen('GPU-b')!.first, first)
})

t.test('telemetry keeps the last value, and is not written', async t => {
  const file = path.join(t.testdir(), 'devices.json')
  const bench = new Bench()
  const registry = await bench.open(file)
  bench.devices = [gpuDevice('node-1', 'GPU-a')]
  for (let i = 0; i < 50; i++) {
    bench.measured.set('GPU-a', { time: i, utilization: i })
    await registry.poll()
  }
  t.same(registry.get('GPU-a')!.telemetry, { time: 49, utilization: 49 })
  t.notMatch(readFileSync(file, 'utf8'), /telemetry|utilization/)
})

t.test('rates are for one driver version', async t => {
  const bench = new Bench()
  const registry = await bench.open(path.join(t.testdir(), 'devices.json'))
  bench.devices = [gpuDevice('node-1', 'GPU-a')]
  await registry.poll()
  registry.setRates('GPU-a', { time: 1, bandwidth: 2e11, flops: {} })
  await registry.poll()
  t.equal(registry.get('GPU-a')!.rates?.bandwidth, 2e11)
  bench.devices = [gpuDevice('node-1', 'GPU-a', { driver: '590.1' })]
  await registry.poll()
  t.equal(registry.get('GPU-a')!.rates, undefined)
})

t.test('a damaged file is named, and stays as it is', async t => {
  const file = path.join(t.testdir(), 'devices.json')
  const bench = new Bench()
  bench.devices = [gpuDevice('node-1', 'GPU-a')]
  await (await bench.open(file)).poll()
  const text = readFileSync(file, 'utf8')
  for (const damaged of [
    text.slice(0, text.length / 2),
    '',
    'null',
    '{"version":9}',
    text.replace('"gpu"', '"abacus"'),
  ]) {
    writeFileSync(file, damaged)
    await t.rejects(bench.open(file), { code: 'ERR_FORMAT', message: 'devices.json is damaged' })
    t.equal(readFileSync(file, 'utf8'), damaged)
  }
})

t.test('two writers lose nothing', async t => {
  const file = path.join(t.testdir(), 'devices.json')
  const benches = Array.from({ length: 4 }, (_, i) => {
    const bench = new Bench()
    bench.devices = [gpuDevice('node-1', `GPU-${i}`)]
    return bench
  })
  const registries = await Promise.all(benches.map(bench => bench.open(file)))
  await Promise.all(registries.map(registry => registry.poll()))
  const ids = (await new Bench().open(file)).devices.map(({ id }) => id).sort()
  t.same(ids, ['GPU-0', 'GPU-1', 'GPU-2', 'GPU-3'])
})

t.test('watch tells events, goes on after a failed look, and ends', async t => {
  const bench = new Bench()
  const registry = await DeviceRegistry.open({
    nodeId: 'node-1',
    file: path.join(t.testdir(), 'devices.json'),
    intervalMs: 10,
    measure: async () => new Map(),
    detect: async () => {
      if (bench.devices.length === 0) throw new Error('the driver was reloaded')
      return bench.devices
    },
  })
  const stop = new AbortController()
  const hold = setInterval(() => {}, 1000) // watch itself does not keep the process alive
  const errors: unknown[] = []
  const event = new Promise<DeviceEvent>(resolve => {
    registry.watch({
      signal: stop.signal,
      onEvent: resolve,
      onError: error => {
        errors.push(error)
        bench.devices = [gpuDevice('node-1', 'GPU-a')]
      },
    })
  })
  t.match(await event, { type: 'added', device: { id: 'GPU-a' } })
  t.equal(errors.length, 1)
  stop.abort()
  clearInterval(hold)
})

t.test('peers own their devices only', async t => {
  const bench = new Bench()
  const registry = await bench.open(path.join(t.testdir(), 'devices.json'))
  bench.devices = [gpuDevice('node-1', 'GPU-a')]
  await registry.poll()
  const remote = gpuDevice('node-2', 'GPU-r', { telemetry: telemetry(1) })
  t.same(briefly(await registry.acceptPeer('node-2', [remote])), ['added GPU-r idle'])
  t.equal(registry.get('GPU-r')!.state, 'idle')
  await t.rejects(registry.acceptPeer('node-2', [gpuDevice('node-1', 'GPU-z')]), { code: 'ERR_FORMAT' })
  await t.rejects(
    registry.acceptPeer('node-2', [gpuDevice('node-2', 'GPU-a')]),
    { code: 'ERR_FORMAT' },
    'ours',
  )
  await t.rejects(
    registry.acceptPeer('node-3', [gpuDevice('node-3', 'GPU-r')]),
    { code: 'ERR_FORMAT' },
    'of node 2',
  )
  await t.rejects(registry.acceptPeer('node-2', Array(1000).fill(remote)), { code: 'ERR_FORMAT' })
  t.throws(() => registry.acceptTelemetry('node-3', 'GPU-r', telemetry(1)), { code: 'ERR_FORMAT' })
  registry.acceptTelemetry('node-2', 'GPU-r', telemetry(70))
  t.equal(registry.get('GPU-r')!.state, 'computing')
  t.same(briefly(registry.peerLost('node-2')), ['removed GPU-r offline'])
  t.same(
    registry.devices.map(({ id }) => id),
    ['GPU-a', 'GPU-r'],
  )
})

t.test('a peer that invents devices does not fill the registry', async t => {
  const file = path.join(t.testdir(), 'devices.json')
  const bench = new Bench()
  const registry = await bench.open(file)
  bench.devices = [gpuDevice('node-1', 'GPU-a')]
  await registry.poll()
  for (let round = 0; round < 4; round++) {
    const invented = Array.from({ length: 200 }, (_, i) => gpuDevice('node-2', `GPU-${round}-${i}`))
    await registry.acceptPeer('node-2', invented)
  }
  t.equal(registry.devices.length, 257)
  t.equal(
    registry.devices.filter(({ id, state }) => id.startsWith('GPU-3-') && state !== 'offline').length,
    200,
  )
  t.equal((await bench.open(file)).devices.length, 257)
})

t.test('devices that are larger than a file takes', async t => {
  const bench = new Bench()
  const registry = await bench.open(path.join(t.testdir(), 'devices.json'))
  const operators = Array.from({ length: 600 }, (_, i) => `${i}`.padEnd(500, 'x'))
  const large = gpuDevice('node-2', 'GPU-b', {
    backends: [{ name: 'cuda', operators: [{ operators, dtypes: ['f32'] }], native: [] }],
  })
  await t.rejects(registry.acceptPeer('node-2', [gpuDevice('node-2', 'GPU-a'), large]), {
    code: 'ERR_FORMAT',
    message: /device GPU-b of node node-2 has more than 256 KiB/,
  })
  t.strictSame(registry.devices, [])
  const seen = [3, 1, 2].map(lastSeen => ({
    record: gpuDevice('node-2', `GPU-${lastSeen}`),
    firstSeen: 0,
    lastSeen,
  }))
  const { length } = JSON.stringify(seen)
  t.strictSame(fitting(seen, length), seen)
  t.strictSame(fitting(seen, length - 1 - 1), [seen[0], seen[2]], 'without the one not seen for longest')
  t.strictSame(fitting(seen, 10), [])
})

t.test('this machine, as it is', async t => {
  const registry = await DeviceRegistry.open({
    nodeId: 'node-1',
    file: path.join(t.testdir(), 'devices.json'),
  })
  await registry.poll()
  const cpu = registry.get('node-1/cpu')!
  t.ok(cpu.telemetry!.memoryUsed! > 0)
  t.match(cpu.state, /idle|computing/)
})
