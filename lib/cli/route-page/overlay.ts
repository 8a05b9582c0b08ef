// overlay.ts: the plan, lanes, edges of the road and lead cars that the model saw, as lines on the frames of a camera.
import type { EventValues } from '../../data/route/event-types.js'
import { readLog } from '../../data/route/log.js'
import type { LogEvent } from '../../data/route/log-event.js'
import { type Camera, project } from '../../openpilot/cameras.js'
import { planTime } from './drive.js'

/** What is drawn on a frame; points are `x,y x,y` in pixels. */
export interface Overlay {
  /** Seconds between the frame and the one that the model saw. */
  readonly age: number
  readonly lines: readonly Line[]
  readonly leads: readonly Lead[]
}

/** A line; of the plan the outline of the car's width. */
export interface Line {
  readonly kind: 'plan' | 'lane' | 'edge'
  /** From 0 to 1. */
  readonly probability: number
  readonly points: string
}

/** A car ahead. */
export interface Lead {
  readonly x: number
  readonly y: number
  /** m. */
  readonly distance: number
  /** From 0 to 1. */
  readonly probability: number
}

/** From where a frame was taken. */
export interface View {
  readonly camera: Camera
  readonly size: { readonly width: number; readonly height: number }
  /** Roll, pitch, yaw, rad. */
  readonly rpy: Float32Array
  /** m above the road. */
  readonly height: number
}

/** Models older or newer than this do not belong to a frame, s. */
const maxAge = 1
/** A plan of modelV2 that is this close is taken, s: it has lanes and leads that drivingModelData lacks. */
const closeAge = 0.1
/** Half of the width of a car, m. */
const halfWidth = 0.9
const maxPoints = 64
const minLeadProbability = 0.5

type Model = LogEvent<'modelV2' | 'drivingModelData'>
interface Nearest {
  readonly age: number
  readonly event: Model
}

/**
 * The overlays of frames, from the models that are nearest to them.
 * @param times - of the frames, ascending, s since boot
 * @param viewOf - of a frame
 * @returns by frame; null where no model is within a second
 */
export async function readOverlays(
  log: string,
  times: readonly number[],
  viewOf: (frame: number) => View,
): Promise<(Overlay | null)[]> {
  const nearest: (Nearest | undefined)[] = times.map(() => undefined)
  for await (const event of readLog(log, { which: ['modelV2', 'drivingModelData'] })) {
    const time = event.which === 'modelV2' ? planTime(event) : Number(event.logMonoTime) / 1e9
    for (let i = firstFrom(times, time - maxAge); i < times.length && times[i]! <= time + maxAge; i++) {
      const candidate = { age: times[i]! - time, event }
      if (isBetter(candidate, nearest[i])) nearest[i] = candidate
    }
  }
  return nearest.map((found, i) => (found ? overlayOf(found, viewOf(i)) : null))
}

/** The index of the first time that is not before another. */
function firstFrom(times: readonly number[], time: number): number {
  let [low, high] = [0, times.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (times[middle]! < time) low = middle + 1
    else high = middle
  }
  return low
}

function isBetter(candidate: Nearest, other: Nearest | undefined): boolean {
  if (!candidate.event.value) return false
  if (!other) return true
  const [age, otherAge] = [Math.abs(candidate.age), Math.abs(other.age)]
  if (candidate.event.which === other.event.which) return age < otherAge
  const isFull = candidate.event.which === 'modelV2'
  return isFull ? age <= Math.max(otherAge, closeAge) : age < otherAge && otherAge > closeAge
}

function overlayOf({ age, event }: Nearest, view: View): Overlay {
  const drawn = event.which === 'modelV2' ? fullOverlay(event.value!, view) : smallOverlay(event.value!, view)
  return { age, ...drawn, lines: drawn.lines.filter(({ points }) => points !== '') }
}

interface Xyz {
  readonly x: ArrayLike<number>
  readonly y: ArrayLike<number>
  readonly z: ArrayLike<number>
}

type Drawn = Pick<Overlay, 'lines' | 'leads'>

