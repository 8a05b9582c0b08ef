// npm run bench [family] [pattern] [-- options]: the machine, its limits, then one row per case. A family is a file of
// bench/rows; the pattern, a regular expression, is looked for in `name shape dtype`.
//
//   --families <names>  several families, such as 'linear|blocks|text': a regular expression of whole names
//   --device cpu|cuda   where the rows run; default cpu
//   --json <file>       keeps the rows
//   --compare <file>    sets them beside those of an older --json
//   --html <file>       a page with all tables
//   --targets <file>    runs the rows of bench/targets.js only, keeps them as bench/results/targets-<device>.json, and
//                       writes the page with what was reached on each device
//   --render            with --targets: no run, the page from the results that were kept
//   --cpu-time          times of all threads on the processor instead of those of a clock: for a machine that others use
//                       too; with DGX_SPARK_THREADS=1 both sides compute alone and nothing waits busily
//   --probe             says whether the device can be used, and ends
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { HardwareInfo } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import { parseCommandLine } from './command-line.js'
import { counts, formatOutcome, judge } from './goals.js'
import { format, instructionSets, machine, measure, ms, threadsOf, useCpuTime } from './harness.js'
import { measureDeviceLimits, measureLimits } from './limits.js'
import { loadPeer } from './peer.js'
import { compare, formatChange, html } from './report.js'
import { familyNames, rows } from './rows.js'
import { targets } from './targets.js'
import { outcomes, targetsPage } from './targets-page.js'
import { besidePeers, torchLimits, torchPeers } from './torch-peers.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Limits, Row } from './harness.js' */
/** @import { Report } from './report.js' */
/** @import { PeerRow } from './torch-peers.js' */

const { values, positionals } = parseCommandLine({
  allowPositionals: true,
  options: {
    families: { type: 'string' },
    device: { type: 'string', default: 'cpu' },
    json: { type: 'string' },
    compare: { type: 'string' },
    html: { type: 'string' },
    targets: { type: 'string' },
    render: { type: 'boolean' },
    probe: { type: 'boolean' },
    'cpu-time': { type: 'boolean' },
  },
})

/** @returns {Promise<Kernels>} */
async function open() {
  const { device } = values
  if (device !== 'cpu' && device !== 'cuda') throw new Error(`--device is ${device}; it must be cpu or cuda`)
  const kernels = await openKernels({ backend: device })
  if (!kernels.supports('linear')) throw new Error('the addon was built without CUDA kernels')
  return kernels
}

/** The machine and, for its rows, the GPU. @param {Kernels} kernels */
async function describe(kernels) {
  const about = machine(threadsOf())
  if (kernels.backend !== 'cuda') return { ...about, gpu: null, driver: null }
  const { gpus } = await HardwareInfo.detect()
  const gpu = gpus.find(gpu => gpu.vendor === 'nvidia' && !gpu.problem)
  return { ...about, gpu: gpu?.name ?? 'unknown GPU', driver: gpu?.driver ?? 'unknown' }
}

/** @param {Kernels} kernels @param {Awaited<ReturnType<typeof loadPeer>>} peer */
async function limitsOf(kernels, peer) {
  const device = kernels.backend === 'cuda'
  const limits = device
    ? await measureDeviceLimits(kernels, torchLimits())
    : await measureLimits(kernels, peer, threadsOf())
  const { copyGBs, threadGBs, readGBs, gemmGFLOPs } = limits
  const more =
    threadGBs && readGBs ? `, by one thread ${threadGBs.toFixed(1)}, read ${readGBs.toFixed(1)} GB/s` : ''
  console.log(
    `limits: copy ${copyGBs.toFixed(1)} GB/s (read + write)${more}, GEMM ${gemmGFLOPs.toFixed(0)} GFLOP/s (the fastest found here)\n`,
  )
  return limits
}

/** @param {PeerRow[]} peers */
function printPeers(peers) {
  console.log('\npeers, their median time over ours')
  for (const { name, shape, dtype, peer, medianMs, ratio, rate, unit, error } of peers) {
    const found =
      error ?? `${ms(medianMs)} ms  ${ratio?.toFixed(2) ?? '–'}x  ${rate?.toFixed(1) ?? '–'} ${unit ?? ''}`
    console.log(`${name.padEnd(20)}  ${shape.padEnd(20)}  ${dtype.padEnd(12)}  ${peer.padEnd(30)}  ${found}`)
  }
}

/** @param {unknown} error */
const messageOf = error => (error instanceof Error ? error.message : String(error))

/** The target of a row, and whether it is met. @param {Row} row @param {string[]} isas */
function goalOf(row, isas) {
  const own = targets.filter(target => counts(target, row))
  return own.map(target => `(${target.goal}: ${judge(target, [row], isas).state})`).join(' ')
}

