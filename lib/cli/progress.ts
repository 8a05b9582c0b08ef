// progress.ts: progress of trainings and downloads on stderr, and views on stdout that are drawn again and again.
import { SingleBar } from 'cli-progress'
import { printable } from '../core/printable.js'
import type { DownloadProgress } from '../hub/download.js'
import type { DistillationProgress } from '../openpilot/distillation/options.js'
import type { TrainingEvent } from '../training/options.js'
import type { Validation } from '../training/validation.js'
import { formatBytes, type Printed, shown } from './output.js'

/** Shows the steps of one training. */
export interface TrainingProgress {
  /** A step was made. */
  step(event: TrainingEvent): void
  /** The validation data were evaluated. */
  validation(result: Validation): void
  /** Call after the last event. */
  end(): void
}

/** A bar on a terminal; elsewhere a line for each tenth of the training. */
export function trainingProgress(name = ''): TrainingProgress {
  const title = printable(name)
  if (!process.stderr.isTTY) {
    let told = 0
    return {
      step(event) {
        const tenth = Math.floor((10 * event.step) / (event.totalSteps ?? 1000))
        if (tenth === told) return
        told = tenth
        process.stderr.write(`${title && `${title}: `}${line(event)}\n`)
      },
      validation(result) {
        process.stderr.write(`${title && `${title}: `}${validationLine(result)}\n`)
      },
      end() {},
    }
  }
  const bar = new SingleBar({
    format: `${title && `${title}  `}{bar} {percentage} %  {text}  {eta} s left`,
    barsize: 24,
    hideCursor: true,
  })
  let [started, validated] = [false, '']
  return {
    step(event) {
      const text = `${line(event)}${validated && `  ${validated}`}`
      if (!started) bar.start(event.totalSteps ?? event.step, event.step, { text })
      started = true
      bar.update(event.step, { text })
    },
    validation(result) {
      validated = validationLine(result)
    },
    end: () => bar.stop(),
  }
}

const line = ({ step, epoch, loss, samplesPerSecond, memory }: TrainingEvent): string =>
  `epoch ${epoch}  step ${step}  loss ${loss.toPrecision(4)}  ${samplesPerSecond.toFixed(0)} samples/s  ${formatBytes(memory.process)}`

const validationLine = ({ epoch, loss, metrics, best }: Validation): string => {
  const measured = Object.entries({ loss, ...metrics }).map(
    ([name, value]) => `${name} ${value.toPrecision(4)}`,
  )
  return `validation after epoch ${epoch}: ${measured.join('  ')}${best ? '  (best)' : ''}`
}

/** Shows the download of one file. */
export interface FileProgress {
  update(progress: DownloadProgress): void
  /** Call once it is there. */
  done(bytes: number): void
  /** Call when it failed, or after `done`. */
  end(): void
}

/** A bar on a terminal; elsewhere a line for each file. */
export function fileProgress(label: string): FileProgress {
  const name = printable(label)
  const done = (bytes: number): void => {
    process.stderr.write(`${name}  ${formatBytes(bytes)}\n`)
  }
  if (!process.stderr.isTTY) return { update() {}, done, end() {} }
  const bar = new SingleBar({
    format: '{name}  {bar} {percentage} %  {text}',
    barsize: 24,
    hideCursor: true,
    clearOnComplete: true,
  })
  let isStarted = false
  return {
    update({ bytes, total }) {
      const text = total === null ? formatBytes(bytes) : `${formatBytes(bytes)} of ${formatBytes(total)}`
      if (!isStarted) bar.start(total ?? Number.POSITIVE_INFINITY, bytes, { name, text })
      isStarted = true
      bar.update(bytes, { name, text })
    },
    done(bytes) {
      if (isStarted) bar.stop()
      isStarted = false
      done(bytes)
    },
    end() {
      if (isStarted) bar.stop()
    },
  }
}

/** Shows how many of many are done. */
export interface CountProgress {
  update(progress: { readonly done: number; readonly total: number }): void
  /** Call after the last update. */
  end(): void
}

/** A bar on a terminal; nothing elsewhere. `unit` is what is counted. */
export function countProgress(label: string, total: number, unit: string): CountProgress {
  if (!process.stderr.isTTY) return { update() {}, end() {} }
  const bar = new SingleBar({
    format: `${printable(label)}  {bar} {value} of {total} ${unit}`,
    barsize: 24,
    hideCursor: true,
    clearOnComplete: true,
  })
  bar.start(total, 0)
  return { update: progress => bar.update(progress.done), end: () => bar.stop() }
}

/** A line for each tenth of the rows of a segment. */
export function segmentProgress(name: string): (progress: DistillationProgress) => void {
  let told = ''
  return ({ segment, rows, of }) => {
    const text = `${name}: ${printable(segment)}  ${Math.floor((10 * rows) / Math.max(1, of)) * 10} %`
    if (text !== told) process.stderr.write(`${text}\n`)
    told = text
  }
}

/** Characters that a terminal has room for. */
export interface TerminalSize {
  readonly columns: number
  readonly rows: number
}

/** A view that fills the terminal of stdout. */
export interface LiveView {
  /** Shows these lines instead of those before; each must fit {@link LiveView.size}. */
  draw(lines: readonly (readonly Printed[])[]): void
  size(): TerminalSize
  /** Gives the terminal back as it was. Also done when the process ends. */
  end(): void
}

/** The alternate screen, without cursor and line wrap; and back. */
const [enter, leave] = ['\x1b[?1049h\x1b[?25l\x1b[?7l', '\x1b[?7h\x1b[?25h\x1b[?1049l']

/** Lines from the upper left corner on. Terminals that know mode 2026 show them at once. */
const redrawn = (lines: readonly string[]): string =>
  `\x1b[?2026h\x1b[H${lines.map(text => `${text}\x1b[K`).join('\r\n')}\x1b[J\x1b[?2026l`

/**
 * Opens a view on stdout, which must be a terminal.
 * @param onChange - draws again: the window has another size, or the process goes on after Ctrl-Z
 */
export function liveView(onChange: () => void): LiveView {
  const { stdout } = process
  const isPosix = process.platform !== 'win32'
  let isShown = true
  const suspend = (): void => {
    isShown = false
    stdout.write(leave)
    process.kill(process.pid, 'SIGSTOP')
  }
  const resume = (): void => {
    isShown = true
    stdout.write(enter)
    onChange()
  }
  let isOpen = true
  const end = (): void => {
    if (!isOpen) return
    isOpen = false
    stdout.off('resize', onChange)
    process.off('exit', end)
    if (isPosix) process.off('SIGTSTP', suspend).off('SIGCONT', resume)
    stdout.write(leave)
  }
  stdout.on('resize', onChange)
  process.once('exit', end)
  if (isPosix) process.on('SIGTSTP', suspend).on('SIGCONT', resume)
  stdout.write(enter)
  return {
    draw(lines) {
      // A terminal that is behind, such as one over a slow connection, gets fewer frames instead of late ones.
      if (isOpen && isShown && !stdout.writableNeedDrain)
        stdout.write(redrawn(lines.map(line => line.map(shown).join(''))))
    },
    // In a full line \x1b[K would erase the last character.
    size: () => ({ columns: Math.max(1, (stdout.columns || 80) - 1), rows: Math.max(1, stdout.rows || 24) }),
    end,
  }
}
