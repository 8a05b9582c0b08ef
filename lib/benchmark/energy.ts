// energy.ts: energy of processors by RAPL, and power integrated over time.
import { listFolder, readText } from '../hardware/system-files.js'

const folder = 'sys/class/powercap'

/** A counter of the energy that a processor package has used. It begins again at 0 behind `range`. */
interface PackageCounter {
  readonly file: string
  /** µJ. */
  readonly range: number
}

/** A count below `root`; null for what cannot be read. */
function countIn(root: string, file: string): number | null {
  const text = readText(root, file) ?? ''
  return /^\d{1,15}$/.test(text) ? Number(text) : null
}

/** Energy counters of the processor packages of a machine (RAPL); a package holds its cores, caches and what shares its chip. */
export class PackageEnergy {
  readonly #root: string
  readonly #counters: readonly PackageCounter[]
  /** Why the counters cannot be read, in words; null where they can. */
  readonly why: string | null

  /** @param root - the folder below which /sys lies */
  constructor(root: string) {
    this.#root = root
    // Domains below a package, such as intel-rapl:0:0, are parts of it; psys is the whole machine.
    const packages = listFolder(root, folder)
      .filter(name => /^intel-rapl:\d+$/.test(name))
      .filter(name => readText(root, `${folder}/${name}/name`)?.startsWith('package'))
    const readable = packages.filter(name => countIn(root, `${folder}/${name}/energy_uj`) !== null)
    const isWhole = packages.length > 0 && readable.length === packages.length
    this.#counters = (isWhole ? packages : []).map(name => ({
      file: `${folder}/${name}/energy_uj`,
      range: countIn(root, `${folder}/${name}/max_energy_range_uj`) ?? 2 ** 32,
    }))
    this.why =
      packages.length === 0
        ? `the system has no energy counters of the processor (/${folder}/intel-rapl:*)`
        : isWhole
          ? null
          : `/${folder}/${packages.find(name => !readable.includes(name))}/energy_uj cannot be read: Linux lets root only`
  }

  /** All counters now, µJ; null where they cannot be read. */
  read(): readonly number[] | null {
    const values = this.#counters.map(({ file }) => countIn(this.#root, file))
    return values.length > 0 && values.every(value => value !== null) ? values : null
  }

  /** Joules between two readings that are less than one range of a counter apart. */
  joules(before: readonly number[], after: readonly number[]): number {
    const used = this.#counters.map(({ range }, i) => {
      const difference = after[i]! - before[i]!
      return difference < 0 ? difference + range : difference
    })
    return used.reduce((sum, microjoules) => sum + microjoules, 0) / 1e6
  }
}

/** A measurement of power. */
export interface PowerSample {
  /** Milliseconds of `performance.now`. */
  readonly at: number
  /** W */
  readonly power: number
}

/**
 * Joules from `start` to `end`, milliseconds: the integral of the power, straight lines between samples (trapezoidal rule), and
 * constant before the first and after the last one. Null without samples.
 * @param samples - ascending in time
 */
export function integratePower(samples: readonly PowerSample[], start: number, end: number): number | null {
  if (samples.length === 0) return null
  const inside = samples.filter(({ at }) => at > start && at < end)
  const points = [
    { at: start, power: powerAt(samples, start) },
    ...inside,
    { at: end, power: powerAt(samples, end) },
  ]
  let joules = 0
  for (const [i, { at, power }] of points.entries()) {
    if (i === 0) continue
    const before = points[i - 1]!
    joules += ((at - before.at) / 1000) * ((power + before.power) / 2)
  }
  return joules
}

function powerAt(samples: readonly PowerSample[], at: number): number {
  const next = samples.findIndex(sample => sample.at >= at)
  if (next === 0) return samples[0]!.power
  if (next < 0) return samples.at(-1)!.power
  const [before, after] = [samples[next - 1]!, samples[next]!]
  return before.power + ((after.power - before.power) * (at - before.at)) / (after.at - before.at)
}
