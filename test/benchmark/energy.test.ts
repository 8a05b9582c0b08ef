// Energy: RAPL counters below another root, and the integral of power.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { integratePower, PackageEnergy } from '#lib/benchmark/energy.js'
import { cpuThrottles } from '#lib/benchmark/machine.js'
import { FakeRoot } from '../fixtures/machine.js'

const folder = 'sys/class/powercap'
const domain = (
  name: string,
  label: string,
  energy: string,
  range = '262143328850',
): Record<string, string> => ({
  [`${folder}/${name}/name`]: `${label}\n`,
  [`${folder}/${name}/energy_uj`]: energy,
  [`${folder}/${name}/max_energy_range_uj`]: `${range}\n`,
})

t.test('packages are summed, and nothing else', async t => {
  const root = new FakeRoot({
    files: {
      ...domain('intel-rapl:0', 'package-0', '1000000\n'),
      ...domain('intel-rapl:0:0', 'core', '500\n'),
      ...domain('intel-rapl:1', 'package-1', '262143000000\n'),
      ...domain('intel-rapl:2', 'psys', '7\n'),
      ...domain('intel-rapl-mmio:0', 'package-0', '8\n'),
    },
  })
  t.teardown(() => root.dispose())
  const energy = new PackageEnergy(root.path)
  t.equal(energy.why, null)
  const before = energy.read()!
  t.same(before, [1_000_000, 262_143_000_000])
  writeFileSync(path.join(root.path, folder, 'intel-rapl:0/energy_uj'), '3500000\n')
  // The second counter begins again: 328850 µJ up to its range, and 171150 behind.
  writeFileSync(path.join(root.path, folder, 'intel-rapl:1/energy_uj'), '171150\n')
  t.equal(energy.joules(before, energy.read()!), 2.5 + 0.5)
})

t.test('why energy is missing', async t => {
  const none = new FakeRoot({ files: domain('intel-rapl:0', 'psys', '1') })
  const locked = new FakeRoot({
    files: {
      ...domain('intel-rapl:0', 'package-0', '1'),
      [`${folder}/intel-rapl:1/name`]: 'package-1',
    },
  })
  t.teardown(() => {
    none.dispose()
    locked.dispose()
  })
  const [without, half] = [none, locked].map(({ path }) => new PackageEnergy(path))
  t.match(without!.why, 'no energy counters')
  t.equal(without!.read(), null)
  t.match(
    half!.why,
    'intel-rapl:1/energy_uj cannot be read',
    'a part of the packages is not told as the whole',
  )
  t.equal(half!.read(), null)
})

t.test('a counter that becomes unreadable', async t => {
  const root = new FakeRoot({ files: domain('intel-rapl:0', 'package-0', '12') })
  t.teardown(() => root.dispose())
  const energy = new PackageEnergy(root.path)
  t.same(energy.read(), [12])
  writeFileSync(path.join(root.path, folder, 'intel-rapl:0/energy_uj'), 'garbage')
  t.equal(energy.read(), null)
})

t.test('power over time', async t => {
  const samples = [
    { at: 1000, power: 10 },
    { at: 2000, power: 30 },
    { at: 4000, power: 30 },
  ]
  t.equal(integratePower(samples, 1000, 2000), 20)
  t.equal(integratePower(samples, 1000, 4000), 20 + 60)
  t.equal(integratePower(samples, 1500, 2000), 12.5, '20 W to 30 W in half a second')
  t.equal(integratePower(samples, 0, 1000), 10, 'constant before the first sample')
  t.equal(integratePower(samples, 5000, 7000), 60, 'and after the last one')
  t.equal(integratePower(samples, 1200, 1300), 1.5, 'between two samples')
  t.equal(integratePower([], 0, 1000), null)
})

t.test('throttled cores', async t => {
  const cpu = 'sys/devices/system/cpu'
  const root = new FakeRoot({
    files: {
      [`${cpu}/cpu0/thermal_throttle/core_throttle_count`]: '3\n',
      [`${cpu}/cpu1/thermal_throttle/core_throttle_count`]: '4\n',
      [`${cpu}/cpu2/online`]: '1\n',
      [`${cpu}/cpufreq/policy0/x`]: '9\n',
    },
  })
  t.teardown(() => root.dispose())
  t.equal(cpuThrottles(root.path), 7)
  t.equal(cpuThrottles(path.join(root.path, 'nowhere')), 0)
})
