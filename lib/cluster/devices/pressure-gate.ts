// pressure-gate.ts: carries the decisions of a pressure policy out, between steps of the work so that none is lost.
import { type PressureDecision, type PressureLevel, pressureLevels } from './pressure.js'

/** What can be done about pressure. Each is called once when its level is reached, and once when it is left. */
export interface PressureActions {
  /** Computes in a lower precision, or again in the one before. */
  lowerPrecision?(on: boolean): Promise<void> | void
  /** Moves layers to another device or to host memory, or back; `model.trim()` belongs here. */
  offload?(on: boolean): Promise<void> | void
}

/**
 * A gate that work passes before each step. While it is closed the work waits, with all its state where it is; a step that has
 * begun ends first.
 * @example
 * for (const token of tokens) {
 *   await gate.pass(signal)
 *   await decoder.run(token)
 * }
 */
export class PressureGate {
  readonly #actions: PressureActions[]
  #level = 0
  #opening: { readonly promise: Promise<void>; readonly open: () => void } | undefined
  /** Settles when the last change has been carried out. */
  #last: Promise<void> = Promise.resolve()

  constructor(actions: PressureActions = {}) {
    this.#actions = [actions]
  }

  /** Adds what can be done about pressure; it is called from the next change on. @returns a function that takes it away */
  add(actions: PressureActions): () => void {
    this.#actions.push(actions)
    return () => {
      const at = this.#actions.indexOf(actions)
      if (at >= 0) this.#actions.splice(at, 1)
    }
  }

  /** Whether work waits. */
  get isClosed(): boolean {
    return this.#opening !== undefined
  }

  /** What is done now. */
  get level(): PressureLevel {
    return pressureLevels[this.#level]!
  }

  /**
   * Waits while the gate is closed.
   * @throws the reason of the signal when it is aborted
   */
  async pass(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    while (this.#opening) {
      const { promise } = this.#opening
      if (!signal) await promise
      else await aborted(promise, signal)
    }
  }

  /**
   * Goes to the level of a decision. A pause takes effect before the call returns; actions follow one another.
   * @throws what an action throws; the level counts as reached nonetheless
   */
  apply({ level }: Pick<PressureDecision, 'level'>): Promise<void> {
    const from = this.#level
    this.#level = pressureLevels.indexOf(level)
    if (level === 'paused' && !this.#opening) {
      let open = (): void => undefined
      const promise = new Promise<void>(resolve => {
        open = resolve
      })
      this.#opening = { promise, open }
    }
    const to = this.#level
    const done = this.#last.then(() => this.#carryOut(from, to))
    this.#last = done.catch(() => undefined)
    return done
  }

  async #carryOut(from: number, to: number): Promise<void> {
    const crosses = (level: number): boolean => from >= level !== to >= level
    try {
      for (const actions of [...this.#actions]) {
        if (to > from && crosses(1)) await actions.lowerPrecision?.(true)
        if (crosses(2)) await actions.offload?.(to > from)
        if (to < from && crosses(1)) await actions.lowerPrecision?.(false)
      }
    } finally {
      if (this.level !== 'paused') {
        this.#opening?.open()
        this.#opening = undefined
      }
    }
  }
}

async function aborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  let stop = (): void => undefined
  const ended = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
  })
  try {
    await Promise.race([promise, ended])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
