// log.ts: training log with one line of JSON per step.
import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { expectText } from '../core/checks.js'
import { ioError, makeFolder, writeFileAtomic } from '../io/atomic-write.js'
import { type Lock, lockFile } from '../io/lock.js'
import { readText } from '../io/read-file.js'
import type { TrainingEvent } from './options.js'

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
   * @throws SparkError ERR_IO, ERR_BUSY while another training writes it
   */
  async open(step: number): Promise<void> {
    if (this.#file === undefined) return
    try {
      await makeFolder(path.dirname(path.resolve(this.#file)))
      this.#lock = await lockFile(this.#file)
      const kept = step === 0 ? [] : (await readEvents(this.#file)).filter(event => event.step <= step)
      const text = kept.map(event => `${JSON.stringify(event)}\n`).join('')
      await writeFileAtomic(path.resolve(this.#file), [Buffer.from(text)])
      this.#handle = await open(this.#file, 'a')
    } catch (error) {
      throw ioError('write', this.#file, error)
    }
  }

  /**
   * Adds a line.
   * @throws SparkError ERR_IO
   */
  async write(event: TrainingEvent): Promise<void> {
    try {
      await this.#handle?.appendFile(`${JSON.stringify(event)}\n`)
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

/**
 * The events of a log. Invalid lines, such as one cut off by a crash, are skipped. Empty if the file does not exist.
 * @throws SparkError ERR_IO
 */
export async function readEvents(file: string): Promise<TrainingEvent[]> {
  expectText('file', file)
  const text = await readText(file).catch(error => {
    if (error.cause?.code === 'ENOENT') return ''
    throw error
  })
  return text.split('\n').flatMap(line => {
    try {
      const event: Partial<TrainingEvent> | null = JSON.parse(line)
      return Number.isSafeInteger(event?.step) ? [event as TrainingEvent] : []
    } catch {
      return []
    }
  })
}
