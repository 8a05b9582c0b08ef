// damage.ts: what is wrong with a log.

/** Bytes of a log that gave no events. */
export interface LogDamage extends StreamDamage {
  /** The path of the log. */
  readonly file: string
}

/** As {@link LogDamage}, of a stream. */
export interface StreamDamage {
  /** `truncated`: the log ends in the middle of a message. `compression`: its container is damaged. */
  readonly kind: 'message' | 'compression' | 'truncated'
  /** Position in the decompressed log. */
  readonly offset: number
  /** Bytes that were skipped; 0 where they are lost. */
  readonly bytes: number
  /** What is wrong with them. */
  readonly reason: string
}
