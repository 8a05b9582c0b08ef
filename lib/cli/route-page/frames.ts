// frames.ts: frames of a segment as a page shows them: small pictures, with what the model saw.
import { SparkError } from '../../core/errors.js'
import type { Segment } from '../../data/route/routes.js'
import { readStillFrames } from '../../data/still-frames.js'
import { framesOf, type RoadVideo, readTimeline, type Timeline } from '../../openpilot/timeline.js'
import type { Drive } from './drive.js'
import { type Overlay, readOverlays } from './overlay.js'

/** A frame of the road. */
export interface Picture {
  /** s since boot. */
  readonly time: number
  readonly jpeg: Uint8Array
  /** Null where the log has no model of that time. */
  readonly overlay: Overlay | null
}

/** The frames of a segment, or why there are none. */
export interface Pictures {
  readonly frames: readonly Picture[]
  /** Pixels, of the overlays. */
  readonly size: { readonly width: number; readonly height: number }
  readonly video: RoadVideo | null
  readonly why: string | null
}

/** Pixels: that of the qcamera. */
const width = 526
const maxFrames = 240
/** m; what openpilot assumes where a log does not say it. */
const defaultHeight = 1.22
const defaultInterval = 0.05

/**
 * Reads frames of the road, `every` so many seconds. A video that cannot be shown is no error.
 * @param log - of the segment
 * @throws SparkError ERR_IO and ERR_FORMAT as `readLog`
 */
export async function readPictures(
  segment: Segment,
  log: string,
  drive: Drive,
  every: number,
): Promise<Pictures> {
  const timeline = await readTimeline(log)
  const { camera, size } = sizeOf(timeline)
  const { qcamera, fcamera } = segment.files
  const video = qcamera ? 'qcamera' : fcamera ? 'fcamera' : null
  if (video === null) return { frames: [], size, video, why: 'the segment has no qcamera.ts or fcamera.hevc' }
  let stills: Omit<Picture, 'overlay'>[]
  try {
    stills = await readStills(timeline, video, segment.files[video]!, log, drive, every)
  } catch (error) {
    if (!(error instanceof SparkError)) throw error
    return { frames: [], size, video, why: error.message }
  }
  const height = drive.calibration?.height ?? defaultHeight
  const times = stills.map(({ time }) => time)
  const overlays = await readOverlays(log, times, frame => ({
    camera,
    size,
    rpy: timeline.calibrationAt(times[frame]!),
    height,
  }))
  const frames = stills.map((still, i) => ({ ...still, overlay: overlays[i]! }))
  const why = frames.length > 0 ? null : `the log has no encode indices of the frames in ${video}`
  return { frames, size, video, why }
}

function sizeOf({ cameras: { narrow } }: Timeline): Pick<Pictures, 'size'> & { camera: typeof narrow } {
  return { camera: narrow, size: { width, height: Math.round((width * narrow.height) / narrow.width) } }
}

/** Frames of a video whose times are known, by their times. */
async function readStills(
  timeline: Timeline,
  video: RoadVideo,
  file: string,
  log: string,
  { planTimes }: Drive,
  every: number,
): Promise<Omit<Picture, 'overlay'>[]> {
  const { indices, times } = framesOf(timeline, video, log)
  const timeOf = new Map(Array.from(indices, (index, i) => [index, times[i]!]))
  const count = indices.at(-1)! + 1
  const interval = (times.at(-1)! - times[0]!) / (indices.at(-1)! - indices[0]!)
  const frames = every / (interval > 0.001 && interval < 10 ? interval : defaultInterval)
  const step = Math.max(1, Math.round(Math.min(frames, count)), Math.ceil(count / maxFrames))
  const first = firstOf(step, indices, times, planTimes)
  const stills: Omit<Picture, 'overlay'>[] = []
  for await (const { index, jpeg } of readStillFrames(file, { step, first, limit: maxFrames, width })) {
    const time = timeOf.get(index)
    if (time !== undefined) stills.push({ time, jpeg })
  }
  return stills.sort((a, b) => a.time - b.time)
}

/**
 * The first of the frames that are shown. Small logs have a plan for each 40th frame: the frames that are shown are, as far as
 * possible, those that the plans are of.
 */
function firstOf(
  step: number,
  indices: Uint32Array,
  times: Float64Array,
  planTimes: readonly number[],
): number {
  const votes = new Map<number, number>()
  for (const time of planTimes) {
    const at = times.findIndex(each => Math.abs(each - time) < defaultInterval / 2)
    if (at < 0) continue
    const first = indices[at]! % step
    votes.set(first, (votes.get(first) ?? 0) + 1)
  }
  return [...votes].reduce((best, vote) => (vote[1] > best[1] ? vote : best), [0, 0])[0]!
}
