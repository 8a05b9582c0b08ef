// budgets.js: the figures of kernels that no change may make worse, kept in budgets.json.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'

/** @import { Figures } from './figures.js' */
/** @import { Target } from './occupancy.js' */

/**
 * @typedef {object} Budget
 * @property {number} registers of a thread, which count only where they cost warps
 * @property {number} local bytes of local memory
 * @property {number} warps of a multiprocessor
 * @property {number} inFlight loads on their way when a thread waits
 */

/** @typedef {{ nvcc: string } & Record<Target, Record<string, Budget>>} Budgets */

const file = path.join(import.meta.dirname, 'budgets.json')

/** @returns {Budgets} */
export const readBudgets = () => JSON.parse(readFileSync(file, 'utf8'))

/** @param {Figures} figures @returns {Budget} */
const budgetOf = ({ registers, local, warps, inFlight }) => ({ registers, local, warps, inFlight })

/** Budgets by the figures of kernels, beside those of others, by name. @param {readonly Figures[]} figures @param {Record<string, Budget>} others @returns {Record<string, Budget>} */
export function budgetsOf(figures, others) {
  const own = Object.fromEntries(figures.map(kernel => [kernel.name, budgetOf(kernel)]))
  return Object.fromEntries(Object.entries({ ...others, ...own }).sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** @param {string} nvcc @param {Target} target @param {Record<string, Budget>} own */
export function writeBudgets(nvcc, target, own) {
  const { nvcc: _, ...others } = readBudgets()
  const targets = Object.entries({ ...others, [target]: own }).map(([target, budgets]) => {
    const lines = Object.entries(budgets).map(([name, budget]) => `    "${name}": ${spaced(budget)}`)
    return `  "${target}": {\n${lines.join(',\n')}\n  }`
  })
  writeFileSync(file, `{\n  "nvcc": "${nvcc}",\n${targets.join(',\n')}\n}\n`)
}

/** @param {Budget} budget */
const spaced = budget =>
  `{ ${Object.entries(budget)
    .map(([name, value]) => `"${name}": ${value}`)
    .join(', ')} }`

/** In what kernels are worse than their budgets; those of one side alone are, too. @param {Record<string, Budget>} budgets @param {readonly Figures[]} figures */
export function worse(budgets, figures) {
  const found = figures.flatMap(kernel => {
    const { name, registers, local, warps, inFlight } = kernel
    const budget = budgets[name]
    if (!budget) return [`${name} has no budget`]
    return [
      ...(local > budget.local ? [`${name}: ${local} bytes of local memory, not ${budget.local}`] : []),
      ...(warps < budget.warps
        ? [`${name}: ${warps} warps by ${registers} registers, not ${budget.warps} by ${budget.registers}`]
        : []),
      ...(inFlight < budget.inFlight ? [`${name}: ${inFlight} loads in flight, not ${budget.inFlight}`] : []),
    ]
  })
  const names = new Set(figures.map(({ name }) => name))
  const gone = Object.keys(budgets).filter(name => !names.has(name))
  return [...found, ...gone.map(name => `${name} is gone`)]
}
