// gpu-results.js: keeps the rows of a run on a GPU and writes docs/gpu-results.md from all that are kept:
// node bench/gpu-results.js <bench.json…>
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { ms, noiseOf } from './harness.js'

/** @import { Report } from './report.js' */

const root = path.resolve(import.meta.dirname, '..')
const results = path.join(root, 'bench/results')
const page = path.join(root, 'docs/gpu-results.md')

/** Name of the file that keeps a report: its date and GPU. @param {Report} report */
export const resultName = ({ date, machine }) =>
  `${date.slice(0, 10)}-${String(machine.gpu)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')}.json`

/** A section for each report, the newest first. @param {readonly Report[]} reports */
export function gpuResultsPage(reports) {
  const sections = [...reports].sort((a, b) => (a.date < b.date ? 1 : -1)).map(section)
  return `# GPU results

Written by \`node bench/gpu-results.js <bench.json…>\` from what \`npm run test:gpu bench models\` printed; the rows are kept in
\`bench/results\`. A ratio above 1: faster than the peer. What other machines and kernels may reach is estimated in
[GPU model](gpu-model.md).

${sections.join('\n\n')}
`
}

/** @param {Report} report */
function section({ date, machine, limits, rows, peers = [] }) {
  const { gpu, driver, commit } = machine
  const { copyGBs, gemmGFLOPs } = limits
  const ours = rows.map(row => [
    row.name,
    row.shape,
    row.dtype,
    `${ms(row.medianMs)} ms`,
    `${row.rate.toFixed(1)} ${row.unit}`,
    `${row.percentOfLimit.toFixed(0)} %`,
    row.peer ? `${row.peerRatio?.toFixed(2)}x ${row.peer}` : '',
    noiseOf(row),
  ])
  const theirs = peers.map(({ name, shape, dtype, peer, error, medianMs, ratio, rate, unit }) => [
    name,
    shape,
    dtype,
    error ?? `${ms(medianMs)} ms`,
    rate === undefined ? '' : `${rate.toFixed(1)} ${unit}`,
    '',
    error ? peer : `${ratio?.toFixed(2) ?? '–'}x ${peer}`,
    '',
  ])
  const head = ['row', 'shape', 'dtype', 'median', 'rate', 'of limit', 'beside', '']
  const lines = [head, head.map(() => '---'), ...ours, ...theirs].map(cells => `| ${cells.join(' | ')} |`)
  const measured = `copy ${copyGBs.toFixed(0)} GB/s, fastest GEMM ${gemmGFLOPs.toFixed(0)} GFLOP/s`
  return `## ${date.slice(0, 10)}, ${gpu}\n\nDriver ${driver}, commit ${commit}; ${measured}.\n\n${lines.join('\n')}`
}

/** @param {string} file @returns {Promise<Report>} */
const readReport = async file => JSON.parse(await readFile(file, 'utf8'))

/** Reports by the file that keeps them; those of one GPU and day are one. @param {readonly Report[]} reports */
export function mergeReports(reports) {
  /** @type {Map<string, Report>} */
  const merged = new Map()
  for (const report of reports) {
    const before = merged.get(resultName(report))
    const rows = [...(before?.rows ?? []), ...report.rows]
    const peers = [...(before?.peers ?? []), ...(report.peers ?? [])]
    merged.set(resultName(report), { ...report, ...before, rows, peers })
  }
  return merged
}

/** Copies reports to the kept ones and writes the page. @param {readonly string[]} files */
async function keep(files) {
  const reports = await Promise.all(files.map(readReport))
  const other = reports.findIndex(({ machine }) => !machine?.gpu)
  if (other >= 0) throw new Error(`${files[other]} is not the result of a bench on a GPU`)
  await mkdir(results, { recursive: true })
  for (const [name, report] of mergeReports(reports)) {
    await writeFile(path.join(results, name), `${JSON.stringify(report, null, 2)}\n`)
  }
  const names = (await readdir(results)).filter(name => /^\d{4}-.*\.json$/.test(name))
  const kept = await Promise.all(names.map(name => readReport(path.join(results, name))))
  await writeFile(page, gpuResultsPage(kept))
}

if (process.argv[1] === import.meta.filename) {
  const files = process.argv.slice(2)
  try {
    if (files.length === 0) throw new Error('usage: node bench/gpu-results.js <bench.json…>')
    await keep(files)
  } catch (error) {
    console.error(error instanceof Error ? error.message : error)
    process.exitCode = 1
  }
}
