// progress.ts: training progress on stderr.
import { SingleBar } from 'cli-progress'
import { printable } from '../core/printable.js'
import type { TrainingEvent } from '../training/options.js'
import type { Validation } from '../training/validation.js'
import { formatBytes } from './output.js'

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
