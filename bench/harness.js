// harness.js: times a row, relates its rate to the machine's limit and to a peer, prints it.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'

/**
 * @typedef {object} Row one line of the report
 * @property {string} name
 * @property {string} shape
 * @property {string} dtype
 * @property {string} device
 * @property {number} medianMs
 * @property {number} p10Ms
 * @property {number} p90Ms
 * @property {number} rate in `unit`
 * @property {'GB/s' | 'GFLOP/s'} unit
 * @property {number} percentOfLimit of the copy bandwidth or the fastest GEMM measured in this run
 * @property {string} [peer]
 * @property {number} [peerRatio] peer's median time over ours: above 1 we are faster
 * @property {Sizes} [sizes]
 * @property {boolean} noisy spread (p90 - p10) / median above 15 %
 */

/**
 * @typedef {object} Case what a row file hands over
 * @property {string} name
 * @property {string} shape
 * @property {string} dtype
 * @property {string} [device]
 * @property {Sizes} [sizes] of the operands, for peers that run in a process of their own
 * @property {number} [bytes] moved per run: rated in GB/s against the copy bandwidth
 * @property {number} [flops] done per run: rated in GFLOP/s against the fastest GEMM
 * @property {() => unknown} run
 * @property {() => void | Promise<void>} check throws unless the result of `run` is right; called before timing
 * @property {{ name: string, run: () => unknown }} [peer]
 */

/** @typedef {{ tokens?: number, rows: number, cols: number, rank?: number }} Sizes */

/** @typedef {{ copyGBs: number, gemmGFLOPs: number }} Limits */

const minimumMs = 300
const minimumRuns = 7
const batchMs = 20

/**
 * Sorted milliseconds of a call, repeated after a warm-up. With `batched` calls are made one behind the other without
 * waiting, and what is told is the time of a batch, until the last one has ended, over its calls: on a GPU the time of a
 * call in a full stream. It is never less than what the call costs the JavaScript thread.
 * @param {() => unknown} run @param {boolean} [batched]
 */
export async function sample(run, batched = false) {
  await run()
  const first = performance.now()
  await run()
  const calls = batched ? Math.min(256, Math.ceil(batchMs / (performance.now() - first))) : 1
  const times = []
  const begin = performance.now()
  while (times.length < minimumRuns || performance.now() - begin < minimumMs) {
    const start = performance.now()
    if (calls === 1) await run()
    else await Promise.all(Array.from({ length: calls }, run))
    times.push((performance.now() - start) / calls)
  }
  return times.sort((a, b) => a - b)
}

/** The value at `share` (0..1) of sorted numbers. @param {number[]} sorted @param {number} share */
export const quantile = (sorted, share) =>
  sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0

/** @param {Case} bench @param {Limits} limits @returns {Promise<Row>} */
export async function measure(bench, limits) {
  await bench.run()
  await bench.check()
  const batched = bench.device === 'cuda'
  const times = await sample(bench.run, batched)
  const medianMs = quantile(times, 0.5)
  const p10Ms = quantile(times, 0.1)
  const p90Ms = quantile(times, 0.9)
  const unit = bench.flops ? 'GFLOP/s' : 'GB/s'
  const rate = (bench.flops ?? bench.bytes ?? 0) / medianMs / 1e6
  const limit = bench.flops ? limits.gemmGFLOPs : limits.copyGBs
  const { name, shape, dtype, sizes, device = 'cpu' } = bench
  /** @type {Row} */
  const row = {
    name,
    shape,
    dtype,
    device,
    medianMs,
    p10Ms,
    p90Ms,
    rate,
    unit,
    percentOfLimit: (100 * rate) / limit,
    noisy: (p90Ms - p10Ms) / medianMs > 0.15,
    ...(sizes && { sizes }),
  }
  if (bench.peer) {
    const peer = await sample(bench.peer.run, batched)
    row.peer = bench.peer.name
    row.peerRatio = quantile(peer, 0.5) / medianMs
  }
  return row
}

/** Milliseconds with as many digits as are worth reading. @param {number} value */
export const ms = value => value.toFixed(value < 0.1 ? 4 : value < 1 ? 3 : 1)

/** One line of text. @param {Row} row */
export function format(row) {
  const columns = [
    row.name.padEnd(18),
    row.shape.padEnd(20),
    row.dtype.padEnd(12),
    row.device.padEnd(6),
    `${ms(row.medianMs)} ms`.padStart(10),
    `${ms(row.p10Ms)}–${ms(row.p90Ms)}`.padStart(15),
    `${row.rate.toFixed(1)} ${row.unit}`.padStart(15),
    `${row.percentOfLimit.toFixed(0)} %`.padStart(6),
    row.peer ? `${row.peerRatio?.toFixed(2)}x ${row.peer}` : '',
    row.noisy ? 'noisy' : '',
  ]
  return columns.join('  ').trimEnd()
}

/** The machine, for the first line of a report. @param {number} threads */
export function machine(threads) {
  const root = path.resolve(import.meta.dirname, '..')
  const git = spawnSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: root, encoding: 'utf8' })
  const manifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
  const commit = git.status === 0 ? git.stdout.trim() : (manifest.gitHead ?? 'unknown')
  const cpu = os.cpus()[0]?.model.trim() ?? 'unknown CPU'
  const memory = `${Math.round(os.totalmem() / 2 ** 30)} GiB`
  return { cpu, cores: os.cpus().length, threads, arch: os.arch(), memory, node: process.version, commit }
}
