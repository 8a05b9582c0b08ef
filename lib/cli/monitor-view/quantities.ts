// quantities.ts: what the monitor shows of a machine and of a GPU, as numbers and as text.
import type { GpuProcess, GpuSample } from '../../hardware/gpu-sample.js'
import type { MachineSample } from '../../hardware/machine-monitor.js'
import { formatBytes } from '../output.js'

/** A row of a view. */
export interface Quantity<Sample> {
  readonly label: string
  /** What is drawn over time; null where the driver or the system does not tell. */
  value(sample: Sample): number | null
  /** Upper end of the scale of its drawing; null: the highest value that is drawn. */
  max(sample: Sample): number | null
  text(sample: Sample): string
  /** From which value on it is marked as high; absent: never. */
  high?(sample: Sample): number | null
}

/** What stands for a value that a driver does not give. */
const unsupported = 'not supported'

const rounded = (value: number | null, unit: string): string =>
  value === null ? unsupported : `${value.toFixed(0)} ${unit}`

const share = (used: number | null, total: number | null): string =>
  used === null
    ? unsupported
    : total === null
      ? formatBytes(used)
      : `${formatBytes(used)} of ${formatBytes(total)}`

const used = ({ memory }: MachineSample): number => memory.total - memory.available

/** CPU and memory of a machine. */
export const machineQuantities: readonly Quantity<MachineSample>[] = [
  {
    label: 'busy',
    value: ({ cpu }) => cpu.utilization,
    max: () => 100,
    text: ({ cpu }) => (cpu.utilization === null ? 'unknown' : rounded(cpu.utilization, '%')),
  },
  {
    label: 'memory',
    value: used,
    max: ({ memory }) => memory.total,
    text: sample => share(used(sample), sample.memory.total),
    high: ({ memory }) => 0.9 * memory.total,
  },
  {
    label: 'temperature',
    value: ({ cpu }) => cpu.temperature,
    max: () => 110,
    text: ({ cpu }) => (cpu.temperature === null ? 'unknown' : rounded(cpu.temperature, '°C')),
    high: () => 95,
  },
]

/** One GPU. */
export const gpuQuantities: readonly Quantity<GpuSample>[] = [
  {
    label: 'busy',
    value: ({ utilization }) => utilization,
    max: () => 100,
    text: ({ utilization }) => rounded(utilization, '%'),
  },
  {
    label: 'memory',
    value: ({ memory }) => memory.used,
    max: ({ memory }) => memory.total,
    text: ({ memory }) =>
      memory.isShared
        ? `${memory.used === null ? 'unknown' : formatBytes(memory.used)} of the machine's`
        : share(memory.used, memory.total),
    high: ({ memory }) => (memory.isShared || memory.total === null ? null : 0.95 * memory.total),
  },
  {
    label: 'temperature',
    value: ({ temperature }) => temperature,
    max: () => 110,
    text: ({ temperature }) => rounded(temperature, '°C'),
    high: () => 85,
  },
  {
    label: 'power',
    value: ({ power }) => power,
    max: ({ powerLimit }) => powerLimit,
    text: ({ power, powerLimit }) =>
      powerLimit === null || power === null
        ? rounded(power, 'W')
        : `${power.toFixed(0)} of ${rounded(powerLimit, 'W')}`,
  },
  {
    label: 'SM clock',
    value: ({ clocks }) => clocks.sm,
    max: ({ clocks }) => clocks.maxSm,
    text: ({ clocks: { sm, maxSm } }) =>
      sm === null || maxSm === null ? rounded(sm, 'MHz') : `${sm} of ${maxSm} MHz`,
  },
]

/** The clocks that are no {@link Quantity}. */
export const otherClocks = ({ clocks }: GpuSample): string =>
  (['graphics', 'memory', 'video'] as const)
    .map(name => `${name} ${clocks[name] === null ? unsupported : `${clocks[name]} MHz`}`)
    .join(', ')

/** Reasons for reduced clocks. */
export const throttling = ({ throttleReasons }: GpuSample): string => throttleReasons.join(', ') || 'no'

/** A process that uses a GPU, and which. */
export interface ProcessRow extends GpuProcess {
  readonly gpu: number
}

/** The processes on all GPUs, those with most memory first. */
export const processRows = ({ gpus }: MachineSample): ProcessRow[] =>
  gpus
    .flatMap(({ gpu, processes }) => (processes ?? []).map(process => ({ ...process, gpu: gpu.index })))
    .sort((a, b) => (b.bytes ?? 0) - (a.bytes ?? 0))
