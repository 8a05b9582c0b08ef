// frame.ts: the live view of the monitor as lines that fit a terminal.
import type { GpuSample } from '../../hardware/gpu-sample.js'
import type { MachineSample } from '../../hardware/machine-monitor.js'
import { formatBytes, type Printed, styled } from '../output.js'
import type { TerminalSize } from '../progress.js'
import type { History } from './history.js'
import {
  gpuQuantities,
  machineQuantities,
  otherClocks,
  processRows,
  type Quantity,
  throttling,
} from './quantities.js'
import { bar, sparkline } from './sparkline.js'

type Line = readonly Printed[]

/** Columns of labels and texts, in windows of so many columns and in narrower ones, and of the narrowest drawing. */
const widths = { label: 14, text: 25, narrowText: 20, narrow: 70, drawing: 8 }

/** The lines of the view, no longer and no more than a terminal has room for. */
export function frame(history: History, size: TerminalSize): Line[] {
  const sample = history.newest
  if (!sample) return [['measuring …']]
  const head = [heading(history, sample), ...machineLines(history, sample, size.columns)]
  const notes = noteLines(sample, size.columns)
  const fullGpus = sample.gpus.flatMap(gpu => gpuLines(history, gpu, size.columns))
  const isFull = head.length + fullGpus.length + notes.length <= size.rows
  const gpus = isFull ? fullGpus : sample.gpus.map(gpu => shortGpuLine(history, gpu, size.columns))
  const left = size.rows - head.length - gpus.length - notes.length
  const lines = [...head, ...gpus, ...notes, ...processLines(sample, left)]
  const cut =
    lines.length > size.rows ? [...lines.slice(0, size.rows - 1), ['… the window is too low']] : lines
  return cut.map(line => clipped(line, size.columns))
}

/** The first `columns` characters of a line. */
function clipped(line: Line, columns: number): Line {
  let left = columns
  return line.map(part => {
    const kept = part.slice(0, left)
    left -= kept.length
    return kept
  })
}

function heading({ interval }: History, { time }: MachineSample): Line {
  const clock = new Date(time).toTimeString().slice(0, 8)
  return [
    styled('bold', 'dgx-spark monitor'),
    `  ${clock}  `,
    styled('dim', `every ${interval} s, Ctrl-C ends`),
  ]
}

function machineLines(history: History, sample: MachineSample, columns: number): Line[] {
  const { cores } = sample.cpu
  const rows = machineQuantities
    .filter(({ label, value }) => label !== 'temperature' || value(sample) !== null)
    .map(quantity =>
      quantityLine(quantity, sample, columns, drawn =>
        draw(history, drawn, history.ofMachine(quantity.value), quantity.max(sample)),
      ),
    )
  const each = cores.map(busy => bar(busy, 100)).join('')
  const known = cores.length > 1 && cores.length <= columns - widths.label - 2
  const limit =
    sample.memory.source === 'cgroup' ? '  memory within the limit of this container or service' : ''
  return [
    [
      styled('bold', 'CPU'),
      `  ${cores.length === 1 ? '1 core' : `${cores.length || 'unknown'} cores`}`,
      styled('dim', limit),
    ],
    ...rows,
    ...(known ? [[`  ${'each core'.padEnd(widths.label)}`, styled('cyan', each)]] : []),
  ]
}

function gpuLines(history: History, sample: GpuSample, columns: number): Line[] {
  const { index, name } = sample.gpu
  const rows = gpuQuantities.map(quantity =>
    quantityLine(quantity, sample, columns, drawn =>
      draw(history, drawn, history.ofGpu(index, quantity.value), quantity.max(sample)),
    ),
  )
  const isHeldBack = sample.throttleReasons.some(reason => reason !== 'idle')
  return [
    [styled('bold', `GPU ${index}`), `  ${name}`],
    ...rows,
    [`  ${'other clocks'.padEnd(widths.label)}`, otherClocks(sample)],
    [
      `  ${'throttled'.padEnd(widths.label)}`,
      isHeldBack ? styled('yellow', throttling(sample)) : throttling(sample),
    ],
  ]
}

/** A GPU in one line, where there are too many for {@link gpuLines}. */
function shortGpuLine(history: History, sample: GpuSample, columns: number): Line {
  const texts = gpuQuantities.map(({ text }) => text(sample)).join('  ')
  const line = `  ${texts}  `
  const busy = gpuQuantities[0]!
  const left = columns - 8 - line.length
  const drawing =
    left < widths.drawing
      ? ''
      : draw(history, Math.min(left, 30), history.ofGpu(sample.gpu.index, busy.value), 100)
  return [styled('bold', `GPU ${sample.gpu.index}`.padEnd(6)), line, styled('cyan', drawing)]
}

function quantityLine<Sample>(
  { label, value, text, high }: Quantity<Sample>,
  sample: Sample,
  columns: number,
  drawing: (columns: number) => string,
): Line {
  const [number, limit] = [value(sample), high?.(sample) ?? null]
  const textColumns = columns < widths.narrow ? widths.narrowText : widths.text
  const shown = text(sample).padEnd(textColumns)
  const isHigh = number !== null && limit !== null && number >= limit
  const left = shown.length > textColumns ? 0 : columns - 2 - widths.label - textColumns
  return [
    `  ${label.padEnd(widths.label)}`,
    isHigh ? styled('red', shown) : shown,
    left >= widths.drawing && number !== null ? styled('cyan', drawing(left)) : '',
  ]
}

const draw = (
  history: History,
  columns: number,
  values: readonly (number | null)[],
  max: number | null,
): string => sparkline(values, { columns, perColumn: history.perColumn(columns), first: history.first, max })

/** What is wrong, with what to do. */
function noteLines({ gpus, gpuProblems }: MachineSample, columns: number): Line[] {
  const several = gpus.length > 1
  const warnings = gpus.flatMap(({ gpu, warnings }) =>
    warnings.map(text => (several ? `GPU ${gpu.index}: ${text}` : text)),
  )
  return [
    ...gpuProblems.flatMap(text => wrapped(text, columns)).map(text => [text]),
    ...warnings.flatMap(text => wrapped(`! ${text}`, columns)).map(text => [styled('yellow', text)]),
  ]
}

/** Words of a text in lines of at most `columns` characters, unless a word is longer. */
function wrapped(text: string, columns: number): string[] {
  const lines = ['']
  for (const word of text.split(' ')) {
    const line = lines.at(-1)!
    if (line === '') lines[lines.length - 1] = word
    else if (line.length + 1 + word.length <= columns) lines[lines.length - 1] = `${line} ${word}`
    else lines.push(word)
  }
  return lines
}

/** The processes on the GPUs, in at most `rows` lines. */
function processLines(sample: MachineSample, rows: number): Line[] {
  const all = processRows(sample)
  if (all.length === 0 || rows < 2) return []
  const fitting = all.length + 1 <= rows ? all.length : rows - 2
  const lines = all
    .slice(0, fitting)
    .map(({ pid, gpu, kind, bytes, name }) => [
      `${String(pid).padStart(9)}  ${String(gpu).padStart(3)}  ${kind.padEnd(8)}  ${formatBytes(bytes).padStart(10)}  ${name ?? ''}`,
    ])
  const more = all.length - fitting
  return [
    [styled('bold', `${'process'.padStart(9)}  GPU  ${'kind'.padEnd(8)}  ${'memory'.padStart(10)}  name`)],
    ...lines,
    ...(more > 0 ? [[`and ${more} more`]] : []),
  ]
}
