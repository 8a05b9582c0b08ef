// cpu-meter.ts: how busy the processors of the machine are, and how hot.
import { cpus } from 'node:os'
import { readText } from './system-files.js'
import { cpuTemperature } from './thermal-zones.js'

/** One measurement of the CPU; null: the system does not tell. */
export interface CpuSample {
  /** Share of time in which the processors of the machine worked since the last sample, percent. */
  readonly utilization: number | null
  /** The same of each logical processor, also those that this process may not use. */
  readonly cores: readonly number[]
  /** °C, of the hottest thermal zone of the processor. */
  readonly temperature: number | null
}

/** Time of a processor since the start of the system, in the units of its source. */
interface Times {
  readonly busy: number
  readonly total: number
}

/** Measures the CPU from one call to the next. */
export class CpuMeter {
  readonly #root: string
  #last: readonly Times[]

  /** @param root - below which /proc and /sys are read; without /proc/stat the operating system answers through Node */
  constructor(root: string) {
    this.#root = root
    this.#last = readTimes(root)
  }

  /** What happened since the last call, or since the meter was made. */
  sample(): CpuSample {
    const now = readTimes(this.#root)
    // Processors that were switched on or off meanwhile make the lists of different lengths.
    const before = this.#last.length === now.length ? this.#last : []
    this.#last = now
    const spent = before.map((times, i) => since(times, now[i]!))
    const all = spent.reduce(
      (sum, { busy, total }) => ({ busy: sum.busy + busy, total: sum.total + total }),
      {
        busy: 0,
        total: 0,
      },
    )
    return {
      utilization: all.total > 0 ? percent(all) : null,
      cores: spent.map(percent),
      temperature: cpuTemperature(this.#root),
    }
  }
}

const since = (before: Times, now: Times): Times => ({
  busy: now.busy - before.busy,
  total: now.total - before.total,
})

/** Counters of a virtual machine may go back a little. */
const percent = ({ busy, total }: Times): number =>
  total > 0 ? Math.min(100, Math.max(0, (100 * busy) / total)) : 0

/** Times of each processor: the lines `cpu0 …` of /proc/stat, or os.cpus(). */
function readTimes(root: string): Times[] {
  const lines = [...(readText(root, 'proc/stat') ?? '').matchAll(/^cpu\d+((?: \d{1,15}){4,10})/gm)]
  if (lines.length > 0) return lines.map(([, fields]) => timesOf(fields!.trim().split(' ').map(Number)))
  return cpus().map(({ times }) => {
    const busy = times.user + times.nice + times.sys + times.irq
    return { busy, total: busy + times.idle }
  })
}

/** user nice system idle iowait irq softirq steal; guest times, which follow, are in user and nice already. */
function timesOf(fields: readonly number[]): Times {
  const [, , , idle = 0, waiting = 0] = fields
  const total = fields.slice(0, 8).reduce((sum, field) => sum + field, 0)
  return { busy: total - idle - waiting, total }
}
