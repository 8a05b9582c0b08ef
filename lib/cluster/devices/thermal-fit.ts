// thermal-fit.ts: the parameters of the thermal model from measurements: an output-error fit.
//
// The die answers power with two exponentials (the Foster form of the network),
//
//   T[k] = Ta + g1 (P * h1)[k] + g2 (P * h2)[k] + u1 e^(-t/τ1) + u2 e^(-t/τ2),   h_i(t) = e^(-t/τi) / τi
//
// which is linear in all but τ1 and τ2. So those two are searched, in their logarithms, and the rest is a linear least-squares
// problem (variable projection: Golub and Pereyra, 1973). It simulates whole trajectories, so that the rounding of the sensor
// does not bias it as it does one-step regressions.
import { nelderMead } from './nelder-mead.js'
import type { ThermalParameters } from './thermal-model.js'

/** A measurement. */
export interface ThermalSample {
  /** Seconds; only differences count. */
  readonly time: number
  /** °C of the die. */
  readonly temperature: number
  /** W, drawn since the sample before. */
  readonly power: number
}

/** What a fit found. */
export interface ThermalFit {
  readonly parameters: ThermalParameters
  /** Root of the mean square of the differences to the measurements, °C. */
  readonly error: number
}

/** Samples and excitation below which a fit says nothing: W between the 5th and the 95th percentile of power. */
export const [fewestSamples, leastExcitation] = [300, 15]

/** Seconds of the die's and of the sink's time constant, between which they are searched. */
const [dieSeconds, sinkSeconds] = [
  [1, 60],
  [60, 7200],
] as const

/** °C of the air around a device: a fit that says otherwise has followed something else. */
const [coldest, hottest] = [-40, 80]

/** Starts of the search along each time constant. */
const starts = 5

/** Unknowns of the linear problem: Ta, g1, g2, u1, u2. */
const unknowns = 5

/** W between the 5th and the 95th percentile of power. */
export function excitation(samples: readonly ThermalSample[]): number {
  const sorted = Float64Array.from(samples, ({ power }) => power).sort()
  const at = (share: number): number => sorted[Math.round(share * (sorted.length - 1))] ?? 0
  return at(0.95) - at(0.05)
}

/**
 * Fits the model to measurements in the order of time, a second or so apart.
 * @returns undefined where there are too few of them, power changes too little, or no two-node network explains them
 */
export function fitThermalModel(samples: readonly ThermalSample[]): ThermalFit | undefined {
  if (samples.length < fewestSamples || excitation(samples) < leastExcitation) return undefined
  const series = seriesOf(samples)
  const evaluate = (logs: readonly number[]): Solution =>
    solve(series, Math.exp(logs[0]!), Math.exp(logs[1]!))
  const cost = (logs: readonly number[]): number => {
    const isInside = [dieSeconds, sinkSeconds].every(
      ([low, high], i) => logs[i]! >= Math.log(low) && logs[i]! <= Math.log(high),
    )
    return isInside ? evaluate(logs).cost : Number.POSITIVE_INFINITY
  }
  const grid = spread(dieSeconds).flatMap(die => spread(sinkSeconds).map(sink => [die, sink]))
  const best = grid.map(point => ({ point, cost: cost(point) })).reduce((a, b) => (b.cost < a.cost ? b : a))
  if (!Number.isFinite(best.cost)) return undefined
  const { point } = nelderMead(cost, best.point, { size: 0.4, iterations: 60 })
  const { gains, ambient, cost: sum } = evaluate(point)
  if (ambient < coldest || ambient > hottest) return undefined
  const parameters = toNetwork([Math.exp(point[0]!), Math.exp(point[1]!)], gains, ambient)
  return { parameters, error: Math.sqrt(sum / samples.length) }
}

/** Starts inside a range, evenly in its logarithm. */
function spread([low, high]: readonly [number, number]): number[] {
  const step = Math.log(high / low) / (starts + 1)
  return Array.from({ length: starts }, (_, i) => Math.log(low) + step * (i + 1))
}

/** Samples in arrays. */
interface Series {
  readonly seconds: Float64Array
  readonly temperature: Float64Array
  readonly power: Float64Array
}

