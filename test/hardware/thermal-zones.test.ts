import t, { type Test } from 'tap'
import { cpuTemperature } from '#lib/hardware/thermal-zones.js'
import { FakeRoot } from '../fixtures/machine.js'

function measured(t: Test, zones: readonly (readonly [type: string, temp: string])[]): number | null {
  const files = Object.fromEntries(
    zones.flatMap(([type, temp], i) => [
      [`sys/class/thermal/thermal_zone${i}/type`, `${type}\n`],
      [`sys/class/thermal/thermal_zone${i}/temp`, `${temp}\n`],
    ]),
  )
  const root = new FakeRoot({ files: { ...files, 'sys/class/thermal/cooling_device0/type': 'cpu' } })
  t.teardown(() => root.dispose())
  return cpuTemperature(root.path)
}

t.test('the hottest zone of the processor', async t => {
  t.equal(
    measured(t, [
      ['acpitz', '90000'],
      ['x86_pkg_temp', '51500'],
      ['iwlwifi_1', '70000'],
    ]),
    51.5,
  )
  t.equal(
    measured(t, [
      ['cpu-0-0', '40000'],
      ['cpu-1-0', '61000'],
      ['gpu-thermal', '80000'],
    ]),
    61,
  )
  t.equal(measured(t, [['soc_thermal', '-5000']]), -5)
})

t.test('zones of the firmware where there are no others, as on a GB10', async t => {
  t.equal(
    measured(t, [
      ['acpitz', '44100'],
      ['acpitz', '47300'],
      ['nvme', '60000'],
    ]),
    47.3,
  )
})

t.test('zones that say nothing', async t => {
  t.equal(measured(t, []), null)
  t.equal(measured(t, [['nvme', '40000']]), null)
  for (const temp of ['', 'x', '255000', '-273150', '99999999999', '4e4'])
    t.equal(measured(t, [['x86_pkg_temp', temp]]), null, temp)
  t.equal(
    measured(t, [
      ['x86_pkg_temp', '255000'],
      ['acpitz', '40000'],
    ]),
    40,
  )
  t.equal(cpuTemperature('/nonexistent'), null)
})
