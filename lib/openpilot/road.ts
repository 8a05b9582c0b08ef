// road.ts: the plan, lane lines, road edges and leads of a driving model.
import {
  column,
  type Estimate,
  type Hypothesis,
  readEstimate,
  readHypotheses,
  sigmoid,
  strided,
  widthError,
} from './mixture.js'

/** Three numbers at each of 33 times. */
export interface PlanSeries {
  /** [33][3] */
  readonly mean: readonly Float32Array[]
  /** Standard deviations, [33][3]. */
  readonly std: readonly Float32Array[]
}

/** How the car may move in the next ten seconds, at `drivingConstants.times`. x is forward, y to the right, z down. */
export interface PlanPath {
  /** x, y, z in metres from where the car is now. */
  readonly position: PlanSeries
  /** x, y, z in m/s. */
  readonly velocity: PlanSeries
  /** x, y, z in m/s². */
  readonly acceleration: PlanSeries
  /** Roll, pitch, yaw in radians against the car's orientation now. */
  readonly orientation: PlanSeries
  /** Of roll, pitch and yaw, in rad/s. */
  readonly orientationRate: PlanSeries
}

/** A path and how probable it is. */
export interface PlanHypothesis extends PlanPath {
  /** Probability. */
  readonly weight: number
}

/** The most probable path, and all of them. */
export interface Plan extends PlanPath {
  /** The most probable first; one, of weight 1, of a model that predicts one. */
  readonly hypotheses: readonly PlanHypothesis[]
}

/** A line on the road at `drivingConstants.distances` ahead. */
export interface RoadLine {
  /** To the right of the car, in metres, [33]. */
  readonly y: Estimate
  /** Below the camera, in metres, [33]. */
  readonly z: Estimate
}

/** A line between lanes. */
export interface LaneLine extends RoadLine {
  /** Probability that it is there; null where the model does not say it. */
  readonly prob: number | null
}

/** A car ahead at `drivingConstants.leadTimes`; [6] each. */
export interface Lead {
  /** Distance forward, in metres. */
  readonly x: Estimate
  /** To the right, in metres. */
  readonly y: Estimate
  /** Speed, in m/s. */
  readonly v: Estimate
  /** Acceleration, in m/s². */
  readonly a: Estimate
  /** Probability that there is a lead at the time of `drivingConstants.leadOffsets`; null where the model does not say it. */
  readonly prob: number | null
}

const points = 33
const planWidth = 15

/** Five times [33][3] in rows of 15, or several hypotheses of that. */
export function readPlan(name: string, raw: Float32Array): Plan {
  const [all] = readHypotheses(name, raw, points * planWidth, 1)
  const hypotheses = all!.map(hypothesis => ({ ...readPath(hypothesis), weight: hypothesis.weight }))
  const { weight: _, ...path } = hypotheses[0]!
  return { ...path, hypotheses }
}

function readPath(hypothesis: Hypothesis): PlanPath {
  const rows = (values: Float32Array, from: number): Float32Array[] =>
    Array.from({ length: points }, (_, i) => values.slice(i * planWidth + from, i * planWidth + from + 3))
  const series = (from: number): PlanSeries => ({
    mean: rows(hypothesis.mean, from),
    std: rows(hypothesis.std, from),
  })
  return {
    position: series(0),
    velocity: series(3),
    acceleration: series(6),
    orientation: series(9),
    orientationRate: series(12),
  }
}

/** Lines of 33 points of y and z, one behind another. */
export function readLines(name: string, raw: Float32Array, count: number): RoadLine[] {
  const all = readEstimate(name, raw, count * points * 2)
  return Array.from({ length: count }, (_, i) => {
    const [start, end] = [i * points * 2, (i + 1) * points * 2]
    const line = { mean: all.mean.subarray(start, end), std: all.std.subarray(start, end) }
    return { y: column(line, 0, 2), z: column(line, 1, 2) }
  })
}

/** Logits of two probabilities for each line, of which the second is that it is there. */
export function readLineProbs(name: string, raw: Float32Array, count: number): Float32Array {
  if (raw.length !== 2 * count) throw widthError(name, raw.length, `${2 * count}`)
  return strided(raw, 1, 2).map(sigmoid)
}

/** Three leads of six points of x, y, v and a; or two hypotheses that they share. */
export function readLeads(name: string, raw: Float32Array, probs: Float32Array | undefined): Lead[] {
  return readHypotheses(name, raw, 24, 3).map(([best], i) => ({
    x: column(best!, 0, 4),
    y: column(best!, 1, 4),
    v: column(best!, 2, 4),
    a: column(best!, 3, 4),
    prob: probs?.[i] ?? null,
  }))
}
