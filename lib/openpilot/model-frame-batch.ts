// model-frame-batch.ts: frames of driving models, and how they are read.
import type { BackendName } from '../core/config.js'
import type { Timeline } from './timeline.js'

/** Options of `readModelFrames`. */
export interface ModelFrameOptions {
  /** The video of the road; default: `fcamera` or, where there is none, `qcamera`, whose resolution is lower. */
  readonly video?: 'fcamera' | 'qcamera'
  /** The first frame of the video. Default: 0. */
  readonly from?: number
  /** The frame of the video to stop before. Default: all. */
  readonly to?: number
  /** Frames in a batch. Default: 16. */
  readonly batch?: number
  /** Engine of the projection. Default: what DGX_SPARK_BACKEND says, or the best one. */
  readonly backend?: BackendName
}

/** Frames that follow each other. */
export interface ModelFrameBatch {
  /** How many. */
  readonly count: number
  /** Their indices in the video, [count]. */
  readonly indices: Uint32Array
  /** Their numbers since the camera started, [count]. */
  readonly frameIds: Uint32Array
  /** Ends of exposure, in seconds since boot, [count]. */
  readonly times: Float64Array
  /** The road, [count, 6, 128, 256]. */
  readonly img: Uint8Array<ArrayBuffer>
  /** The road with twice the field of view, [count, 6, 128, 256]. */
  readonly bigImg: Uint8Array<ArrayBuffer>
  /** What the driver intends, indices of `desires`, [count]. */
  readonly desires: Uint8Array
}

/** Seconds that the stages took. */
export interface ModelFrameStages {
  /** Reading the log. */
  log: number
  /** Waiting for the decoder. */
  decode: number
  /** Projection and packing. */
  warp: number
}

/** What a reading of frames tells whoever asked for it. */
export interface FrameReading {
  /** Seconds that the stages took. */
  readonly stages: ModelFrameStages
  /** Frames of the log that the video ended before. */
  missing: number
  /** What the log says about the frames. */
  timeline(): Promise<Timeline>
}
