// download-run.ts: downloads file after file, counts what became of them, and ends at Ctrl-C.
import path from 'node:path'
import { fetchRemote, isNotFound, type RemoteFile } from '../../data/route/remote.js'
import { interruptible } from '../command.js'
import { formatBytes, print, printError, printJson, printPairs } from '../output.js'
import { fileProgress } from '../progress.js'

/** Failures without a success between them, other than of missing files, after which nothing more is tried. */
const maxFailures = 3

/** What became of a file; `missing`: the server does not have it. */
export type Outcome = { readonly file: string } | 'missing' | 'failed'

/** The downloads of one call of the command. */
export class DownloadRun {
  readonly #folder: string
  readonly #abort = new AbortController()
  readonly #failed: { readonly file: string; readonly reason: string }[] = []
  #downloaded = 0
  #bytes = 0
  #skipped = 0
  #failures = 0

  constructor(folder: string) {
    this.#folder = folder
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /**
   * Downloads a file and counts it.
   * @returns where it is, or why it is not there
   * @throws the reason of `signal`, and the last reason after several failures
   */
  async fetch(candidates: readonly RemoteFile[], { sha256 }: { sha256?: string } = {}): Promise<Outcome> {
    const name = candidates[0]!.name
    const progress = fileProgress(name)
    try {
      const { file, bytes, isNew } = await fetchRemote(candidates, this.#folder, {
        signal: this.signal,
        onProgress: at => progress.update(at),
        ...(sha256 !== undefined && { sha256 }),
      })
      this.#failures = 0
      if (isNew) {
        this.#downloaded++
        this.#bytes += bytes
        progress.done(bytes)
      } else this.#skipped++
      return { file }
    } catch (error) {
      this.signal.throwIfAborted()
      this.#failed.push({ file: name, reason: (error as Error).message })
      if (isNotFound(error)) return 'missing'
      if (++this.#failures === maxFailures) throw error
      return 'failed'
    } finally {
      progress.end()
    }
  }

  /** Runs `work` and says what became of it: exit code 1 when files failed, 130 after Ctrl-C. */
  async run(work: () => Promise<void>, isJson: boolean): Promise<void> {
    let stopped = ''
    const isInterrupted = await interruptible(async () => {
      try {
        await work()
      } catch (error) {
        if (this.signal.aborted || this.#failures !== maxFailures) throw error
        stopped = `stopped after ${maxFailures} failures without a success between them`
      }
    }, this.#abort)
    this.#report(isJson)
    if (stopped !== '') printError(stopped)
    if (this.#failed.length > 0) process.exitCode = 1
    if (!isInterrupted) return
    printError('interrupted: what has arrived stays; the same command goes on where it was')
    process.exitCode = 130
  }

  #report(isJson: boolean): void {
    const [downloaded, bytes, skipped, failed] = [this.#downloaded, this.#bytes, this.#skipped, this.#failed]
    const folder = path.resolve(this.#folder)
    if (isJson) {
      printJson({ folder, downloaded, bytes, skipped, failed })
      return
    }
    printPairs([
      ['downloaded', `${downloaded} files, ${formatBytes(bytes)}`],
      ['there before', `${skipped} files`],
      ['failed', `${failed.length} files`],
      ['folder', folder],
    ])
    for (const { file, reason } of failed) print(`failed: ${file}: ${reason}`)
  }

  /** Takes back the last failures: files that nobody said were there. */
  forget(count: number): void {
    this.#failed.length -= count
  }
}
