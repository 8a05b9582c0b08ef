// timeline.ts: what the log of a segment says about each frame of its videos: when it was taken, how the camera is mounted, what
// the driver intends.
import { SparkError } from '../core/errors.js'
import { readLog } from '../data/route/log.js'
import type { LogEvent } from '../data/route/log-event.js'
import { type RoadCameras, roadCameras } from './cameras.js'
import { desires } from './desires.js'

/** A video of a segment that shows the road. */
export type RoadVideo = 'qcamera' | 'fcamera' | 'ecamera'

/** Frames of a video, in their order. */
export interface FrameTimes {
  /** Their indices in the video. */
  readonly indices: Uint32Array
  /** Their numbers since the camera started. */
  readonly frameIds: Uint32Array
  /** Ends of exposure, in seconds since boot. */
  readonly times: Float64Array
}

/** What a log says about the frames of a segment. */
export interface Timeline {
  /** The cameras of the device. */
  readonly cameras: RoadCameras
  /** Frames of the videos of which the log has encode indices. */
  readonly videos: Readonly<Partial<Record<RoadVideo, FrameTimes>>>
  /** Roll, pitch, yaw of the calibration at a time (s), in rad: the latest that is valid, before the first that one. */
  calibrationAt(time: number): Float32Array
  /** Whether there is a valid calibration; otherwise it is 0. */
  readonly isCalibrated: boolean
  /** What the driver intends at a time (s): an index of {@link desires}. */
  desireAt(time: number): number
  /** Whether the driver sits on the right. */
  readonly isRightHandDrive: boolean
}

const encodeIndices = {
  qRoadEncodeIdx: 'qcamera',
  roadEncodeIdx: 'fcamera',
  wideRoadEncodeIdx: 'ecamera',
} as const

const names = [
  ...(Object.keys(encodeIndices) as (keyof typeof encodeIndices)[]),
  'initData',
  'roadCameraState',
  'liveCalibration',
  'lateralPlanDEPRECATED',
  'modelV2',
  'driverMonitoringStateDEPRECATED',
  'driverMonitoringState',
] as const

/** Frames of an hour: segments have a minute. */
const maxFrames = 72_000

const seconds = (nanoseconds: bigint): number => Number(nanoseconds) / 1e9

/** Values that hold from a time on. */
class Steps<T> {
  readonly #times: number[] = []
  readonly #values: T[] = []

  add(time: number, value: T): void {
    let at = this.#times.length
    while (at > 0 && this.#times[at - 1]! > time) at--
    this.#times.splice(at, 0, time)
    this.#values.splice(at, 0, value)
  }

  get length(): number {
    return this.#times.length
  }

  /** The value at a time; before the first that one; undefined when there is none. */
  at(time: number): T | undefined {
    let [low, high] = [0, this.#times.length]
    while (high - low > 1) {
      const middle = (low + high) >> 1
      if (this.#times[middle]! <= time) low = middle
      else high = middle
    }
    return this.#values[low]
  }
}

/** Collects what events say. */
class Collector {
  readonly frames = new Map<RoadVideo, Map<number, { readonly id: number; readonly time: number }>>()
  readonly calibrations = new Steps<Float32Array>()
  readonly plannedDesires = new Steps<number>()
  readonly laneChanges = new Steps<number>()
  sensor = 'unknown'
  deviceType = 'unknown'
  isRightHandDrive = false

  take(event: LogEvent<(typeof names)[number]>): void {
    const time = seconds(event.logMonoTime)
    switch (event.which) {
      case 'initData':
        this.deviceType = event.value?.deviceType ?? this.deviceType
        return
      case 'roadCameraState':
        this.sensor = event.value?.sensor ?? this.sensor
        return
      case 'liveCalibration':
        if (event.value?.calStatus === 'calibrated' && isAngles(event.value.rpyCalib))
          this.calibrations.add(time, event.value.rpyCalib)
        return
      case 'lateralPlanDEPRECATED':
        if (event.value) this.plannedDesires.add(time, desireIndex(event.value.desire))
        return
      case 'modelV2':
        this.#laneChange(time, event.value?.meta)
        return
      case 'driverMonitoringStateDEPRECATED':
      case 'driverMonitoringState':
        this.isRightHandDrive = event.value?.isRHD ?? this.isRightHandDrive
        return
      default:
        this.#frame(encodeIndices[event.which], event.value)
    }
  }

  #laneChange(time: number, meta: LaneChange | null | undefined): void {
    const isChanging = /Starting|Finishing/.test(meta?.laneChangeState ?? '')
    const change = meta?.laneChangeDirection === 'left' ? 'laneChangeLeft' : 'laneChangeRight'
    this.laneChanges.add(time, desireIndex(isChanging ? change : 'none'))
  }

  #frame(video: RoadVideo, index: { segmentId: number; frameId: number; timestampEof: bigint } | null): void {
    if (!index || index.segmentId >= maxFrames) return
    const frames = this.frames.get(video) ?? new Map()
    this.frames.set(video, frames)
    const { segmentId, frameId: id, timestampEof } = index
    if (!frames.has(segmentId)) frames.set(segmentId, { id, time: seconds(timestampEof) })
  }
}

interface LaneChange {
  readonly laneChangeState: string
  readonly laneChangeDirection: string
}

const desireIndex = (name: string): number => Math.max(0, (desires as readonly string[]).indexOf(name))

const isAngles = (rpy: Float32Array): boolean =>
  rpy.length === 3 && rpy.every(angle => Math.abs(angle) < Math.PI)

/**
 * Reads the log of a segment.
 * @param log - path of a qlog or rlog
 * @throws SparkError ERR_IO and ERR_FORMAT as `readLog`
 */
export async function readTimeline(log: string): Promise<Timeline> {
  const collected = new Collector()
  for await (const event of readLog(log, { which: names })) collected.take(event)
  const { calibrations, plannedDesires, laneChanges, sensor, deviceType, isRightHandDrive } = collected
  const still = new Float32Array(3)
  return {
    cameras: roadCameras(sensor, deviceType),
    videos: Object.fromEntries([...collected.frames].map(([video, frames]) => [video, inOrder(frames)])),
    calibrationAt: time => calibrations.at(time) ?? still,
    isCalibrated: calibrations.length > 0,
    // Since 2024 no more than the lane change is logged.
    desireAt: time => (plannedDesires.length > 0 ? plannedDesires : laneChanges).at(time) ?? 0,
    isRightHandDrive,
  }
}

function inOrder(frames: ReadonlyMap<number, { readonly id: number; readonly time: number }>): FrameTimes {
  const sorted = [...frames].sort(([a], [b]) => a - b)
  return {
    indices: Uint32Array.from(sorted, ([index]) => index),
    frameIds: Uint32Array.from(sorted, ([, { id }]) => id),
    times: Float64Array.from(sorted, ([, { time }]) => time),
  }
}

/**
 * The frames of a video.
 * @throws SparkError ERR_FORMAT when the log has no encode indices of it
 */
export function framesOf({ videos }: Timeline, video: RoadVideo, log: string): FrameTimes {
  const frames = videos[video]
  if (frames) return frames
  const others = Object.keys(videos).join(', ') || 'none of any video'
  throw new SparkError('ERR_FORMAT', `${log} has no encode indices of ${video}, but ${others}`)
}
