import t from 'tap'
import { ThrottleDetector, warningKind } from '#lib/hardware/throttle-detector.js'
import type { ThrottleReason } from '#lib/hardware/throttling.js'

const clocks = { graphics: null, sm: 1200, memory: null, video: null, maxSm: 3000 }

/** Warnings after each of some samples, one a second. */
function warnings(reasons: readonly (readonly ThrottleReason[])[], sm = clocks.sm, step = 1000): string[][] {
  const detector = new ThrottleDetector()
  return reasons.map((throttleReasons, i) =>
    detector.add({ time: i * step, clocks: { ...clocks, sm }, throttleReasons }),
  )
}

const often = (reason: ThrottleReason, count: number): ThrottleReason[][] =>
  Array.from({ length: count }, () => [reason])

t.test('heat and the power brake, after five samples in a row', async t => {
  const hot = warnings(often('hardware thermal slowdown', 6))
  t.same(
    hot.map(({ length }) => length),
    [0, 0, 0, 0, 1, 1],
  )
  t.match(hot[4], [/^the GPU is too hot, for 4 s now\. .*vents/])
  t.match(hot[5], [/for 5 s now/])
  t.match(warnings(often('hardware power brake', 5))[4], [/power brake.*original power supply/])
  const both: ThrottleReason[] = ['software thermal slowdown', 'hardware power brake']
  t.equal(warnings([both, both, both, both, both])[4]!.length, 2)
})

t.test('a break starts over', async t => {
  const hot: ThrottleReason[] = ['software thermal slowdown']
  t.same(warnings([hot, hot, hot, hot, [], hot, hot]).flat(), [])
  t.equal(warnings([hot, hot, [], hot, hot, hot, hot, hot]).flat().length, 1)
  t.equal(
    warnings([...often('software thermal slowdown', 3), ...often('hardware thermal slowdown', 2)]).flat()
      .length,
    1,
    'either kind of heat',
  )
})

t.test('many samples in a short time are not long', async t => {
  t.same(warnings(often('hardware power brake', 100), 1200, 10).flat(), [])
  t.equal(warnings(often('hardware power brake', 100), 1200, 40).flat().length, 25)
})

t.test('a power cap is a fault only where it costs much', async t => {
  const cap = often('software power cap', 5)
  t.match(warnings(cap, 2200).at(-1), [/power limit.*nvidia-smi -pl/])
  t.same(warnings(cap, 2300).flat(), [])
  const detector = new ThrottleDetector()
  const unknown = { ...clocks, maxSm: null }
  for (let i = 0; i < 9; i++)
    t.same(detector.add({ time: i * 1000, clocks: unknown, throttleReasons: ['software power cap'] }), [])
})

t.test('idle and other clocks are no fault', async t => {
  for (const reason of ['idle', 'application clocks', 'sync boost', 'display clocks'] as const)
    t.same(warnings(often(reason, 20)).flat(), [])
})

t.test('a kind of warning is the same with other numbers', async t => {
  const [first, second] = warnings(often('hardware power brake', 6)).flat()
  t.not(first, second)
  t.equal(warningKind(first!), warningKind(second!))
  t.not(warningKind(first!), warningKind(warnings(often('hardware thermal slowdown', 5)).flat()[0]!))
})