function seriesOf(samples: readonly ThermalSample[]): Series {
  const seconds = Float64Array.from(samples, ({ time }, k) => (k === 0 ? 0 : time - samples[k - 1]!.time))
  return {
    seconds,
    temperature: Float64Array.from(samples, ({ temperature }) => temperature),
    power: Float64Array.from(samples, ({ power }) => power),
  }
}

/** The best linear unknowns for two time constants. */
interface Solution {
  readonly ambient: number
  readonly gains: readonly [number, number]
  /** Sum of the squares of the differences; infinite where a gain is not positive. */
  readonly cost: number
}

const impossible: Solution = { ambient: 0, gains: [0, 0], cost: Number.POSITIVE_INFINITY }

function solve({ seconds, temperature, power }: Series, die: number, sink: number): Solution {
  const normal = new Float64Array(unknowns * unknowns)
  const right = new Float64Array(unknowns)
  const row = new Float64Array(unknowns)
  let [response1, response2, decay1, decay2, squares] = [0, 0, 1, 1, 0]
  let [lastSeconds, keep1, keep2] = [-1, 1, 1]
  for (let k = 0; k < temperature.length; k++) {
    const dt = seconds[k]!
    if (dt !== lastSeconds) {
      keep1 = Math.exp(-dt / die)
      keep2 = Math.exp(-dt / sink)
      lastSeconds = dt
    }
    response1 += (1 - keep1) * (power[k]! - response1)
    response2 += (1 - keep2) * (power[k]! - response2)
    decay1 *= keep1
    decay2 *= keep2
    row[0] = 1
    row[1] = response1
    row[2] = response2
    row[3] = decay1
    row[4] = decay2
    const measured = temperature[k]!
    squares += measured * measured
    for (let i = 0; i < unknowns; i++) {
      right[i]! += row[i]! * measured
      for (let j = 0; j <= i; j++) normal[i * unknowns + j]! += row[i]! * row[j]!
    }
  }
  const solution = cholesky(normal, right)
  if (!solution) return impossible
  const [ambient, gain1, gain2] = [solution[0]!, solution[1]!, solution[2]!]
  if (!(gain1 > 0 && gain2 > 0)) return impossible
  const explained = solution.reduce((sum, value, i) => sum + value * right[i]!, 0)
  return { ambient, gains: [gain1, gain2], cost: Math.max(0, squares - explained) }
}

/** Solves normal · x = right for a symmetric positive definite matrix, of which the lower triangle is given; else undefined. */
function cholesky(normal: Float64Array, right: Float64Array): Float64Array | undefined {
  const lower = Float64Array.from(normal)
  const x = Float64Array.from(right)
  const n = unknowns
  for (let j = 0; j < n; j++) {
    // A little on the diagonal: a decay that is over at once says nothing of its unknown.
    let pivot = lower[j * n + j]! + 1e-9 * (1 + normal[j * n + j]!)
    for (let k = 0; k < j; k++) pivot -= lower[j * n + k]! ** 2
    if (!(pivot > 0)) return undefined
    lower[j * n + j] = Math.sqrt(pivot)
    for (let i = j + 1; i < n; i++) {
      let value = lower[i * n + j]!
      for (let k = 0; k < j; k++) value -= lower[i * n + k]! * lower[j * n + k]!
      lower[i * n + j] = value / lower[j * n + j]!
    }
  }
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < i; k++) x[i]! -= lower[i * n + k]! * x[k]!
    x[i]! /= lower[i * n + i]!
  }
  for (let i = n - 1; i >= 0; i--) {
    for (let k = i + 1; k < n; k++) x[i]! -= lower[k * n + i]! * x[k]!
    x[i]! /= lower[i * n + i]!
  }
  return x
}

/**
 * The ladder (Cauer form) that answers as the two exponentials do: continued fraction of
 * (n0 + n1 s) / (1 + d1 s + d2 s²), positive where the gains are.
 */
function toNetwork(
  [t1, t2]: readonly [number, number],
  [g1, g2]: readonly [number, number],
  ambient: number,
): ThermalParameters {
  const [n0, n1, d1, d2] = [g1 + g2, g1 * t2 + g2 * t1, t1 + t2, t1 * t2]
  const c1 = d2 / n1
  const rest = d1 - c1 * n0
  const r1 = n1 / rest
  const r2 = n0 - r1
  return { r1, c1, r2, c2: rest / r2, ambient }
}
