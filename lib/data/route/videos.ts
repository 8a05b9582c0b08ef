// videos.ts: the videos of segments, and why some have none.
import { SparkError } from '../../core/errors.js'
import type { Route, Segment, SegmentFile } from './routes.js'

/** Which camera a video is of. */
export type VideoFile = Exclude<SegmentFile, 'rlog' | 'qlog'>

const logsOnly =
  'it has logs only, as those of comma_car_segments, which are for CAN frames: models that look at frames need a route with video'

/** The videos that a segment has. */
export const videosOf = ({ files }: Segment): VideoFile[] =>
  (Object.keys(files) as SegmentFile[]).filter(kind => kind !== 'rlog' && kind !== 'qlog').sort()

/**
 * A video of a segment.
 * @throws SparkError ERR_FORMAT when it has none: data sets of CAN frames, such as comma_car_segments, have no videos, so that
 * models that look at frames can do nothing with them
 */
export function videoOf(segment: Segment, camera: VideoFile): string {
  const video = segment.files[camera]
  if (video !== undefined) return video
  const others = videosOf(segment)
  const why = others.length > 0 ? `it has ${others.join(', ')}` : logsOnly
  throw new SparkError('ERR_FORMAT', `segment ${segment.name} has no ${camera}: ${why}`)
}

/**
 * Refuses data that models which look at frames can do nothing with, before any of it is read.
 * @param source - a route, or segments
 * @throws SparkError ERR_FORMAT for the first segment without a video of the road (qcamera, fcamera)
 */
export function expectVideo(source: Route | readonly Segment[]): void {
  for (const segment of 'segments' in source ? source.segments : source) {
    const videos = videosOf(segment)
    if (videos.includes('qcamera') || videos.includes('fcamera')) continue
    const why = videos.length > 0 ? `it has ${videos.join(', ')}` : logsOnly
    throw new SparkError('ERR_FORMAT', `segment ${segment.name} has no video of the road: ${why}`)
  }
}