/** @param {Kernels} kernels @param {Awaited<ReturnType<typeof loadPeer>>} peer @param {Limits} limits @param {string[]} isas */
async function runRows(kernels, peer, limits, isas) {
  const family = familyNames.find(name => name === positionals[0])
  const names = values.families ?? family
  const families = names === undefined ? undefined : new RegExp(`^(?:${names})$`)
  const pattern = new RegExp(positionals[family ? 1 : 0] ?? '')
  const withTargets = values.targets !== undefined
  /** @type {import('./rows/models.js').Wanted} */
  const wanted = ({ name, shape, dtype }) =>
    pattern.test(`${name} ${shape} ${dtype}`) &&
    (!withTargets || targets.some(target => counts(target, { device: kernels.backend, name, shape, dtype })))
  /** @type {Row[]} */
  const results = []
  for await (const bench of rows(kernels, peer, { families, withTargets, wanted })) {
    if (!wanted(bench)) continue
    const about = { device: kernels.backend, ...bench }
    try {
      const row = await measure(about, limits)
      results.push(row)
      console.log(format(row, goalOf(row, isas)))
    } catch (error) {
      console.log(`${bench.name} ${bench.shape} ${bench.dtype}: WRONG, not timed: ${messageOf(error)}`)
      process.exitCode = 1
    }
  }
  if (results.length === 0 && process.exitCode === undefined)
    console.log(
      'no row was timed: models of DGX_SPARK_TEST_DATA and onnxruntime-node have rows only where they are',
    )
  return results
}

const resultsOf = (/** @type {string} */ device) =>
  path.join(import.meta.dirname, 'results', `targets-${device}.json`)

/** Writes the page from what is kept of each device. @param {string} file */
async function writeTargets(file) {
  /** @type {Report[]} */
  const reports = []
  for (const device of ['cpu', 'cuda']) {
    const text = await readFile(resultsOf(device), 'utf8').catch(() => null)
    if (text) reports.push(JSON.parse(text))
  }
  await writeFile(file, targetsPage(reports))
  console.log('')
  for (const outcome of outcomes(reports)) console.log(formatOutcome(outcome))
}

/** Outcomes of the targets that rows of this run cover. @param {Report} report */
function printOutcomes(report) {
  const measured = outcomes([report]).filter(({ state }) => state !== 'not measured')
  if (measured.length > 0) console.log('')
  for (const outcome of measured) console.log(formatOutcome(outcome))
}

/** @param {Report} report @param {Row[]} old */
async function tell(report, old) {
  if (report.peers && report.peers.length > 0) printPeers(report.peers)
  const changes = compare(report.rows, old)
  if (values.compare) console.log(`\n${changes.length} rows of ${values.compare}, old median over new`)
  for (const change of changes) console.log(formatChange(change))
  const text = `${JSON.stringify(report, null, 2)}\n`
  if (values.json) await writeFile(values.json, text)
  if (values.html) await writeFile(values.html, html(report, changes))
  if (values.targets === undefined) return printOutcomes(report)
  const kept = resultsOf(values.device)
  await mkdir(path.dirname(kept), { recursive: true })
  await writeFile(kept, text)
  await writeTargets(values.targets)
}

async function main() {
  if (values.render && values.targets) return writeTargets(values.targets)
  const kernels = await open()
  if (values.probe) return
  if (values['cpu-time']) useCpuTime()
  /** @type {Row[]} */
  const old = values.compare ? JSON.parse(await readFile(values.compare, 'utf8')).rows : []
  const about = await describe(kernels)
  const isas = instructionSets()
  const gpu = about.gpu ? `${about.gpu}, driver ${about.driver}` : 'no GPU in use'
  console.log(
    `${about.cpu}, ${about.cores} cores, ${about.threads} threads, ${about.memory}, ${about.arch}, ${about.isa}, ${gpu}, node ${about.node}, commit ${about.commit}`,
  )
  const peer = kernels.backend === 'cpu' ? await loadPeer() : null
  const limits = await limitsOf(kernels, peer)
  if (kernels.backend === 'cpu' && !peer) console.log('onnxruntime-node is not installed: no peer ratios\n')

  const results = await runRows(kernels, peer, limits, isas)
  const settings = {
    device: kernels.backend === 'cuda' ? /** @type {const} */ ('cuda') : /** @type {const} */ ('cpu'),
    threads: threadsOf(),
    cpuTime: values['cpu-time'] ?? false,
  }
  const peers = await torchPeers(results, settings)
  const rows = besidePeers(results, peers)
  await tell({ date: new Date().toISOString(), machine: about, limits, isas, rows, peers }, old)
}

try {
  await main()
} catch (error) {
  console.error(messageOf(error))
  process.exitCode = 1
}
