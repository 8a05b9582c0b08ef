// can.ts: CAN frames as rows: time, address, bus, bytes in hexadecimal digits.
import { commaStart } from '../../data/route/comma-signals.js'
import type { Comma2k19Segment } from '../../data/route/comma2k19.js'
import type { LogEvents } from '../../data/route/log.js'
import type { RowOptions } from '../../data/route/signal-series.js'
import type { Cell } from './rows.js'

const row = (time: number, address: number, bus: number, data: Uint8Array): Cell[] => {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  return [time, `0x${address.toString(16)}`, bus, bytes.toString('hex')]
}

/** The frames of the events of a log. */
export async function* canRows(log: LogEvents, start: bigint): AsyncGenerator<Cell[], void, undefined> {
  for await (const { logMonoTime, value } of log as LogEvents<'can' | 'sendcan'>) {
    const time = Number(logMonoTime - start) / 1e9
    for (const { address, src, dat } of value ?? []) yield row(time, address, src, dat)
  }
}

/** The frames of segments of comma2k19. */
export function* commaCanRows(
  segments: readonly Comma2k19Segment[],
  { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY }: RowOptions,
): Generator<Cell[], void, undefined> {
  const start = commaStart(segments)
  for (const { can } of segments) {
    for (let i = 0; i < can.times.length; i++) {
      const time = can.times[i]! - start
      const data = can.data.subarray(8 * i, 8 * i + 8)
      if (time >= from && time < to) yield row(time, can.addresses[i]!, can.buses[i]!, data)
    }
  }
}
