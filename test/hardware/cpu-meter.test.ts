import { writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import path from 'node:path'
import t, { type Test } from 'tap'
import { CpuMeter } from '#lib/hardware/cpu-meter.js'
import { FakeRoot } from '../fixtures/machine.js'
import { garbage } from '../fixtures/values/garbage.js'

/** A meter that has read `before`, and what writes the next /proc/stat. */
function metered(t: Test, before: string) {
  const root = new FakeRoot({ files: { 'proc/stat': before } })
  t.teardown(() => root.dispose())
  const meter = new CpuMeter(root.path)
  return {
    sample(stat: string) {
      writeFileSync(path.join(root.path, 'proc/stat'), stat)
      return meter.sample()
    },
  }
}

//                  user nice system idle iowait irq softirq steal guest guest_nice
const before = `cpu  1000 0 500 8000 500 0 0 0 0 0
cpu0 500 0 250 4000 250 0 0 0 0 0
cpu1 500 0 250 4000 250 0 0 0 0 0
intr 12345 1 2
`

t.test('shares of the time since the last sample', async t => {
  const { sample } = metered(t, before)
  const first = sample(`cpu  9 9 9 9
cpu0 560 10 255 4020 255 0 0 0 0 0
cpu1 500 0 250 4090 260 0 0 0 0 0
`)
  t.same(first, { utilization: 37.5, cores: [75, 0], temperature: null }, 'waiting for a disk is not work')
  const second = sample(`cpu0 560 10 255 4020 255 30 30 40 40 0
cpu1 500 0 250 4190 260 0 0 0 0 0
`)
  t.same(second.cores, [100, 0], 'interrupts and stolen time are work; guests count once')
  t.equal(second.utilization, 50)
})

t.test('nothing to compare with', async t => {
  t.same(metered(t, before).sample(before), { utilization: null, cores: [0, 0], temperature: null })
  const one = before.replace(/cpu1.*\n/, '')
  t.same(
    metered(t, before).sample(one),
    { utilization: null, cores: [], temperature: null },
    'one was switched off',
  )
})

t.test('counters that go back', async t => {
  const back = 'cpu0 490 0 250 4020 250 0 0 0 0 0\ncpu1 600 0 250 3990 250 0 0 0 0 0\n'
  const { utilization, cores } = metered(t, before).sample(back)
  for (const value of [utilization!, ...cores]) t.ok(value >= 0 && value <= 100, String(value))
})

t.test('without /proc/stat the operating system answers', async t => {
  const meter = new CpuMeter('/nonexistent')
  for (let x = 0, end = performance.now() + 60; performance.now() < end; ) x += Math.sqrt(x)
  const { utilization, cores } = meter.sample()
  t.equal(cores.length, cpus().length)
  t.ok(utilization === null || (utilization >= 0 && utilization <= 100), String(utilization))
})

t.test('no stat makes the meter throw', async t => {
  const { sample } = metered(t, before)
  for (const text of garbage(before, 300, 11)) {
    const { utilization, cores } = sample(text)
    for (const value of [utilization ?? 0, ...cores])
      if (!(value >= 0 && value <= 100)) t.fail(`${value} from ${JSON.stringify(text)}`)
  }
})
