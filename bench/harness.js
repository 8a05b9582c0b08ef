// harness.js: timing of a row, its rate relative to the machine's limit and to a peer, and output.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { loadAddon } from '#lib/native.js'

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
 * @property {'GB/s' | 'GFLOP/s' | 'Gelement/s' | 'token/s'} unit
 * @property {number} percentOfLimit of the bandwidth or the fastest GEMM measured in this run, or what `percent` says
 * @property {string} [peer]
 * @property {number} [peerMs] median
 * @property {number} [peerRatio] peer's time over ours: above 1 we are faster
 * @property {Record<string, Detail>} [details] what else was measured
 * @property {Sizes} [sizes]
 * @property {number} spread (p90 - p10) / median, of the peer where that is more
 * @property {boolean} noisy the spread is above 15 %
 */

/** @typedef {{ unit: 'ms' | 'MB', ours: number, peer: number }} Detail medians */

/**
 * @typedef {object} Case what a row file hands over
 * @property {string} name
 * @property {string} shape
 * @property {string} dtype
 * @property {string} [device]
 * @property {Sizes} [sizes] of the operands, for peers that run in a process of their own
 * @property {number} [bytes] moved per run: rated in GB/s against the bandwidth
 * @property {number} [flops] done per run: rated in GFLOP/s against the fastest GEMM
 * @property {number} [elements] per run, where they are the rate; `bytes` is then held against the bandwidth all the same
 * @property {number} [tokens] of a language model per run, where they are the rate
 * @property {'copy' | 'read' | 'thread'} [bandwidth] which one: a copy (default), reading only, a copy by one thread
 * @property {() => Promise<number>} [limit] measures the bandwidth, in GB/s, before and after the row, where the one from
 *   the start of the run is too old to compare with
 * @property {() => Promise<number>} [percent] measures what stands in the place of the percentage of a limit
 * @property {() => unknown} run
 * @property {() => unknown} [prepare] called before each run, not timed
 * @property {number} [calls] in a run: times are those of one of them
 * @property {number} [pairs] runs of either side, in turn and by a clock: each is a process of its own, and none warms up
 * @property {(medians: { ours: number, peer: number }) => Record<string, Detail> | Promise<Record<string, Detail>>} [details] called after timing
 * @property {() => void | Promise<void>} check throws unless the result of `run` is right; called before timing
 * @property {Side} [peer]
 */

/** @typedef {{ name: string, run: () => unknown, prepare?: () => unknown, spins?: boolean }} Side `spins`: its threads wait busily for more work */

/** @typedef {Pick<Case, 'run' | 'prepare'>} Timed */

/** @typedef {{ tokens?: number, rows: number, cols: number, rank?: number } | import('./rows/conv.js').Layer | import('./rows/attention.js').Heads | import('./rows/products.js').Scores | import('./rows/text.js').TextSizes} Sizes */

/**
 * @typedef {object} Limits
 * @property {number} copyGBs read plus written, by all threads
 * @property {number} [threadGBs] the same by one
 * @property {number} [readGBs] by all threads
 * @property {number} gemmGFLOPs
 */

const isQuick = process.env.DGX_SPARK_GPU_QUICK === '1'
const minimumMs = isQuick ? 60 : 300
const minimumRuns = isQuick ? 3 : 7
const batchMs = 20
const rounds = 15 // in which two sides take turns
const pausedRounds = 5 // the same where each turn begins with a pause
const idleMs = 60 // threads that wait busily have gone to sleep by then
const noisySpread = 0.15

/** Milliseconds that have passed. */
let clock = () => performance.now()

/** From now on times are those that all threads of the process spend computing, whatever else the machine does. */
export function useCpuTime() {
  clock = () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1000
  }
}

/**
 * Sorted milliseconds of a call, repeated after a warm-up. With `batched` calls are issued back to back without
 * waiting, and what is told is the time of a batch, until the last one has ended, over its calls: on a GPU the time of a
 * call in a full stream. It is never less than what the call costs the JavaScript thread.
 * @param {() => unknown} run @param {boolean} [batched]
 */
export const sample = (run, batched = false) => sampleOne({ run }, batched)

/** @param {Timed} side @param {boolean} batched */
async function sampleOne(side, batched) {
  return ascending(await collect(side, await callsOf(side, batched), minimumMs, minimumRuns))
}

/** Warms a call up; how many of it a batch takes. @param {Timed} side @param {boolean} batched */
async function callsOf({ run, prepare }, batched) {
  await prepare?.()
  await run()
  await prepare?.()
  const first = clock()
  await run()
  return batched ? Math.min(256, Math.ceil(batchMs / (clock() - first))) : 1
}

