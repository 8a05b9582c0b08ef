// npm run bench [pattern] [-- options]: the machine, its limits, then one row per case.
//
//   --device cpu|cuda   where the rows run; default cpu
//   --json <file>       keeps the rows
//   --compare <file>    sets them beside those of an older --json
//   --html <file>       a page with all tables
//   --probe             says whether the device can be used, and ends
import { readFile, writeFile } from 'node:fs/promises'
import os from 'node:os'
import { parseArgs } from 'node:util'
import { HardwareInfo, openKernels } from 'dgx-spark'
import { gpuPeers, torchLimits } from './gpu-peers.js'
import { format, machine, measure, ms } from './harness.js'
import { measureDeviceLimits, measureLimits } from './limits.js'
import { loadPeer } from './peer.js'
import { compare, formatChange, html } from './report.js'
import { rows } from './rows.js'

/** @import { Kernels } from 'dgx-spark' */
/** @import { Row } from './harness.js' */
/** @import { PeerRow } from './gpu-peers.js' */

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    device: { type: 'string', default: 'cpu' },
    json: { type: 'string' },
    compare: { type: 'string' },
    html: { type: 'string' },
    probe: { type: 'boolean' },
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
  const about = machine(Number(process.env.DGX_SPARK_THREADS) || os.cpus().length)
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
    : await measureLimits(kernels, peer)
  const copy = device ? 'read + write' : 'one thread, read + write'
  console.log(
    `limits: copy ${limits.copyGBs.toFixed(1)} GB/s (${copy}), GEMM ${limits.gemmGFLOPs.toFixed(0)} GFLOP/s (the fastest found here)\n`,
  )
  return limits
}

/** @param {PeerRow[]} peers */
function printPeers(peers) {
  console.log('\npeers, their median time over ours')
  for (const { name, shape, dtype, peer, medianMs, ratio, error } of peers) {
    const found = error ?? `${ms(medianMs)} ms  ${ratio?.toFixed(2) ?? '–'}x`
    console.log(`${name.padEnd(18)}  ${shape.padEnd(20)}  ${dtype.padEnd(12)}  ${peer.padEnd(30)}  ${found}`)
  }
}

/** @param {unknown} error */
const messageOf = error => (error instanceof Error ? error.message : String(error))

async function main() {
  const kernels = await open()
  if (values.probe) return
  const pattern = new RegExp(positionals[0] ?? '')
  /** @type {Row[]} */
  const old = values.compare ? JSON.parse(await readFile(values.compare, 'utf8')).rows : []
  const about = await describe(kernels)
  const gpu = about.gpu ? `, ${about.gpu}, driver ${about.driver}` : ''
  console.log(
    `${about.cpu}, ${about.cores} cores, ${about.threads} threads, ${about.memory}, ${about.arch}${gpu}, node ${about.node}, commit ${about.commit}`,
  )
  const peer = kernels.backend === 'cpu' ? await loadPeer() : null
  const limits = await limitsOf(kernels, peer)
  if (kernels.backend === 'cpu' && !peer) console.log('onnxruntime-node is not installed: no peer ratios\n')

  /** @type {Row[]} */
  const results = []
  for await (const bench of rows(kernels, peer)) {
    if (!pattern.test(`${bench.name} ${bench.shape} ${bench.dtype}`)) continue
    try {
      const row = await measure({ device: kernels.backend, ...bench }, limits)
      results.push(row)
      console.log(format(row))
    } catch (error) {
      console.log(`${bench.name} ${bench.shape} ${bench.dtype}: WRONG, not timed: ${messageOf(error)}`)
      process.exitCode = 1
    }
  }
  const peers = kernels.backend === 'cuda' ? gpuPeers(results) : []
  if (peers.length > 0) printPeers(peers)
  const changes = compare(results, old)
  if (values.compare) console.log(`\n${changes.length} rows of ${values.compare}, old median over new`)
  for (const change of changes) console.log(formatChange(change))
  const report = { date: new Date().toISOString(), machine: about, limits, rows: results, peers }
  if (values.json) await writeFile(values.json, `${JSON.stringify(report, null, 2)}\n`)
  if (values.html) await writeFile(values.html, html(report, changes))
}

try {
  await main()
} catch (error) {
  console.error(messageOf(error))
  process.exitCode = 1
}
