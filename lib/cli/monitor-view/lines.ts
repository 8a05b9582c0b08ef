// lines.ts: samples and summaries of the monitor as plain lines.
import type { GpuSample } from '../../hardware/gpu-sample.js'
import type { MachineSample, MachineSummary } from '../../hardware/machine-monitor.js'
import type { Spread } from '../../hardware/monitor-statistics.js'
import { formatBytes, print, printPairs } from '../output.js'
import { gpuQuantities, machineQuantities, otherClocks, processRows, throttling } from './quantities.js'

const number = (value: number | null, unit: string, width: number): string =>
  `${value === null ? '-' : value.toFixed(0)} ${unit}`.padStart(width)

const clockTime = (time: number): string => new Date(time).toISOString().slice(11, 19)

/** One line for each GPU, or for the CPU where there is none. */
export function sampleLines(sample: MachineSample): string[] {
  const { gpus, time, cpu, memory } = sample
  const several = gpus.length > 1
  if (gpus.length > 0)
    return gpus.map(each => gpuLine(each, several ? [`GPU ${each.gpu.index}`.padEnd(6)] : []))
  const used = memory.total - memory.available
  return [
    [
      clockTime(time),
      'CPU',
      number(cpu.utilization, '%', 6),
      `${formatBytes(used)} of ${formatBytes(memory.total)}`.padStart(22),
      number(cpu.temperature, '°C', 7),
    ].join('  '),
  ]
}

function gpuLine(sample: GpuSample, name: readonly string[]): string {
  const { time, utilization, memory, temperature, power, clocks, throttleReasons } = sample
  return [
    clockTime(time),
    ...name,
    number(utilization, '%', 6),
    `${formatBytes(memory.used)} of ${formatBytes(memory.total)}`.padStart(22),
    number(temperature, '°C', 7),
    number(power, 'W', 6),
    number(clocks.sm, 'MHz', 9),
    throttleReasons.join(', '),
  ]
    .join('  ')
    .trimEnd()
}

/** Everything that one sample says. */
export function printStatus(sample: MachineSample): void {
  const cores = sample.cpu.cores.length
  print(cores > 0 ? `CPU, ${cores} ${cores === 1 ? 'core' : 'cores'}` : 'CPU')
  printPairs(machineQuantities.map(({ label, text }) => [label, text(sample)] as const))
  for (const gpu of sample.gpus) {
    print(`GPU ${gpu.gpu.index}: ${gpu.gpu.name}`)
    printPairs([
      ...gpuQuantities.map(({ label, text }) => [label, text(gpu)] as const),
      ['other clocks', otherClocks(gpu)],
      ['throttled', throttling(gpu)],
    ])
  }
  for (const problem of sample.gpuProblems) print(problem)
  const processes = processRows(sample)
  if (processes.length > 0) print('Processes on GPUs')
  printPairs(
    processes.map(({ pid, gpu, kind, bytes, name }) => [
      String(pid),
      `GPU ${gpu}  ${kind.padEnd(8)}  ${formatBytes(bytes).padStart(10)}  ${name ?? ''}`.trimEnd(),
    ]),
  )
}

const spread = (value: Spread | null, format: (value: number) => string): string =>
  value ? `mean ${format(value.mean)}, peak ${format(value.peak)}` : 'unknown'

const inUnit = (unit: string) => (value: number) => `${value.toFixed(0)} ${unit}`

/** Peak and mean of each GPU, or of the CPU where there is none. */
export function printSummary({ samples, seconds, gpus, ...machine }: MachineSummary): void {
  print()
  print(`${samples} ${samples === 1 ? 'sample' : 'samples'} in ${seconds.toFixed(1)} s`)
  if (gpus.length === 0) {
    printPairs([
      ['CPU utilization', spread(machine.cpuUtilization, inUnit('%'))],
      ['memory', spread(machine.memoryUsed, formatBytes)],
      ['CPU temperature', spread(machine.cpuTemperature, inUnit('°C'))],
    ])
  }
  for (const { gpu, summary } of gpus) {
    if (gpus.length > 1) print(`GPU ${gpu.index}: ${gpu.name}`)
    printPairs([
      ['utilization', spread(summary.utilization, inUnit('%'))],
      ['memory', spread(summary.memoryUsed, formatBytes)],
      ['temperature', spread(summary.temperature, inUnit('°C'))],
      ['power', spread(summary.power, inUnit('W'))],
      ['SM clock', spread(summary.smClock, inUnit('MHz'))],
    ])
  }
}