/** Milliseconds of a call, for at least so long and so often. @param {Timed} side @param {number} calls @param {number} least @param {number} runs */
async function collect({ run, prepare }, calls, least, runs) {
  const times = []
  const begin = performance.now()
  while (times.length < runs || performance.now() - begin < least) {
    await prepare?.()
    const start = clock()
    if (calls === 1) await run()
    else await Promise.all(Array.from({ length: calls }, run))
    times.push((clock() - start) / calls)
  }
  return times
}

/**
 * Two sides in turn, so that both meet the same machine: the sorted times of each, and the median over the rounds of the
 * peer's time over ours. A round compares the fastest calls: what else the machine does only ever makes one slower.
 * @param {Timed} ours @param {Side} peer @param {boolean} batched
 */
async function sampleBoth(ours, peer, batched) {
  const pause = () => (peer.spins ? new Promise(next => setTimeout(next, idleMs)) : null)
  const calls = await callsOf(ours, batched)
  const peerCalls = await callsOf(peer, batched)
  const turns = peer.spins ? pausedRounds : rounds
  const [share, runs] = [minimumMs / turns, Math.ceil(minimumRuns / turns)]
  /** @type {number[]} */
  const times = []
  /** @type {number[]} */
  const peerTimes = []
  const ratios = []
  for (let turn = 0; turn < turns; ++turn) {
    await pause()
    const own = await collect(ours, calls, share, runs)
    await pause()
    const other = await collect(peer, peerCalls, share, runs)
    times.push(...own)
    peerTimes.push(...other)
    ratios.push(Math.min(...other) / Math.min(...own))
  }
  return { times: ascending(times), peerTimes: ascending(peerTimes), ratio: median(ratios) }
}

/**
 * As `sampleBoth`, where a run is a process of its own.
 * @param {Timed} ours @param {Side} peer @param {number} pairs
 */
async function samplePairs(ours, peer, pairs) {
  const elapsed = async (/** @type {Timed} */ { run }) => {
    const start = performance.now()
    await run()
    return performance.now() - start
  }
  /** @type {number[]} */
  const times = []
  /** @type {number[]} */
  const peerTimes = []
  for (let pair = 0; pair < pairs; ++pair) {
    times.push(await elapsed(ours))
    peerTimes.push(await elapsed(peer))
  }
  const ratio = median(times.map((time, pair) => (peerTimes[pair] ?? Number.NaN) / time))
  return { times: ascending(times), peerTimes: ascending(peerTimes), ratio }
}

/** @param {number[]} numbers */
const ascending = numbers => numbers.sort((a, b) => a - b)

/** @param {number[]} numbers */
export const median = numbers => quantile(ascending(numbers), 0.5)

/** @param {number[]} sorted */
const spreadOf = sorted => (quantile(sorted, 0.9) - quantile(sorted, 0.1)) / quantile(sorted, 0.5)

/**
 * The side with the smaller median.
 * @template {{ run: () => unknown }} T @param {T} a @param {T} b @param {boolean} [batched] @returns {Promise<T>}
 */
export async function faster(a, b, batched) {
  const [ofA, ofB] = [await sample(a.run, batched), await sample(b.run, batched)]
  return quantile(ofA, 0.5) < quantile(ofB, 0.5) ? a : b
}

/** The value at `share` (0..1) of sorted numbers. @param {number[]} sorted @param {number} share */
export const quantile = (sorted, share) =>
  sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0

/** @param {Case} bench @param {Limits} limits */
function bandwidth({ bandwidth = 'copy' }, { copyGBs, readGBs = copyGBs, threadGBs = copyGBs }) {
  return { copy: copyGBs, read: readGBs, thread: threadGBs }[bandwidth]
}

/** @param {Case} bench @param {number} milliseconds @returns {Pick<Row, 'rate' | 'unit'>} */
function rateOf({ tokens, flops, elements, bytes = 0 }, milliseconds) {
  if (tokens) return { rate: (1000 * tokens) / milliseconds, unit: 'token/s' }
  const unit = flops ? 'GFLOP/s' : elements ? 'Gelement/s' : 'GB/s'
  return { rate: (flops ?? elements ?? bytes) / milliseconds / 1e6, unit }
}

