import { type Command, InvalidArgumentError } from 'commander'
import { MachineMonitor, type MachineSample, type MachineSummary } from '../hardware/machine-monitor.js'
import { warningKind } from '../hardware/throttle-detector.js'
import { withExamples } from './command.js'
import { frame } from './monitor-view/frame.js'
import { History } from './monitor-view/history.js'
import { printStatus, printSummary, sampleLines } from './monitor-view/lines.js'
import { print, printError, printJson } from './output.js'
import { liveView } from './progress.js'

interface MonitorCommandOptions {
  gpu?: string
  interval: number
  duration?: number
  json?: boolean
  status?: boolean
  plain?: boolean
}

/** `dgx-spark monitor`: samples CPU and GPUs until Ctrl-C or --duration, then the summary. */
export function addMonitor(command: Command): void {
  command
    .option('--gpu <index|uuid>', 'one GPU; by default all of them')
    .option('--interval <seconds>', 'time between samples', seconds, 1)
    .option('--duration <seconds>', 'stop after this time; by default at Ctrl-C', seconds)
    .option('--status', 'print one sample and end')
    .option('--plain', 'print a line for each sample on a terminal, too')
    .option('--json', 'print one JSON object per line and GPU, the summary last')
    .action(watch)
  withExamples(
    command,
    'dgx-spark monitor',
    'dgx-spark monitor --gpu 0 --interval 0.5 --duration 60',
    'dgx-spark monitor --status',
    'dgx-spark monitor --json',
  )
}

function seconds(text: string): number {
  const value = Number(text)
  if (!(value >= 0.01 && value <= 86_400)) throw new InvalidArgumentError('Expected 0.01 to 86400.')
  return value
}

/** Signals that end the monitor as --duration does, and their numbers. */
const signals = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const

async function watch(options: MonitorCommandOptions): Promise<void> {
  const stop = new AbortController()
  const interrupt = (name: NodeJS.Signals): void => {
    process.exitCode = 128 + signals[name as keyof typeof signals]
    stop.abort()
  }
  for (const name of Object.keys(signals)) process.once(name, interrupt)
  const timer = options.duration && setTimeout(() => stop.abort(), options.duration * 1000)
  const monitor = new MachineMonitor({
    intervalMs: Math.round(options.interval * 1000),
    signal: stop.signal,
    ...(options.gpu !== undefined && { gpu: /^\d+$/.test(options.gpu) ? Number(options.gpu) : options.gpu }),
  })
  const output = outputOf(options)
  let last: MachineSample | undefined
  try {
    for await (const sample of monitor) {
      last = sample
      output.sample(sample)
      if (options.status) break
    }
  } finally {
    for (const name of Object.keys(signals)) process.off(name, interrupt)
    clearTimeout(timer)
    output.close?.()
  }
  const summary = monitor.summary()
  output.summary(summary)
  if (last && last.gpus.length < summary.gpus.length) process.exitCode ||= 1
}

/** Where samples go. */
interface Output {
  sample(sample: MachineSample): void
  /** Call after the last sample, also after an error. */
  close?(): void
  summary(summary: MachineSummary): void
}

function outputOf({ json, status, plain, interval }: MonitorCommandOptions): Output {
  if (status) {
    const sample = json ? (sample: MachineSample) => printJson(sample) : printStatusAndWarnings
    return { sample, summary() {} }
  }
  if (json) return jsonOutput
  const isLive = process.stdout.isTTY && process.env.TERM !== 'dumb' && !plain
  return isLive ? liveOutput(interval) : lineOutput()
}

const jsonOutput: Output = {
  sample({ time, cpu, memory, gpus, gpuProblems }) {
    const machine = { cpu, machineMemory: memory, gpuProblems }
    if (gpus.length === 0) printJson({ time, gpu: null, ...machine }, 0)
    for (const gpu of gpus) printJson({ ...gpu, ...machine }, 0)
  },
  summary({ gpus, ...machine }) {
    if (gpus.length === 0) printJson({ gpu: null, summary: machine }, 0)
    for (const { gpu, summary } of gpus) printJson({ gpu, summary, machine }, 0)
  },
}

/** Warnings of all GPUs by what tells one kind on one GPU from others. */
function warningsOf({ gpus }: MachineSample): Map<string, string> {
  const name = (index: number): string => (gpus.length > 1 ? `GPU ${index}: ` : '')
  const all = gpus.flatMap(({ gpu: { index }, warnings }) =>
    warnings.map(text => [`${index} ${warningKind(text)}`, name(index) + text] as const),
  )
  return new Map(all)
}

function printStatusAndWarnings(sample: MachineSample): void {
  printStatus(sample)
  for (const warning of warningsOf(sample).values()) printError(warning)
}

/** Lines, with each kind of warning once. */
function lineOutput(): Output {
  const told = new Set<string>()
  return {
    sample(sample) {
      for (const line of sampleLines(sample)) print(line)
      const problems = sample.gpuProblems.map(text => [text, text] as const)
      for (const [key, text] of [...problems, ...warningsOf(sample)]) {
        if (told.has(key)) continue
        told.add(key)
        printError(text)
      }
    },
    summary: printSummary,
  }
}

/** A view that is drawn anew for each sample. */
function liveOutput(interval: number): Output {
  const history = new History(interval)
  const view = liveView(draw)
  function draw(): void {
    view.draw(frame(history, view.size()))
  }
  draw()
  return {
    sample(sample) {
      history.add(sample)
      draw()
    },
    close: view.end,
    summary(summary) {
      printSummary(summary)
      for (const text of summary.gpus.flatMap(({ summary: { warnings } }) => warnings)) printError(text)
    },
  }
}