function fullOverlay(model: NonNullable<EventValues['modelV2']>, view: View): Drawn {
  const lanes = model.laneLines.slice(0, 4).map((line, i): Line => {
    const probability = share(model.laneLineProbs[i])
    return { kind: 'lane', probability, points: polyline(line, view) }
  })
  const edges = model.roadEdges.slice(0, 2).map((line, i): Line => {
    // openpilot shows an edge the more clearly the less it is uncertain of it.
    const probability = share(1 - (model.roadEdgeStds[i] ?? 0))
    return { kind: 'edge', probability, points: polyline(line, view) }
  })
  const leads = model.leadsV3.slice(0, 3).flatMap(({ prob, x, y }) => {
    const [forward, right] = [x[0] ?? Number.NaN, y[0] ?? Number.NaN]
    const spot = prob >= minLeadProbability ? seen(view, forward, right, view.height) : null
    return spot ? [{ ...rounded(spot), distance: forward, probability: share(prob) }] : []
  })
  const plan: readonly Line[] = model.position ? [planLine(model.position, view)] : []
  // Several are often one car, seen for several seconds ahead.
  return { lines: [...plan, ...lanes, ...edges], leads: leads.slice(0, 1) }
}

/** Where the lines that small logs have begin and end, m: they say only how far to the side these are. */
const shortLine = [4, 6, 8, 10, 12]

function smallOverlay(
  { path, laneLineMeta }: NonNullable<EventValues['drivingModelData']>,
  view: View,
): Drawn {
  const lane = (right: number, probability: number): Line => ({
    kind: 'lane',
    probability: share(probability),
    points: polyline(
      { x: shortLine, y: shortLine.map(() => right), z: shortLine.map(() => view.height) },
      view,
    ),
  })
  const times = Array.from({ length: 33 }, (_, i) => 10 * (i / 32) ** 2)
  const at = (coefficients: Float32Array): number[] =>
    times.map(time => coefficients.slice(0, 16).reduceRight((sum, c) => sum * time + c, 0))
  const plan = path && {
    x: at(path.xCoefficients),
    y: at(path.yCoefficients),
    z: at(path.zCoefficients),
  }
  const meta = laneLineMeta
  return {
    lines: [
      ...(plan ? [planLine(plan, view)] : []),
      ...(meta ? [lane(meta.leftY, meta.leftProb), lane(meta.rightY, meta.rightProb)] : []),
    ],
    leads: [],
  }
}

/** The plan is of the device, the car's width below it is drawn on the road. */
function planLine({ x, y, z }: Xyz, view: View): Line {
  const on = (side: number): string[] =>
    spots({ x, y: Array.from(y, each => each + side), z: Array.from(z, each => each + view.height) }, view)
  const points = [...on(-halfWidth), ...on(halfWidth).reverse()].join(' ')
  return { kind: 'plan', probability: 1, points }
}

const polyline = (line: Xyz, view: View): string => {
  const points = spots(line, view)
  return points.length > 1 ? points.join(' ') : ''
}

function spots({ x, y, z }: Xyz, view: View): string[] {
  const count = Math.min(x.length, y.length, z.length, maxPoints)
  return Array.from({ length: count }, (_, i) => seen(view, x[i]!, y[i]!, z[i]!))
    .filter(spot => spot !== null)
    .map(spot => Object.values(rounded(spot)).join())
}

/** Where a point is seen; null behind the camera and far beside the frame. */
function seen(
  { camera, size, rpy }: View,
  forward: number,
  right: number,
  down: number,
): { readonly x: number; readonly y: number } | null {
  const spot = project(camera, size, rpy, [forward, right, down])
  if (!spot) return null
  const limit = 8 * size.width
  return Math.abs(spot.x) < limit && Math.abs(spot.y) < limit ? spot : null
}

const rounded = ({ x, y }: { readonly x: number; readonly y: number }): { x: number; y: number } => ({
  x: Math.round(10 * x) / 10,
  y: Math.round(10 * y) / 10,
})

/** A number from 0 to 1. */
const share = (value = 0): number => Math.round(100 * Math.min(1, Math.max(0, value || 0))) / 100
