// video-batch.ts: frames in memory.

/** The size of frames. */
export interface FrameSize {
  /** Rows of Y; chroma has half as many, rounded up. */
  readonly height: number
  /** Columns of Y; chroma has half as many, rounded up. */
  readonly width: number
  /** Bytes of a frame. */
  readonly frameBytes: number
}

/** Frames that follow each other: YUV with 4:2:0 chroma, 8 bits, planes Y, U, V behind each other. */
export interface VideoBatch extends FrameSize {
  /** Index of the first frame in the video. */
  readonly first: number
  /** Number of frames. */
  readonly count: number
  /** [count, frameBytes] */
  readonly data: Uint8Array<ArrayBuffer>
}
