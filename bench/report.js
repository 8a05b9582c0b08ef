// report.js: comparison of the rows of a run with an older one, and an HTML page.
import { ms, noiseOf } from './harness.js'

/** @import { Limits, Row } from './harness.js' */
/** @import { PeerRow } from './torch-peers.js' */

/**
 * @typedef {object} Report what --json writes
 * @property {string} date ISO 8601
 * @property {Record<string, string | number | null>} machine
 * @property {Limits} limits
 * @property {string[]} [isas] instruction sets of the machine
 * @property {Row[]} rows
 * @property {PeerRow[]} [peers]
 */

/**
 * @typedef {object} Change
 * @property {Row} row of the new run
 * @property {number} oldMs
 * @property {number} ratio old median over new: above 1 it became faster
 * @property {boolean} certain whether the two p10–p90 ranges lie apart
 */

/** @param {Row} row */
const key = ({ name, shape, dtype, device }) => [name, shape, dtype, device].join('|')

/** The rows that both runs have. @param {Row[]} rows @param {Row[]} old @returns {Change[]} */
export function compare(rows, old) {
  const before = new Map(old.map(row => [key(row), row]))
  return rows.flatMap(row => {
    const other = before.get(key(row))
    if (!other) return []
    const certain = row.p90Ms < other.p10Ms || other.p90Ms < row.p10Ms
    return [{ row, oldMs: other.medianMs, ratio: other.medianMs / row.medianMs, certain }]
  })
}

/** One line of text. @param {Change} change */
export function formatChange({ row, oldMs, ratio, certain }) {
  const times = `${ms(oldMs)} > ${ms(row.medianMs)} ms`.padStart(22)
  const note = certain ? '' : 'within the spread'
  return `${row.name.padEnd(20)}  ${row.shape.padEnd(24)}  ${row.dtype.padEnd(12)}  ${times}  ${ratio.toFixed(2).padStart(6)}x  ${note}`.trimEnd()
}

/** @param {unknown} value */
const escaped = value => String(value).replace(/[&<>"]/g, char => `&#${char.charCodeAt(0)};`)

/** @param {string[]} head @param {unknown[][]} body */
function table(head, body) {
  const cells = (/** @type {string} */ tag, /** @type {unknown[]} */ row) =>
    `<tr>${row.map(cell => `<${tag}>${escaped(cell)}</${tag}>`).join('')}</tr>`
  return `<table>\n${cells('th', head)}\n${body.map(row => cells('td', row)).join('\n')}\n</table>`
}

/** A page that needs no other file. @param {Report} report @param {Change[]} changes */
export function html(report, changes) {
  const about = Object.entries(report.machine).map(([name, value]) => `${name} ${value}`)
  const rows = report.rows.map(row => [
    row.name,
    row.shape,
    row.dtype,
    row.device,
    ms(row.medianMs),
    `${ms(row.p10Ms)}–${ms(row.p90Ms)}`,
    `${row.rate.toFixed(1)} ${row.unit}`,
    `${row.percentOfLimit.toFixed(0)} %`,
    row.peer ? `${row.peerRatio?.toFixed(2)}x ${row.peer}` : '',
    noiseOf(row),
  ])
  const peers = (report.peers ?? []).map(row => [
    row.name,
    row.shape,
    row.dtype,
    row.peer,
    ...(row.error ? [row.error, ''] : [ms(row.medianMs), row.ratio ? `${row.ratio.toFixed(2)}x` : '']),
  ])
  const compared = changes.map(({ row, oldMs, ratio, certain }) => [
    row.name,
    row.shape,
    row.dtype,
    ms(oldMs),
    ms(row.medianMs),
    `${ratio.toFixed(2)}x`,
    certain ? '' : 'within the spread',
  ])
  const head = ['row', 'shape', 'dtype']
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>dgx-spark bench</title>
<style>
body { font: 14px sans-serif; margin: 2em }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: 0.2em 0.8em; text-align: left; border-bottom: 1px solid #ccc; font-variant-numeric: tabular-nums }
</style>
<h1>dgx-spark bench</h1>
<p>${escaped(report.date)}: ${escaped(about.join(', '))}</p>
<p>limits: copy ${report.limits.copyGBs.toFixed(1)} GB/s, GEMM ${report.limits.gemmGFLOPs.toFixed(0)} GFLOP/s</p>
${table([...head, 'device', 'median ms', 'p10–p90', 'rate', 'of limit', 'peer', ''], rows)}
${peers.length > 0 ? table([...head, 'peer', 'median ms', 'peer over ours'], peers) : ''}
${compared.length > 0 ? table([...head, 'old ms', 'new ms', 'old over new', ''], compared) : ''}
</html>
`
}
