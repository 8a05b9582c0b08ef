// goals.js: evaluation of the targets in targets.js.

/** @import { Detail, Row } from './harness.js' */

/**
 * @typedef {object} Target
 * @property {string} name
 * @property {'cpu' | 'cuda'} device
 * @property {string} goal `>= 1.8 x`: a comparison, a number and a unit, which says what of a row is compared
 * @property {{ name: string, shape?: RegExp, dtype?: RegExp }} rows those that count
 * @property {string} [detail] of the rows, which is compared instead of their times
 * @property {'worst'} [of] which of several rows is compared; the geometric mean of all without it
 * @property {'amx' | 'avx512'} [needs] instruction set without which the goal does not hold
 * @property {string} [limit] why it is missed, where it is
 * @property {string} [next] what to try next, where it is missed
 */

/**
 * @typedef {object} Outcome
 * @property {Target} target
 * @property {number} [value] in the unit of the goal
 * @property {string} state reached, missed, not measured, or `this machine lacks …`
 */

/** Values of a row by the unit of a goal. `x`: the peer's time over ours; after `<=` ours over the peer's. */
const units = /** @type {Record<string, (row: Row) => number | undefined>} */ ({
  x: row => row.peerRatio,
  '%': row => row.percentOfLimit,
  ms: row => row.medianMs,
  µs: row => row.medianMs * 1e3,
  'GFLOP/s': row => (row.unit === 'GFLOP/s' ? row.rate : undefined),
  'token/s': row => (row.unit === 'token/s' ? row.rate : undefined),
  'Gelement/s': row => (row.unit === 'Gelement/s' ? row.rate : undefined),
  'TB/s': row => (row.unit === 'GB/s' ? row.rate / 1e3 : undefined),
})

/** The same of a detail of a row. */
const detailUnits = /** @type {Record<string, (detail: Detail) => number | undefined>} */ ({
  x: ({ ours, peer }) => peer / ours,
  ms: ({ unit, ours }) => (unit === 'ms' ? ours : undefined),
  MB: ({ unit, ours }) => (unit === 'MB' ? ours : undefined),
})

/** @param {string} goal */
export function parseGoal(goal) {
  const [, comparison, number, unit = ''] = goal.match(/^(>=|<=) ([\d.]+) (\S+)$/) ?? []
  if (!(unit in units) && !(unit in detailUnits))
    throw new Error(`'${goal}' is no goal: write it as '>= 1.8 x'`)
  return { most: comparison === '<=', number: Number(number), unit }
}

/** What the goal of a target compares. @param {Target} target @param {Row} row */
function amountOf({ goal, detail: name }, row) {
  const { unit } = parseGoal(goal)
  if (name === undefined) return units[unit]?.(row)
  const detail = row.details?.[name]
  return detail && detailUnits[unit]?.(detail)
}

/** Whether a row counts for a target. @param {Target} target @param {Pick<Row, 'name' | 'shape' | 'dtype' | 'device'>} row */
export function counts({ device, rows: { name, shape, dtype } }, row) {
  if (device !== row.device || name !== row.name) return false
  return (!shape || shape.test(row.shape)) && (!dtype || dtype.test(row.dtype))
}

/** The outcome of a target. @param {Target} target @param {Row[]} rows @param {string[]} isas of the machine @returns {Outcome} */
export function judge(target, rows, isas) {
  const { most, number, unit } = parseGoal(target.goal)
  const values = rows
    .filter(row => counts(target, row))
    .flatMap(row => amountOf(target, row) ?? [])
    .map(value => (unit === 'x' && most ? 1 / value : value))
  if (values.length === 0) return { target, state: 'not measured' }
  const mean = values.reduce((product, value) => product * value, 1) ** (1 / values.length)
  const worst = most ? Math.max(...values) : Math.min(...values)
  const value = target.of === 'worst' ? worst : mean
  if (target.needs && !isas.includes(target.needs)) {
    return { target, value, state: `this machine lacks ${target.needs}` }
  }
  return { target, value, state: (most ? value <= number : value >= number) ? 'reached' : 'missed' }
}

/** A number with three digits that count. @param {number} value */
const digits = value => (value >= 100 ? value.toFixed(0) : value.toPrecision(3))

/** The value with its unit. @param {Outcome} outcome */
export const reached = ({ target, value }) =>
  value === undefined ? '–' : `${digits(value)} ${parseGoal(target.goal).unit}`

/** One line of text. @param {Outcome} outcome */
export const formatOutcome = outcome =>
  `${outcome.target.name.padEnd(88)}  ${outcome.target.goal.padEnd(18)}  ${reached(outcome).padStart(16)}  ${outcome.state}`
