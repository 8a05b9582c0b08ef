// mpi-processes.ts: Open MPI's own programs, each in a folder and a process group of its own.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'

/** Milliseconds that a program may take to end once it was asked to. */
const graceMs = 3000
/** Characters of what a program wrote last that an error shows. */
const shownCharacters = 2000

/** How a program of Open MPI is started. */
export interface MpiProgram {
  readonly command: string
  readonly args: readonly string[]
  readonly env: Record<string, string | undefined>
  readonly cwd?: string
  /** Files below this folder end with the process. */
  readonly folder: string
}

/** A new folder for one program: two that share one fail when they make files at the same time. */
export const makeFolder = (): Promise<string> => mkdtemp(path.join(tmpdir(), 'dgx-spark-mpi-'))

/** How a program ended. */
export interface MpiEnd {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** What it wrote last to stderr. */
  readonly words: string
  /** Whether it was asked to. */
  readonly stopped: boolean
}

/** A program that runs. */
export class MpiProcess {
  /** Resolves when it has ended. */
  readonly ended: Promise<MpiEnd>
  readonly #child: ChildProcess
  #words = ''
  #isStopped = false

  private constructor(child: ChildProcess, folder: string, onLine: ((line: string) => void) | undefined) {
    this.#child = child
    child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.#words = (this.#words + text).slice(-shownCharacters)
    })
    let line = ''
    child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      const lines = (line + text).split('\n')
      line = lines.pop()!.slice(-shownCharacters)
      if (onLine) lines.forEach(onLine)
    })
    this.ended = once(child, 'close').then(async ([code, signal]) => {
      await rm(folder, { recursive: true, force: true })
      return { code, signal, words: this.#words.trim(), stopped: this.#isStopped }
    })
  }

  /** @throws SparkError ERR_UNSUPPORTED where the program is not there */
  static async start(program: MpiProgram, onLine?: (line: string) => void): Promise<MpiProcess> {
    const { command, args, env, cwd, folder } = program
    const child = spawn(command, args, {
      ...(cwd !== undefined && { cwd }),
      env: { ...env, TMPDIR: folder },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    })
    try {
      await once(child, 'spawn')
    } catch (cause) {
      await rm(folder, { recursive: true, force: true })
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `${command} cannot be started: kind 'mpi' needs Open MPI 4 or 5: apt-get install openmpi-bin`,
        { cause },
      )
    }
    return new MpiProcess(child, folder, onLine)
  }

  /** Ends it and what it started, unless it has ended. */
  async stop(): Promise<MpiEnd> {
    this.#isStopped ||= this.#signal('SIGTERM')
    const kill = setTimeout(() => this.#signal('SIGKILL'), graceMs)
    const end = await this.ended
    clearTimeout(kill)
    return end
  }

  /** Whether it had not ended. */
  #signal(signal: NodeJS.Signals): boolean {
    const { pid, exitCode, signalCode } = this.#child
    if (pid === undefined || exitCode !== null || signalCode !== null) return false
    return process.kill(-pid, signal)
  }
}
