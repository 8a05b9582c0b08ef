// npm run bench [pattern] [-- --json out.json]: the machine, its limits, then one row per case.
import { writeFile } from 'node:fs/promises'
import os from 'node:os'
import { parseArgs } from 'node:util'
import { openKernels } from 'dgx-spark'
import { format, machine, measure } from './harness.js'
import { measureLimits } from './limits.js'
import { loadPeer } from './peer.js'
import { rows } from './rows.js'

const { values, positionals } = parseArgs({ allowPositionals: true, options: { json: { type: 'string' } } })
const pattern = new RegExp(positionals[0] ?? '')
const threads = Number(process.env.DGX_SPARK_THREADS) || os.cpus().length

const kernels = await openKernels({ backend: 'cpu' })
const peer = await loadPeer()
const about = machine(threads)
console.log(
  `${about.cpu}, ${about.cores} cores, ${about.threads} threads, ${about.memory}, ${about.arch}, node ${about.node}, commit ${about.commit}`,
)
const limits = await measureLimits(kernels, peer)
console.log(
  `limits: copy ${limits.copyGBs.toFixed(1)} GB/s (one thread, read + write), GEMM f32 ${limits.gemmGFLOPs.toFixed(0)} GFLOP/s (the fastest found here)\n`,
)
if (!peer) console.log('onnxruntime-node is not installed: no peer ratios\n')

const results = []
for await (const bench of rows(kernels, peer)) {
  if (!pattern.test(`${bench.name} ${bench.shape} ${bench.dtype}`)) continue
  const row = await measure(bench, limits)
  results.push(row)
  console.log(format(row))
}
if (values.json) {
  const report = { date: new Date().toISOString(), machine: about, limits, rows: results }
  await writeFile(values.json, `${JSON.stringify(report, null, 2)}\n`)
}
