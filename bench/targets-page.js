// targets-page.js: docs/targets.md, from the results of a run on each device.
import { judge, reached } from './goals.js'
import { targets } from './targets.js'

/** @import { Report } from './report.js' */
/** @import { Outcome, Target } from './goals.js' */

/** Outcomes of the targets of the measured devices. @param {Report[]} reports @returns {Outcome[]} */
export const outcomes = reports =>
  targets.map(target => {
    const report = reports.find(({ rows }) => rows.some(({ device }) => device === target.device))
    return judge(target, report?.rows ?? [], report?.isas ?? [])
  })

/** @param {Outcome[]} all */
function table(all) {
  const lines = all.map(
    outcome => `| ${outcome.target.name} | ${outcome.target.goal} | ${reached(outcome)} | ${outcome.state} |`,
  )
  return ['| target | goal | measured | |', '|---|---|---|---|', ...lines].join('\n')
}

const columns = 130

/** Text wrapped at a fixed number of columns; lines after the first are indented. @param {string} text */
const wrapped = text =>
  text.split(' ').reduce((lines, word) => {
    const column = lines.length - lines.lastIndexOf('\n') - 1
    return lines + (column + 1 + word.length > columns ? `\n  ${word}` : ` ${word}`)
  })

/** @param {Target} target */
const note = ({ name, limit, next }) =>
  wrapped(`- **${name}.** Limit: ${limit ?? 'not known yet'}. Next: ${next ?? 'not known yet'}.`)

/** @param {Report | undefined} report */
function origin(report) {
  if (!report) return 'Not measured yet.'
  const { cpu, cores, threads, gpu, driver, node, commit } = report.machine
  const machine = gpu ? `${gpu}, driver ${driver}, ${cpu}` : `${cpu}, ${cores} cores, ${threads} threads`
  const { copyGBs, gemmGFLOPs } = report.limits
  const limits = `copy ${copyGBs.toFixed(1)} GB/s, fastest GEMM ${gemmGFLOPs.toFixed(0)} GFLOP/s`
  const where = `${report.date.slice(0, 10)}, ${machine}, Node.js ${node}, commit ${commit}`
  const isas = gpu ? '' : `; instruction sets: ${report.isas?.join(', ')}`
  return wrapped(`${where}; ${limits}${isas}.`)
}

/** The page. @param {Report[]} reports at most one of each device */
export function targetsPage(reports) {
  const all = outcomes(reports)
  const sections = /** @type {const} */ ([
    ['cpu', 'CPU', ''],
    ['cuda', 'GPU', ' --device cuda'],
  ]).map(([device, title, option]) => {
    const own = all.filter(({ target }) => target.device === device)
    const missed = own.filter(({ state }) => state === 'missed').map(({ target }) => note(target))
    const report = reports.find(({ rows }) => rows.some(row => row.device === device))
    return [
      `## ${title}`,
      origin(report),
      `\`npm run bench -- --targets docs/targets.md${option}\``,
      table(own),
      ...(missed.length > 0 ? [missed.join('\n')] : []),
    ].join('\n\n')
  })
  return `# Targets

The bench writes this page; goals, and what limits a missed one, are in \`bench/targets.js\`. Where several rows count, the
geometric mean is given, for the casts the worst. \`>= 1.8 x\`: 1.8 times as fast as the peer; \`<= 1.1 x\`: at most 1.1 times its time.

${sections.join('\n\n')}
`
}
