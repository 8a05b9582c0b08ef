// link-rows.ts: links as rows of a table: what `dgx-spark links` prints.
import type { LinkReport } from './measure.js'

/** Headings of the columns of {@link linkRow}. */
export const linkColumns = [
  'node',
  'from → to',
  'transport',
  'kind',
  'RTT p50 / p95',
  'jitter',
  'bandwidth',
  'loss',
  'stability',
  'notes',
] as const

const notMeasured = 'not measured'

const ms = (value: number): string =>
  value < 1 ? `${Math.round(value * 1000)} µs` : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`

const rate = (bytesPerSecond: number): string => {
  const megabits = (bytesPerSecond * 8) / 1e6
  return megabits >= 1000 ? `${(megabits / 1000).toFixed(1)} Gb/s` : `${Math.round(megabits)} Mb/s`
}

const kindNames = {
  loopback: 'this machine',
  wired: 'wired',
  wifi: 'Wi-Fi',
  mobile: 'mobile',
  unknown: 'unknown',
}

/** A link as cells in the order of {@link linkColumns}. @param name - of the node, instead of its uuid */
export function linkRow(report: LinkReport, name = report.nodeId): string[] {
  const { source, destination, addresses, rtt, bandwidth, loss, stability, transport } = report
  const { kind, from, flags } = report.class
  const ends = [source?.name ?? addresses.local, destination?.name ?? addresses.remote]
  return [
    name,
    ends.map(end => end || '?').join(' → '),
    transport,
    from === 'numbers' ? `${kindNames[kind]} (by numbers)` : kindNames[kind],
    rtt ? `${ms(rtt.p50Ms)} / ${ms(rtt.p95Ms)}` : notMeasured,
    rtt ? ms(rtt.jitterMs) : notMeasured,
    bandwidth ? rate(bandwidth.p50) : notMeasured,
    loss === undefined ? notMeasured : `${(loss * 100).toFixed(1)} %`,
    stability === undefined ? notMeasured : stability.toFixed(2),
    flags.join(', '),
  ]
}
