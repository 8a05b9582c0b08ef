// Rates of devices: measured once, kept by device, driver and version.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { detectDevices } from '#lib/cluster/devices/detect-devices.js'
import { deviceRates } from '#lib/cluster/devices/measure-rates.js'
import { loadAddon } from '#lib/native.js'
import { gpuDevice } from '../../fixtures/cluster/devices.js'

t.test('a device is measured once', { skip: loadAddon().addon ? false : 'no native addon' }, async t => {
  const folder = t.testdir()
  process.env.XDG_CACHE_HOME = folder
  t.teardown(() => delete process.env.XDG_CACHE_HOME)
  const file = path.join(folder, 'dgx-spark', 'device-rates.json')
  const cpu = (await detectDevices('node-1')).find(({ kind }) => kind === 'cpu')!
  const rates = (await deviceRates(cpu))!
  t.ok(rates.flops.f32! > 1e7, `${rates.flops.f32} FLOP/s`)
  t.ok(rates.bandwidth === undefined || rates.bandwidth > 1e6, `${rates.bandwidth} B/s`)
  t.comment(
    `${(rates.flops.f32! / 1e9).toFixed(1)} GFLOP/s of f32, ${((rates.bandwidth ?? 0) / 1e9).toFixed(1)} GB/s`,
  )
  t.same(await deviceRates(cpu), rates, 'from the disk')
  const kept = readFileSync(file, 'utf8')
  const [[key, value]] = Object.entries(JSON.parse(kept)) as [[string, object]]
  writeFileSync(file, JSON.stringify({ [key]: { ...value, flops: { f32: 1 } } }))
  t.same((await deviceRates(cpu))!.flops, { f32: 1 }, 'nothing is measured while the disk knows')
  const plain = (await deviceRates({ ...cpu, architecture: 'x64 plain' }))!
  t.ok(plain.flops.f32! > 1e7, 'another instruction set is measured')
  const other = key.replace(String(cpu.computeUnits), '999')
  writeFileSync(file, JSON.stringify({ [other]: value, [key]: { flops: { f32: 'fast' } } }))
  t.ok(
    (await deviceRates(cpu))!.flops.f32! > 1e7,
    'a damaged entry counts as missing, another processor is another device',
  )
  t.same(Object.keys(JSON.parse(readFileSync(file, 'utf8'))), [other, key])
})

t.test('a device without kernels has no rates', async t => {
  t.equal(await deviceRates(gpuDevice('node-1', 'GPU-x', { vendor: 'amd', backends: [] })), undefined)
})