/** @param {Case} bench @param {Limits} limits @returns {Promise<Row>} */
export async function measure(bench, limits) {
  await bench.prepare?.()
  await bench.run()
  await bench.check()
  const batched = bench.device === 'cuda' && !bench.prepare // which is for one run
  const before = await bench.limit?.()
  const both =
    bench.peer &&
    (bench.pairs
      ? await samplePairs(bench, bench.peer, bench.pairs)
      : await sampleBoth(bench, bench.peer, batched))
  const perCall = (/** @type {number} */ time) => time / (bench.calls ?? 1)
  const times = (both?.times ?? (await sampleOne(bench, batched))).map(perCall)
  const medianMs = quantile(times, 0.5)
  const p10Ms = quantile(times, 0.1)
  const p90Ms = quantile(times, 0.9)
  const { rate, unit } = rateOf(bench, medianMs)
  const limited = (bench.flops ?? bench.bytes ?? 0) / medianMs / 1e6
  const after = await bench.limit?.()
  const beside = before && after ? (before + after) / 2 : bandwidth(bench, limits)
  const limit = bench.flops ? limits.gemmGFLOPs : beside
  const { name, shape, dtype, sizes, device = 'cpu' } = bench
  const spread = Math.max(spreadOf(times), both ? spreadOf(both.peerTimes) : 0)
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
    percentOfLimit: (await bench.percent?.()) ?? (100 * limited) / limit,
    spread,
    noisy: spread > noisySpread,
    ...(sizes && { sizes }),
  }
  if (bench.peer && both) {
    row.peer = bench.peer.name
    row.peerMs = perCall(median(both.peerTimes))
    row.peerRatio = both.ratio
    const details = await bench.details?.({ ours: medianMs, peer: row.peerMs })
    if (details) row.details = details
  }
  return row
}

/** Milliseconds with as many digits as are worth reading. @param {number} value */
export const ms = value => value.toFixed(value < 0.1 ? 4 : value < 1 ? 3 : 1)

/** A note on a row with noisy times. @param {Row} row */
export const noiseOf = ({ noisy, spread }) => (noisy ? `noisy: spread ${(100 * spread).toFixed(0)} %` : '')

/** One line of text. @param {Row} row @param {string} [goal] and whether it is reached */
export function format(row, goal = '') {
  const columns = [
    row.name.padEnd(20),
    row.shape.padEnd(25),
    row.dtype.padEnd(12),
    row.device.padEnd(6),
    `${ms(row.medianMs)} ms`.padStart(10),
    `${ms(row.p10Ms)}–${ms(row.p90Ms)}`.padStart(15),
    `${row.rate.toFixed(1)} ${row.unit}`.padStart(15),
    `${row.percentOfLimit.toFixed(0)} %`.padStart(6),
    row.peer ? `${row.peerRatio?.toFixed(2)}x ${row.peer}` : '',
    row.peerMs === undefined ? '' : `${ms(row.peerMs)} ms`,
    noiseOf(row),
    goal,
  ]
  const lines = Object.entries(row.details ?? {}).map(
    ([name, detail]) => `  ${name}: ${formatDetail(detail)}`,
  )
  return [columns.join('  ').trimEnd(), ...lines].join('\n')
}

/** @param {Detail} detail */
const formatDetail = ({ unit, ours, peer }) => `${ms(ours)} ${unit}, peer ${ms(peer)} ${unit}`

/** Threads of either side, unless a row has fewer. */
export const threadsOf = () => Number(process.env.DGX_SPARK_THREADS) || os.cpus().length

/** Instruction sets of this machine that rows name. */
export function instructionSets() {
  let flags = ''
  try {
    flags = readFileSync('/proc/cpuinfo', 'utf8').match(/^(?:flags|Features)\s*:.*$/m)?.[0] ?? ''
  } catch {} // another operating system
  const names = { avx2: 'avx2', avx512: 'avx512f', amx: 'amx_tile', neon: 'asimd' }
  return Object.entries(names).flatMap(([name, flag]) => (flags.includes(` ${flag}`) ? [name] : []))
}

/** The machine, for the first line of a report. @param {number} threads */
export function machine(threads) {
  const root = path.resolve(import.meta.dirname, '..')
  const git = spawnSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: root, encoding: 'utf8' })
  const manifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
  const commit = git.status === 0 ? git.stdout.trim() : (manifest.gitHead ?? 'unknown')
  const cpu = os.cpus()[0]?.model.trim() ?? 'unknown CPU'
  const memory = `${Math.round(os.totalmem() / 2 ** 30)} GiB`
  const isa = loadAddon().addon?.cpuIsa() ?? 'no addon'
  return {
    cpu,
    cores: os.cpus().length,
    threads,
    arch: os.arch(),
    isa,
    memory,
    node: process.version,
    commit,
  }
}
