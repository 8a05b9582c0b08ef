// read-events.ts: the events of logs that pass a filter.
import { SparkError } from '../../core/errors.js'
import type { LogDamage } from './damage.js'
import { decompress } from './decompress.js'
import { type EventType, ordinalOf, ordinalsOf, typeOf } from './event-types.js'
import type { EventFilter, EventHeader } from './log-event.js'
import { readMessages } from './messages.js'
import type { StructView } from './views.js'

/**
 * The events of a log that pass a filter.
 * @param report - is told about what is left out
 * @throws SparkError ERR_ARGUMENT, ERR_IO, ERR_FORMAT
 */
export async function* readEvents(
  file: string,
  { which, from, to }: EventFilter,
  report: (damage: LogDamage) => void,
): AsyncGenerator<EventHeader, void, undefined> {
  const wanted = which && new Set(which.flatMap(ordinalsOf))
  let found = 0
  let first: LogDamage | undefined
  const messages = readMessages(decompress(file), found => {
    const damage = { file, ...found }
    first ??= damage
    report(damage)
  })
  for await (const { root } of messages) {
    found++
    const { segment, data, dataBytes } = root
    if (dataBytes < 16) continue
    const type = typeOf(ordinalOf(segment.getUint16(data + 8)))
    if (wanted && !wanted.has(type.ordinal)) continue
    const time = segment.getUint64(data)
    if ((from !== undefined && time < from) || (to !== undefined && time >= to)) continue
    yield new DecodedEvent(type, time, root)
  }
  if (found > 0 || !first || first.kind === 'truncated') return
  throw new SparkError('ERR_FORMAT', `${file} is no log of openpilot: ${first.reason}`)
}

class DecodedEvent implements EventHeader {
  readonly which: string
  readonly ordinal: number
  readonly logMonoTime: bigint
  readonly valid: boolean
  readonly #type: EventType
  #root: StructView | undefined
  #value: unknown

  constructor(type: EventType, logMonoTime: bigint, root: StructView) {
    this.#type = type
    this.#root = root
    this.which = type.name
    this.ordinal = type.ordinal
    this.logMonoTime = logMonoTime
    // The default is true, and a default is stored as 0.
    this.valid = (root.segment.getUint8(root.data + 10) & 1) === 0
  }

  get value(): unknown {
    if (this.#root) this.#value = this.#type.read(this.#root)
    this.#root = undefined
    return this.#value
  }
}
