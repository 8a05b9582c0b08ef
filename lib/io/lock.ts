// lock.ts: locks that let one process at a time write to a folder or file, and that survive killed processes.
//
// Every process that wants a lock makes a file of its own beside the others, and then looks at them: it has the lock if
// there is none of a process that is alive. No name is used twice, so whoever finds the file of a dead process may remove
// it at any time; nothing is ever taken over, and two that find it together cannot both win.
import { randomBytes } from 'node:crypto'
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeSync,
} from 'node:fs'
import { hostname } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { SparkError } from '../core/errors.js'
import { ioError, makeFolder } from './atomic-write.js'

/** Who made a file. */
interface Owner {
  readonly pid: number
  readonly host: string
  /** Which process ids `pid` is one of: containers have their own. */
  readonly processIds: string
  /** When the process began, in ticks since the system did: another process may have got its id. */
  readonly began: string
  readonly time: string
}

/** Another process's file. */
interface Rival {
  readonly name: string
  readonly owner: Owner
}

/** Signs of life of a lock, for other hosts and containers, which cannot see its process. */
const [beatEvery, deadAfter] = [30_000, 300_000]

/** How long the older one of two that begin together waits for the younger one to give way. */
const tieLimit = 2000

/** A lock that is held until it is disposed or the process ends. */
export class Lock implements Disposable {
  readonly #file: string
  // Not a FileHandle: those are closed when they are collected. A worker closes its descriptors when it is terminated.
  readonly #descriptor: number
  readonly #beat: NodeJS.Timeout
  #held = true

  private constructor(file: string, descriptor: number) {
    this.#file = file
    this.#descriptor = descriptor
    held.add(this)
    this.#beat = setInterval(() => this.#live(), beatEvery).unref()
  }

