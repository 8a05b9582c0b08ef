// plan-cache.ts: the plans that stay bound to sizes, bounded by the bytes that they hold.
import type { Plan } from '../plan/plan.js'
import { SharedArena } from '../plan/shared-arena.js'

/** Bytes of plans that a model keeps. */
const maxBytes = 2 ** 28

/** Bytes of a kernel call that is bound to its operands, beside these. */
const stepBytes = 2 ** 10

/** Plans of one model, by when they were used. */
export class PlanCache {
  /** Runs of one model wait for each other, so that its plans share an arena. */
  readonly arena = new SharedArena()
  /** The least recently used first. */
  readonly #entries = new Map<Plan, { readonly bytes: number; readonly forget: () => void }>()
  #bytes = 0

  /** Keeps a plan, and disposes of those that were not used for the longest time; `forget` is called before that. */
  add(plan: Plan, forget: () => void): void {
    const bytes = plan.bytes + stepBytes * plan.stats.steps
    this.#entries.set(plan, { bytes, forget })
    this.#bytes += bytes
    for (const [oldest, entry] of this.#entries) {
      if (this.#bytes <= maxBytes || oldest === plan) break
      entry.forget()
      this.delete(oldest)
    }
  }

  /** Notes that a plan is used. */
  use(plan: Plan): void {
    const entry = this.#entries.get(plan)
    if (!entry) return
    this.#entries.delete(plan)
    this.#entries.set(plan, entry)
  }

  /** Disposes of a plan. */
  delete(plan: Plan): void {
    const entry = this.#entries.get(plan)
    if (!entry) return
    this.#entries.delete(plan)
    this.#bytes -= entry.bytes
    plan.dispose()
  }
}
