import { type Command, InvalidArgumentError } from 'commander'
import type { GpuSample } from '../hardware/gpu-sample.js'
import { GpuMonitor } from '../hardware/monitor.js'
import type { MonitorSummary, Spread } from '../hardware/monitor-statistics.js'
import { withExamples } from './command.js'
import { formatBytes, print, printError, printJson, printPairs } from './output.js'

interface MonitorCommandOptions {
  gpu?: string
  interval: number
  duration?: number
  json?: boolean
}

/** `dgx-spark monitor`: samples a GPU until Ctrl-C or --duration, then the summary. */
export function addMonitor(command: Command): void {
  command
    .option('--gpu <index|uuid>', 'which GPU; by default the best one')
    .option('--interval <seconds>', 'time between samples', seconds, 1)
    .option('--duration <seconds>', 'stop after this time; by default at Ctrl-C', seconds)
    .option('--json', 'print one JSON object per line, the summary last')
    .action(watch)
  withExamples(
    command,
    'dgx-spark monitor',
    'dgx-spark monitor --gpu 0 --interval 0.5 --duration 60',
    'dgx-spark monitor --json',
  )
}

function seconds(text: string): number {
  const value = Number(text)
  if (!(value >= 0.01 && value <= 86_400)) throw new InvalidArgumentError('Expected 0.01 to 86400.')
  return value
}

async function watch(options: MonitorCommandOptions): Promise<void> {
  const stop = new AbortController()
  const interrupt = (): void => {
    process.exitCode = 130
    stop.abort()
  }
  process.once('SIGINT', interrupt)
  const timer = options.duration && setTimeout(() => stop.abort(), options.duration * 1000)
  const monitor = new GpuMonitor({
    intervalMs: Math.round(options.interval * 1000),
    signal: stop.signal,
    ...(options.gpu !== undefined && { gpu: /^\d+$/.test(options.gpu) ? Number(options.gpu) : options.gpu }),
  })
  const warned = new Set<string>()
  try {
    for await (const sample of monitor) {
      if (options.json) printJson(sample, 0)
      else print(line(sample))
      for (const warning of sample.warnings.filter(text => !warned.has(text))) {
        warned.add(warning)
        printError(warning)
      }
    }
  } finally {
    process.off('SIGINT', interrupt)
    clearTimeout(timer)
  }
  if (options.json) printJson({ summary: monitor.summary() }, 0)
  else summarize(monitor.summary())
}

const number = (value: number | null, unit: string, width: number): string =>
  `${value === null ? '-' : value.toFixed(0)} ${unit}`.padStart(width)

function line({ time, utilization, memory, temperature, power, clocks, throttleReasons }: GpuSample): string {
  return [
    new Date(time).toISOString().slice(11, 19),
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

function summarize(summary: MonitorSummary): void {
  print()
  print(`${summary.samples} samples in ${summary.seconds.toFixed(1)} s`)
  const spread = (value: Spread | null, format: (value: number) => string): string =>
    value ? `mean ${format(value.mean)}, peak ${format(value.peak)}` : 'unknown'
  const unit = (name: string) => (value: number) => `${value.toFixed(0)} ${name}`
  printPairs([
    ['utilization', spread(summary.utilization, unit('%'))],
    ['memory', spread(summary.memoryUsed, formatBytes)],
    ['temperature', spread(summary.temperature, unit('°C'))],
    ['power', spread(summary.power, unit('W'))],
    ['SM clock', spread(summary.smClock, unit('MHz'))],
  ])
}
