import t from 'tap'
import { clockWarnings, throttleReasons } from '#lib/hardware/throttling.js'

const none = { powerCap: null, thermal: null, hardwareThermal: null, powerBrake: null }

t.test('bits become words', async t => {
  const words = (eventReasons: number | null): string[] =>
    throttleReasons({ eventReasons, throttled: none }, undefined)
  t.same(words(null), [])
  t.same(words(0), [])
  t.same(words(0x1), ['idle'])
  t.same(words(0x44), ['software power cap', 'hardware thermal slowdown'])
  t.same(words(0x1ff).length, 9)
  t.same(words(0x10000), [], 'a bit of a newer driver is passed over')
})

t.test('a counter that grew tells what the moment does not', async t => {
  const sample = { eventReasons: 0, throttled: { ...none, powerCap: 900, thermal: 5 } }
  t.same(throttleReasons(sample, undefined), [], 'the first sample has nothing to compare with')
  t.same(throttleReasons(sample, { ...none, powerCap: 100, thermal: 5 }), ['software power cap'])
  t.same(throttleReasons(sample, { ...none, powerCap: null, thermal: 4 }), ['software thermal slowdown'])
  t.same(
    throttleReasons({ ...sample, eventReasons: 4 }, { ...none, powerCap: 1 }),
    ['software power cap'],
    'once',
  )
  t.same(throttleReasons(sample, { ...none, powerCap: 1000, thermal: 9 }), [], 'a counter that started again')
})

t.test('the power supply fault: busy, and the SM clock between 500 and 850 MHz', async t => {
  const warnings = (utilization: number | null, smClock: number | null): number =>
    clockWarnings({ utilization, smClock, power: 15000 }).length
  t.equal(warnings(96, 611), 1)
  t.equal(warnings(90, 500), 1)
  t.equal(warnings(100, 850), 1)
  t.equal(warnings(89, 611), 0)
  t.equal(warnings(96, 499), 0)
  t.equal(warnings(96, 851), 0)
  t.equal(warnings(null, 611), 0)
  t.equal(warnings(96, null), 0)
  t.match(clockWarnings({ utilization: 96, smClock: 611, power: 15400 }), [/96 % .* 611 MHz and draws 15 W/])
  t.notMatch(clockWarnings({ utilization: 96, smClock: 611, power: null })[0], /draws/)
})
