// drive.ts: what the log of a segment says about the drive: numbers of events, speed, steering, who drives, the calibration.
import { readLog } from '../../data/route/log.js'
import type { LogEvent } from '../../data/route/log-event.js'
import { Samples } from './samples.js'

/** How the camera is mounted. */
export interface Calibration {
  /** calibrated, uncalibrated, invalid, recalibrating. */
  readonly status: string
  /** Roll, pitch, yaw, rad. */
  readonly rpy: readonly number[]
  /** m above the road; null where the log does not say it. */
  readonly height: number | null
}

/** Who says whether openpilot drives, the most reliable first: since 2024 controlsState does not. */
const engagedSources = ['selfdriveState', 'carControl', 'controlsState'] as const

const maxPlanTimes = 200

/** What a log says about a drive. Times are seconds since boot. */
export class Drive {
  /** Number of events by type. */
  readonly counts = new Map<string, number>()
  events = 0
  damaged = 0
  /** Nanoseconds since boot. */
  start: bigint | null = null
  /** Nanoseconds since boot. */
  end: bigint | null = null
  /** m/s, degrees (left is positive), 1 while the driver turns the wheel. */
  readonly car = new Samples('speed', 'angle', 'pressed')
  readonly #engaged = new Map(engagedSources.map(name => [name, new Samples('enabled')]))
  /** The latest of those that are valid, otherwise the latest. */
  calibration: Calibration | null = null
  /** When the frames of the first plans were taken. */
  readonly planTimes: number[] = []

  /** Whether openpilot drives, and which events say so; null when none does. */
  get engaged(): { readonly source: string; readonly samples: Samples<'enabled'> } | null {
    const source = engagedSources.find(name => this.#engaged.get(name)!.count > 0)
    return source === undefined ? null : { source, samples: this.#engaged.get(source)! }
  }

  /** Takes an event into account. */
  take(event: LogEvent): void {
    const { which, logMonoTime } = event
    this.events++
    this.counts.set(which, (this.counts.get(which) ?? 0) + 1)
    if (this.start === null || logMonoTime < this.start) this.start = logMonoTime
    if (this.end === null || logMonoTime > this.end) this.end = logMonoTime
    this.#takeValue(event, Number(logMonoTime) / 1e9)
  }

  #takeValue(event: LogEvent, time: number): void {
    switch (event.which) {
      case 'carState': {
        if (!event.value) return
        const { vEgo: speed, steeringAngleDeg: angle, steeringPressed } = event.value
        this.car.add(time, { speed, angle, pressed: Number(steeringPressed) })
        return
      }
      case 'selfdriveState':
      case 'carControl':
      case 'controlsState':
        if (event.value) this.#engaged.get(event.which)!.add(time, { enabled: Number(event.value.enabled) })
        return
      case 'liveCalibration':
        if (event.value) this.#calibrate(event.value.calStatus, event.value.rpyCalib, event.value.height)
        return
      case 'modelV2':
        if (this.planTimes.length < maxPlanTimes && event.value) this.planTimes.push(planTime(event))
        return
      default:
    }
  }

  #calibrate(status: string, rpy: Float32Array, heights: Float32Array): void {
    if (this.calibration?.status === 'calibrated' && status !== 'calibrated') return
    if (rpy.length !== 3 || !rpy.every(Number.isFinite)) return
    const [height = 0] = heights
    this.calibration = { status, rpy: [...rpy], height: height > 0 && height < 10 ? height : null }
  }
}

/** When the frame of a plan was taken, s since boot. */
export const planTime = ({ value, logMonoTime }: LogEvent<'modelV2'>): number =>
  Number(value && value.timestampEof > 0n ? value.timestampEof : logMonoTime) / 1e9

/**
 * Reads a log once.
 * @throws SparkError ERR_IO and ERR_FORMAT as `readLog`
 */
export async function readDrive(log: string): Promise<Drive> {
  const drive = new Drive()
  const events = readLog(log)
  for await (const event of events) drive.take(event)
  drive.damaged = events.damaged
  return drive
}
