// log.ts: training log with one line of JSON per step and per validation.
import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { expectText } from '../core/checks.js'
import { ioError, makeFolder, writeFileAtomic } from '../io/atomic-write.js'
import { type Lock, lockFile } from '../io/lock.js'
import { readText } from '../io/read-file.js'
import type { TrainingEvent } from './options.js'
import type { Validation } from './validation.js'

/** Writes events to a file; without one it does nothing. */
export class TrainingLog {
  readonly #file: string | undefined
  #handle: FileHandle | undefined
  #lock: Lock | undefined

  constructor(file: string | undefined) {
    this.#file = file
  }

  /**
   * Opens the file and removes incomplete lines and those of steps after `step`, which a resumed training repeats.
   * @param history - validations before the resumption
   * @throws SparkError ERR_IO, ERR_BUSY while another training writes it
   */
  async open(step: number, history: readonly Validation[] = []): Promise<void> {
    if (this.#file === undefined) return
    try {
      await makeFolder(path.dirname(path.resolve(this.#file)))
      this.#lock = await lockFile(this.#file)
      const kept = step === 0 ? [] : (await readEvents(this.#file)).filter(event => event.step <= step)
      const text = [...kept, ...history.map(validationLine)].map(line => `${JSON.stringify(line)}\n`)
      await writeFileAtomic(path.resolve(this.#file), [Buffer.from(text.join(''))])
      this.#handle = await open(this.#file, 'a')
    } catch (error) {
      throw ioError('write', this.#file, error)
    }
  }

  /**
   * Adds the line of a step.
   * @throws SparkError ERR_IO
   */
  async write(event: TrainingEvent): Promise<void> {
    await this.#append(event)
  }

  /**
   * Adds the line of a validation.
   * @throws SparkError ERR_IO
   */
  async writeValidation(validation: Validation): Promise<void> {
    await this.#append(validationLine(validation))
  }

  async #append(line: object): Promise<void> {
    try {
      await this.#handle?.appendFile(`${JSON.stringify(line)}\n`)
    } catch (error) {
      throw ioError('write', this.#file!, error)
    }
  }

  /**
   * Flushes the lines to the disk.
   * @throws SparkError ERR_IO
   */
  async sync(): Promise<void> {
    try {
      await this.#handle?.datasync()
    } catch (error) {
      throw ioError('write', this.#file!, error)
    }
  }

  /** Closes the file. */
  async close(): Promise<void> {
    try {
      await this.#handle?.close()
    } finally {
      this.#handle = undefined
      this.#lock?.release()
    }
  }
}

/** How a log tells validations from steps. */
const validationLine = (validation: Validation) => ({ validation })

/**
 * The events of a log. Invalid lines, such as one cut off by a crash, are skipped. Empty if the file does not exist.
 * @throws SparkError ERR_IO
 */
export async function readEvents(file: string): Promise<TrainingEvent[]> {
  return (await readLines(file)).filter((line): line is TrainingEvent =>
    Number.isSafeInteger((line as Partial<TrainingEvent>).step),
  )
}

/**
 * The validations of a log, as {@link readEvents} reads its steps.
 * @throws SparkError ERR_IO
 */
export async function readValidations(file: string): Promise<Validation[]> {
  return (await readLines(file)).flatMap(line => {
    const { validation } = line as { validation?: Partial<Validation> }
    return Number.isSafeInteger(validation?.step) ? [validation as Validation] : []
  })
}

/** The lines that are objects. */
async function readLines(file: string): Promise<object[]> {
  expectText('file', file)
  const text = await readText(file).catch(error => {
    if (error.cause?.code === 'ENOENT') return ''
    throw error
  })
  return text.split('\n').flatMap(line => {
    try {
      const parsed: unknown = JSON.parse(line)
      return typeof parsed === 'object' && parsed !== null ? [parsed] : []
    } catch {
      return []
    }
  })
}