  static #create(folder: string, prefix: string): Lock {
    const id = `${Date.now().toString(36).padStart(10, '0')}-${randomBytes(4).toString('hex')}`
    const [file, unfinished] = ['lock', 'tmp'].map(end => path.join(folder, `${prefix}.${id}.${end}`)) as [
      string,
      string,
    ]
    const descriptor = openSync(unfinished, 'wx')
    try {
      writeSync(descriptor, JSON.stringify(thisProcess()))
      renameSync(unfinished, file)
    } catch (error) {
      closeSync(descriptor)
      rmSync(unfinished, { force: true })
      throw error
    }
    return new Lock(file, descriptor)
  }

  /**
   * Takes the lock `prefix` of a folder.
   * @param what - what is locked, for the error
   * @throws SparkError ERR_BUSY naming the process that has it, ERR_IO
   */
  static async take(folder: string, prefix: string, what: string): Promise<Lock> {
    let lock: Lock
    try {
      lock = Lock.#create(folder, prefix)
    } catch (error) {
      throw ioError('write', what, error)
    }
    try {
      const giveUp = Date.now() + tieLimit
      for (;;) {
        const rivals = lock.#rivals(folder, prefix)
        const [first] = rivals
        if (!first) return lock
        const isYounger = first.name < path.basename(lock.#file)
        if (isYounger || Date.now() > giveUp) throw busy(what, path.join(folder, first.name), first.owner)
        await sleep(5)
      }
    } catch (error) {
      lock.release()
      throw error instanceof SparkError ? error : ioError('read', what, error)
    }
  }

  /** Gives the lock back. */
  release(): void {
    if (!this.#held) return
    this.#held = false
    held.delete(this)
    clearInterval(this.#beat)
    closeSync(this.#descriptor)
    removeVoid(this.#file)
  }

  /** As {@link release}. */
  [Symbol.dispose](): void {
    this.release()
  }

  #live(): void {
    const now = new Date()
    try {
      utimesSync(this.#file, now, now)
    } catch {
      // Somebody has removed the file or the folder: nothing is left to show life by.
    }
  }

  /** The others that are alive, oldest first. The files of dead ones are removed. */
  #rivals(folder: string, prefix: string): Rival[] {
    const now = statSync(this.#file).mtimeMs
    const rivals: Rival[] = []
    const names = readdirSync(folder).filter(name => name.startsWith(`${prefix}.`) && name.endsWith('.lock'))
    for (const name of names.sort()) {
      const file = path.join(folder, name)
      if (file === this.#file) continue
      const found = read(file)
      if (!found) continue
      if (isAlive(file, found.owner, now - found.changed)) rivals.push({ name, owner: found.owner })
      else removeVoid(file)
    }
    return rivals
  }
}

/**
 * Locks a folder that several files are written to, and makes it if there is none.
 * @throws SparkError ERR_BUSY, ERR_IO
 */
export async function lockFolder(folder: string): Promise<Lock> {
  await makeFolder(folder)
  return Lock.take(path.resolve(folder), '.dgx-spark', folder)
}

/**
 * Locks a file that is written bit by bit, or with others beside it.
 * @throws SparkError ERR_BUSY, ERR_IO
 */
export async function lockFile(file: string): Promise<Lock> {
  const target = path.resolve(file)
  return Lock.take(path.dirname(target), `.${path.basename(target)}`, file)
}

/**
 * Takes a lock as soon as no other process has it.
 * @param limitMs - how long it is waited for
 * @throws SparkError ERR_BUSY when another process has it all the time, and what `take` throws
 */
export async function whenFree(take: () => Promise<Lock>, limitMs = 10_000): Promise<Lock> {
  const giveUp = Date.now() + limitMs
  for (;;) {
    try {
      return await take()
    } catch (error) {
      const isBusy = error instanceof SparkError && error.code === 'ERR_BUSY'
      if (!isBusy || Date.now() > giveUp) throw error
    }
    await sleep(5 + Math.random() * 40)
  }
}

const held = new Set<Lock>()
process.on('exit', () => {
  for (const lock of held) lock.release()
})

function busy(what: string, file: string, { pid, host, processIds, began, time }: Owner): SparkError {
  const own = thisProcess()
  const isHere = host === own.host && processIds === own.processIds
  const isThis = isHere && pid === own.pid && began === own.began
  const who = `process ${pid}${isThis ? ', this one,' : isHere ? '' : ` of ${host}`}`
  const remedy = isHere ? 'wait for its end, or give another path' : `if it is gone, remove ${file}`
  return new SparkError('ERR_BUSY', `${what} is in use by ${who} since ${time}: ${remedy}`)
}

function thisProcess(): Owner {
  const time = new Date().toISOString()
  return { pid: process.pid, host: hostname(), processIds: processIds(), began: startOf('self'), time }
}

/** Only Linux has PID namespaces. */
function processIds(): string {
  try {
    return readlinkSync('/proc/self/ns/pid')
  } catch {
    return ''
  }
}

/** When a process began; empty where the system does not say. */
function startOf(pid: number | 'self'): string {
  try {
    // Field 22; the name of the program, field 2, is in parentheses and may hold anything.
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19] ?? ''
  } catch {
    return ''
  }
}

/** Removes a lock that counts for nothing; where that is not allowed, it stays and still counts for nothing. */
function removeVoid(file: string): void {
  try {
    rmSync(file, { force: true })
  } catch {}
}

/** undefined of a file that is gone meanwhile. */
function read(file: string): { owner: Owner; changed: number } | undefined {
  const found = statSync(file, { throwIfNoEntry: false })
  if (!found) return undefined
  let text = ''
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
  }
  return { owner: parse(text), changed: found.mtimeMs }
}

/** A damaged or unreadable file has no known owner on this host: the lock is alive as long as the file is being touched. */
function parse(text: string): Owner {
  let found: Partial<Owner> | null = null
  try {
    found = JSON.parse(text)
  } catch {}
  const { pid, host, processIds, began, time } = found ?? {}
  const texts = [host, processIds, began, time].every(value => typeof value === 'string')
  if (texts && Number.isSafeInteger(pid) && pid! > 0) return found as Owner
  return { pid: 0, host: 'an unknown host', processIds: '', began: '', time: 'some time' }
}

function isAlive(file: string, owner: Owner, age: number): boolean {
  const own = thisProcess()
  if (owner.host !== own.host || owner.processIds !== own.processIds) return age < deadAfter
  if (!exists(owner.pid)) return false
  const began = startOf(owner.pid)
  if (began !== '' && owner.began !== '' && began !== owner.began) return false
  return owner.pid !== own.pid || isOpenHere(file)
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}

/** Whether this process has a file open; a worker that was terminated has left its lock and closed it. */
function isOpenHere(file: string): boolean {
  const folder = '/proc/self/fd'
  let descriptors: string[]
  try {
    descriptors = readdirSync(folder)
  } catch {
    return true
  }
  const wanted = statSync(file, { bigint: true, throwIfNoEntry: false })
  return descriptors.some(name => {
    const found = statSync(path.join(folder, name), { bigint: true, throwIfNoEntry: false })
    return wanted !== undefined && found?.dev === wanted.dev && found.ino === wanted.ino
  })
}
