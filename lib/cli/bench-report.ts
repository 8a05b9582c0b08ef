// bench-report.ts: results of `dgx-spark bench` as tables, for the terminal and for pages.
import { type BenchmarkComparison, differenceText } from '../benchmark/comparison.js'
import type {
  BenchmarkMeasurement,
  BenchmarkRecord,
  ResourceUse,
  TogetherResult,
} from '../benchmark/result.js'
import type { Latency } from '../benchmark/statistics.js'
import type { Spread } from '../hardware/monitor-statistics.js'
import type { PageTable } from './benchmark-page/page.js'
import { formatBytes } from './output.js'

const unknown = '–'

/** Milliseconds with digits that make sense. */
const ms = (time: number | null): string =>
  time === null ? unknown : time.toFixed(time < 10 ? 3 : time < 100 ? 2 : 1)

const latencyHead = ['mean', 'std', 'p50', 'p90', 'p99', 'min', 'max']
const latencyCells = ({ mean, std, p50, p90, p99, min, max }: Latency): string[] =>
  [mean, std, p50, p90, p99, min, max].map(ms)

const rate = (perSecond: number): string => perSecond.toFixed(perSecond < 100 ? 1 : 0)

/** Latency and throughput. */
export const latencyTable = (measurements: readonly BenchmarkMeasurement[]): PageTable => ({
  title: 'Latency',
  head: ['latency, ms', ...latencyHead, 'inferences/s', 'runs', 'device'],
  rows: measurements.map(each => [
    each.name,
    ...latencyCells(each),
    rate(each.throughput),
    String(each.runs),
    ms(each.deviceMs),
  ]),
})

/** Latencies of models that run together, and of all of them. */
export const togetherTable = ({ models, combined }: TogetherResult): PageTable => ({
  title: 'Latency',
  head: ['latency, ms', ...latencyHead],
  rows: [...models, { name: 'all models', ...combined }].map(each => [each.name, ...latencyCells(each)]),
})

/** Joules with a unit that fits. */
function energy(joules: number | null): string {
  if (joules === null) return unknown
  return joules < 0.1 ? `${(1000 * joules).toPrecision(3)} mJ` : `${joules.toPrecision(3)} J`
}

const mean = (spread: Spread | null | undefined, unit: string): string =>
  spread ? `${spread.mean.toFixed(0)} ${unit}` : unknown

/** What was used, by name. The columns of the GPU are there where one was sampled. */
export function useTable(uses: readonly { readonly name: string; readonly use: ResourceUse }[]): PageTable {
  const hasGpu = uses.some(({ use }) => use.gpu !== null)
  const gpuHead = ['GPU', 'GPU memory', 'power', 'SM clock', 'throttled', 'GPU energy']
  return {
    title: 'Use of the machine',
    head: ['use', 'busy cores', 'process', 'grown by', 'CPU energy', ...(hasGpu ? gpuHead : [])],
    rows: uses.map(({ name, use: { cpu, memory, gpu, energy: joules } }) => {
      const reasons = Object.keys(gpu?.throttleReasons ?? {}).filter(reason => reason !== 'idle')
      const gpuCells = [
        mean(gpu?.utilization, '%'),
        gpu?.memoryUsed ? formatBytes(gpu.memoryUsed.peak) : unknown,
        mean(gpu?.power, 'W'),
        mean(gpu?.smClock, 'MHz'),
        reasons.join(', ') || 'no',
        energy(joules.gpu),
      ]
      return [
        name,
        cpu ? cpu.cores.toFixed(2) : unknown,
        memory.rss === null ? unknown : formatBytes(memory.rss),
        memory.growth === null ? unknown : formatBytes(Math.max(0, memory.growth)),
        energy(joules.cpu),
        ...(hasGpu ? gpuCells : []),
      ]
    }),
  }
}

const share = (value: number): string => `${(100 * value).toFixed(2)} %`

/** Measurements against each other. The accuracy is there where labels are. */
export function comparisonTable(comparisons: readonly BenchmarkComparison[]): PageTable {
  const hasLabels = comparisons.some(({ accuracy }) => accuracy !== null)
  return {
    title: 'Comparison',
    head: [
      'compared',
      'with',
      'latency, difference of means',
      'inferences/s',
      ...(hasLabels ? ['accuracy'] : []),
    ],
    rows: comparisons.map(({ names, latency, throughput, accuracy }) => [
      names.b,
      names.a,
      differenceText(latency),
      `${rate(throughput.a)} -> ${rate(throughput.b)}`,
      ...(accuracy ? [`${share(accuracy.a)} -> ${share(accuracy.b)}`] : []),
    ]),
  }
}

const digits = (error: number): string => (error === 0 ? '0' : error.toExponential(2))

/** How far outputs are from each other; no rows where none are compared. */
export const outputTable = (comparisons: readonly BenchmarkComparison[]): PageTable => ({
  title: 'Outputs',
  head: ['outputs', 'output', 'cosine', 'largest error', 'mean error'],
  rows: comparisons.flatMap(({ names, outputs }) =>
    (outputs ?? []).map(({ name, cosine, maxError, meanError }) => [
      `${names.b} against ${names.a}`,
      name,
      cosine.toFixed(7),
      digits(maxError),
      digits(meanError),
    ]),
  ),
})

/** Where and how it was measured. */
export function facts(
  record: BenchmarkRecord,
  own: readonly (readonly [string, string])[],
): [string, string][] {
  const { machine, date, seed, warmup } = record
  return [
    ...own.map(([name, value]): [string, string] => [name, value]),
    ['processor', `${machine.cpu ?? 'unknown'}, ${machine.cores} cores, ${formatBytes(machine.memory)}`],
    ['GPU', machine.gpu === null ? 'none' : `${machine.gpu}, driver ${machine.driver ?? 'unknown'}`],
    ['system', `${machine.platform}, Node.js ${machine.node}, dgx-spark ${machine.version}`],
    ['date', date],
    ['inputs', `seed ${seed}; ${warmup} runs to warm up`],
  ]
}

/** Why energy is missing, each reason once. */
export const energyNotes = (uses: readonly ResourceUse[]): string[] =>
  [...new Set(uses.flatMap(({ energy }) => energy.why))].map(why => `no energy: ${why}`)
