// outputs.ts: a row of raw numbers of an openpilot model as values with names and units.
import { argumentError, expectAttached, expectInteger, expectKnownOptions } from '../core/checks.js'
import type { ElementType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import { type DriverState, readSeat } from './driver-state.js'
import { type DrivingMeta, readMeta } from './meta.js'
import type { OutputSlices, ResolvedSlices } from './metadata.js'
import { resolveSlices } from './metadata.js'
import {
  type Estimate,
  part,
  readEstimate,
  type ScalarEstimate,
  scalar,
  sigmoid,
  softmax,
  widthError,
} from './mixture.js'
import {
  type LaneLine,
  type Lead,
  type Plan,
  type RoadLine,
  readLeads,
  readLineProbs,
  readLines,
  readPlan,
} from './road.js'

/** How the camera moves, seen from itself. */
export interface CameraMotion {
  /** Forward, right, down, in m/s. */
  readonly velocity: Estimate
  /** About these axes, in rad/s. */
  readonly angularVelocity: Estimate
}

/** How the camera is mounted over the road. */
export interface RoadTransform {
  /** In metres; the last number is the height. */
  readonly translation: Estimate
  /** Roll, pitch, yaw in radians. */
  readonly rotation: Estimate
}

/**
 * What a model of openpilot says, as far as it says it. Times are those of `drivingConstants`; x is forward, y to the right, z
 * down.
 */
export interface DrivingOutputs {
  /** How the car may move in the next ten seconds. */
  readonly plan?: Plan
  /** Two lane lines to the left and two to the right, from the left. */
  readonly laneLines?: readonly LaneLine[]
  /** The left and the right edge of the road. */
  readonly roadEdges?: readonly RoadLine[]
  /** The leads now, in 2 and in 4 seconds. */
  readonly leads?: readonly Lead[]
  /** How the camera moves. */
  readonly pose?: CameraMotion
  /** As {@link DrivingOutputs.pose}, for simulators. */
  readonly simPose?: CameraMotion
  /** Orientation of the wide camera against the device: roll, pitch, yaw in radians. */
  readonly wideFromDeviceEuler?: Estimate
  /** How the camera is mounted over the road. */
  readonly roadTransform?: RoadTransform
  /** What the driver is expected to do. */
  readonly meta?: DrivingMeta
  /**
   * Probabilities of what the car is doing, [8]: nothing, turn left, turn right, change to the left lane, to the right lane, keep
   * left, keep right, nothing.
   */
  readonly desireState?: Float32Array
  /** The same in four periods to come, [4][8]. */
  readonly desirePred?: readonly Float32Array[]
  /** Curvature to steer, in 1/m. */
  readonly desiredCurvature?: ScalarEstimate
  /**
   * What to do, lateral and longitudinal, [2]: acceleration in m/s² both; in models from before June 2026 the first is the
   * curvature in 1/100 m.
   */
  readonly action?: Estimate
  /** x, y (m), yaw (rad) and its rate (rad/s) that the model of 2023 plans, [33][4] row-major. */
  readonly lateralPlan?: Estimate
  /** What the model hands to its next run. */
  readonly hiddenState?: Float32Array
  /** The driver, of a driver monitoring model that knows one seat. */
  readonly driver?: DriverState
  /** The driver, if the wheel is on the left. */
  readonly leftHandDrive?: DriverState
  /** The driver, if the wheel is on the right. */
  readonly rightHandDrive?: DriverState
  /** Probability that the wheel is on the right. */
  readonly wheelOnRightProb?: number
  /** Probability that the camera sees little. */
  readonly poorVisionProb?: number
  /** Features of the image of a driver monitoring model, [512]. */
  readonly features?: Float32Array
  /** Raw numbers of outputs with other names. */
  readonly others: Readonly<Record<string, Float32Array>>
}

/** Options of `parseOutputs`. */
export interface ParseOptions {
  /** How many rows the numbers are. Default: the first size of a tensor, 1 of an array. */
  readonly batch?: number
  /** Which row is wanted. Default: the only one. */
  readonly row?: number
}

/** Raw numbers: a tensor [batch, width] of any float type, or its elements as f32. */
export type RawOutputs = Float32Array | Tensor<ElementType>

/**
 * One row of raw numbers.
 * @throws SparkError ERR_ARGUMENT, ERR_SHAPE, ERR_DTYPE
 */
export function rowOf(raw: RawOutputs, options: ParseOptions = {}): Float32Array {
  expectKnownOptions('options', options, ['batch', 'row'])
  const isTensor = raw instanceof Tensor
  if (!isTensor && !(raw instanceof Float32Array))
    throw argumentError('raw', 'a Float32Array or a Tensor', raw)
  if (raw instanceof Float32Array) expectAttached('raw', raw)
  const values = isTensor ? raw.toFloat32() : raw
  const first = isTensor && raw.shape.length > 1 ? raw.shape[0]! : 1
  const { batch = first, row } = options
  expectInteger('options.batch', batch, 1)
  if (values.length === 0 || values.length % batch !== 0) {
    throw new SparkError('ERR_SHAPE', `raw has ${values.length} numbers, which are not ${batch} rows`)
  }
  if (row === undefined && batch > 1)
    throw argumentError('options.row', `the row of ${batch} that is wanted`, row)
  expectInteger('options.row', row ?? 0, 0, batch - 1)
  const width = values.length / batch
  return values.subarray((row ?? 0) * width, ((row ?? 0) + 1) * width)
}

/** See `parseOutputs` of open-model.ts. */
export function parseSlices(raw: RawOutputs, slices: OutputSlices, options?: ParseOptions): DrivingOutputs {
  const row = rowOf(raw, options)
  return parseRow(row, resolveSlices(slices, row.length))
}

/** The outputs in a row. */
export function parseRow(row: Float32Array, slices: ResolvedSlices): DrivingOutputs {
  for (const [name, [start, end]] of slices) if (name !== 'pad') expectFinite(name, row.subarray(start, end))
  const done = new Set(['pad'])
  const raw = (name: string): Float32Array | undefined => {
    const ends = slices.get(name)
    done.add(name)
    return ends && row.subarray(...ends)
  }
  const outputs = { ...parseRoad(raw), ...parseRest(raw), ...parseSeats(raw, slices) }
  const others = [...slices]
    .filter(([name]) => !done.has(name))
    .map(([name, [start, end]]) => [name, row.slice(start, end)])
  return { ...outputs, others: Object.fromEntries(others) }
}

type Raw = (name: string) => Float32Array | undefined
type Mutable<T> = { -readonly [K in keyof T]: T[K] }

function parseRoad(raw: Raw): Partial<DrivingOutputs> {
  const outputs: Mutable<Partial<DrivingOutputs>> = {}
  const plan = raw('plan')
  if (plan) outputs.plan = readPlan('plan', plan)
  const [lanes, laneProbs] = [raw('lane_lines'), raw('lane_lines_prob')]
  if (lanes) {
    const probs = laneProbs && readLineProbs('lane_lines_prob', laneProbs, 4)
    outputs.laneLines = readLines('lane_lines', lanes, 4).map((line, i) => ({
      ...line,
      prob: probs?.[i] ?? null,
    }))
  }
  const edges = raw('road_edges')
  if (edges) outputs.roadEdges = readLines('road_edges', edges, 2)
  const [leads, leadProbs] = [raw('lead'), raw('lead_prob')]
  if (leadProbs && leadProbs.length !== 3) throw widthError('lead_prob', leadProbs.length, '3')
  if (leads) outputs.leads = readLeads('lead', leads, leadProbs?.map(sigmoid))
  return outputs
}

function parseRest(raw: Raw): Partial<DrivingOutputs> {
  const outputs: Mutable<Partial<DrivingOutputs>> = {}
  const read = <T>(name: string, parse: (values: Float32Array) => T): T | undefined => {
    const values = raw(name)
    return values && parse(values)
  }
  const estimate = (name: string, count: number): Estimate | undefined =>
    read(name, values => readEstimate(name, values, count))
  const set = <K extends keyof DrivingOutputs>(key: K, value: DrivingOutputs[K] | undefined): void => {
    if (value !== undefined) outputs[key] = value
  }
  const motion = (name: string): CameraMotion | undefined => {
    const pose = estimate(name, 6)
    return pose && { velocity: part(pose, 0, 3), angularVelocity: part(pose, 3) }
  }
  const road = estimate('road_transform', 6)
  const curvature = estimate('desired_curvature', 1)
  set('pose', motion('pose'))
  set('simPose', motion('sim_pose'))
  set('wideFromDeviceEuler', estimate('wide_from_device_euler', 3))
  set('roadTransform', road && { translation: part(road, 0, 3), rotation: part(road, 3) })
  set(
    'meta',
    read('meta', values => readMeta('meta', values)),
  )
  set(
    'desireState',
    read('desire_state', values => softmaxRows('desire_state', values, 1)[0]!),
  )
  set(
    'desirePred',
    read('desire_pred', values => softmaxRows('desire_pred', values, 4)),
  )
  set('desiredCurvature', curvature && scalar(curvature))
  set('action', estimate('action', 2))
  set('lateralPlan', estimate('lat_planner_solution', 132))
  set(
    'hiddenState',
    read('hidden_state', values => values.slice()),
  )
  set(
    'features',
    read('features', values => values.slice()),
  )
  return outputs
}

function parseSeats(raw: Raw, slices: ResolvedSlices): Partial<DrivingOutputs> {
  const outputs: Mutable<Partial<DrivingOutputs>> = {}
  for (const [suffix, key] of [
    ['_lhd', 'leftHandDrive'],
    ['_rhd', 'rightHandDrive'],
  ] as const) {
    if (!slices.has(`face_descs${suffix}`)) continue
    outputs[key] = readSeat(name => raw(`${name}${suffix}`))
  }
  const wheel = raw('wheel_on_right')
  if (wheel) {
    if (wheel.length !== 1) throw widthError('wheel_on_right', wheel.length, '1')
    outputs.wheelOnRightProb = sigmoid(wheel[0]!)
  }
  return outputs
}

function softmaxRows(name: string, raw: Float32Array, count: number): Float32Array[] {
  if (raw.length !== 8 * count) throw widthError(name, raw.length, `${8 * count}`)
  return Array.from({ length: count }, (_, i) => softmax(raw.subarray(8 * i, 8 * (i + 1))))
}

/** @throws SparkError ERR_NOT_FINITE */
export function expectFinite(name: string, values: Float32Array): void {
  const index = values.findIndex(value => !Number.isFinite(value))
  if (index < 0) return
  const what = `element ${index} of the output '${name}' is ${values[index]}`
  const remedy = 'check the inputs; images are bytes from 0 to 255'
  throw new SparkError('ERR_NOT_FINITE', `${what}: ${remedy}`)
}
