// log-event.ts: events as users see them, and which they want.
import type { EventName, EventValues } from './event-types.js'

/** An event of a log. */
export type LogEvent<N extends EventName = EventName> = {
  [K in N]: EventHeader & {
    /** Its type. */
    readonly which: K
    /** What it says, decoded at the first access; null for types whose fields are not read. */
    readonly value: K extends keyof EventValues ? EventValues[K] : null
  }
}[N]

/** What all events have. */
export interface EventHeader {
  /** The ordinal of the type in cereal's struct Event; names change, ordinals do not. */
  readonly ordinal: number
  /** When it was logged, in nanoseconds since boot. */
  readonly logMonoTime: bigint
  /** Whether who logged it had what it needs. */
  readonly valid: boolean
}

/** Which events are read. */
export interface EventFilter<N extends EventName = EventName> {
  /** Types, by any of their names over the years. Default: all. */
  readonly which?: readonly (N | (string & {}))[]
  /** The first `logMonoTime`, in nanoseconds. */
  readonly from?: bigint
  /** The `logMonoTime` to stop before, in nanoseconds. */
  readonly to?: bigint
}
