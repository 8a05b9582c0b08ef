// throttling.ts: reasons for reduced GPU clocks.
import type { NvmlSample } from '../native.js'

/** Reasons that limit a GPU's clocks, by the names of nvidia-smi. */
export type ThrottleReason =
  | 'idle'
  | 'application clocks'
  | 'software power cap'
  | 'hardware slowdown'
  | 'sync boost'
  | 'software thermal slowdown'
  | 'hardware thermal slowdown'
  | 'hardware power brake'
  | 'display clocks'

/** nvmlClocksEventReasons, lowest bit first. */
const bits: readonly (readonly [bit: number, reason: ThrottleReason])[] = [
  [0x1, 'idle'],
  [0x2, 'application clocks'],
  [0x4, 'software power cap'],
  [0x8, 'hardware slowdown'],
  [0x10, 'sync boost'],
  [0x20, 'software thermal slowdown'],
  [0x40, 'hardware thermal slowdown'],
  [0x80, 'hardware power brake'],
  [0x100, 'display clocks'],
]

const counters: Readonly<Record<keyof NvmlSample['throttled'], ThrottleReason>> = {
  powerCap: 'software power cap',
  thermal: 'software thermal slowdown',
  hardwareThermal: 'hardware thermal slowdown',
  powerBrake: 'hardware power brake',
}

/**
 * The current reasons and those whose counter has grown since `last`. GB10 often reports no current reason while its
 * power is capped; its counters show it.
 */
export function throttleReasons(
  sample: Pick<NvmlSample, 'eventReasons' | 'throttled'>,
  last: NvmlSample['throttled'] | undefined,
): ThrottleReason[] {
  const found = new Set<ThrottleReason>()
  for (const [key, reason] of Object.entries(counters) as [keyof typeof counters, ThrottleReason][]) {
    const before = last?.[key] ?? null
    const now = sample.throttled[key]
    if (before !== null && now !== null && now > before) found.add(reason)
  }
  const now = sample.eventReasons ?? 0
  return bits.filter(([bit, reason]) => now & bit || found.has(reason)).map(([, reason]) => reason)
}

/** A GB10 runs at 2200 MHz or more; after a failed power-supply negotiation it stays between these clocks. */
const faultClocks = { lowest: 500, highest: 850 }
const busyPercent = 90

/** Signs of the power supply fault of GB10 machines: the GPU is busy, and its SM clock stays far too low. */
export function clockWarnings(sample: Pick<NvmlSample, 'utilization' | 'smClock' | 'power'>): string[] {
  const { utilization, smClock, power } = sample
  if (utilization === null || smClock === null || utilization < busyPercent) return []
  if (smClock < faultClocks.lowest || smClock > faultClocks.highest) return []
  const drawn = power === null ? '' : ` and draws ${(power / 1000).toFixed(0)} W`
  return [
    `the GPU is ${utilization} % busy but its SM clock is only ${smClock} MHz${drawn}: the power supply probably ` +
      'failed to negotiate. Shut down, unplug the power brick for 60 s and use the original one; if it stays, ask ' +
      'the maker for a replacement',
  ]
}
