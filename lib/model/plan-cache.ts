// plan-cache.ts: the plans that stay bound to sizes, bounded by the bytes that they hold.
import type { Plan, PlanTemplate } from '../plan/plan.js'
import { SharedArena } from '../plan/shared-arena.js'

/** Bytes of plans that a model keeps. */
const maxBytes = 2 ** 28

/** Bytes of a kernel call that is bound to its operands, beside these. */
const stepBytes = 2 ** 10

/** Plans of one template from which on the next one takes over the memory of the least recently used. */
const fewPlans = 64

/** What is known of a plan. */
interface Entry {
  readonly template: PlanTemplate
  readonly bytes: number
  readonly forget: () => void
}

/** Plans of one model, by when they were used. */
export class PlanCache {
  /** Runs of one model wait for each other, so that its plans share an arena. */
  readonly arena = new SharedArena()
  /** The least recently used first. */
  readonly #entries = new Map<Plan, Entry>()
  /** The plans of each template, in the same order. */
  readonly #plans = new WeakMap<PlanTemplate, Set<Plan>>()
  readonly #ran = new Set<Plan>()
  #bytes = 0

  /** The plans that have run since {@link PlanCache.startRun}. */
  get ran(): readonly Plan[] {
    return [...this.#ran]
  }

  /** Notes that a run of the model starts. */
  startRun(): void {
    this.#ran.clear()
  }

  /** Notes that a plan runs. */
  noteRun(plan: Plan): void {
    this.#ran.add(plan)
  }

  /**
   * Keeps a plan, and disposes of those that were not used for the longest time or keep memory that others have outgrown;
   * `forget` is called before that.
   */
  add(plan: Plan, template: PlanTemplate, forget: () => void): void {
    const bytes = plan.bytes + stepBytes * plan.stats.steps
    this.#entries.set(plan, { template, bytes, forget })
    this.#plansOf(template).add(plan)
    this.#bytes += bytes
    for (const [other, entry] of this.#entries) {
      if (other === plan || (this.#bytes <= maxBytes && !other.arrays.isOutgrown)) continue
      entry.forget()
      this.delete(other)
    }
  }

  /** Disposes of all plans, and lets the arena go. */
  trim(): void {
    for (const [plan, { forget }] of this.#entries) {
      forget()
      this.delete(plan)
    }
    this.#ran.clear()
    this.arena.trim()
  }

  /** Notes that a plan is used. */
  use(plan: Plan): void {
    const entry = this.#entries.get(plan)
    if (!entry) return
    this.#entries.delete(plan)
    this.#entries.set(plan, entry)
    const plans = this.#plansOf(entry.template)
    plans.delete(plan)
    plans.add(plan)
  }

  /** Takes the least recently used plan of a template out, to be bound to other sizes; undefined while there are few. */
  take(template: PlanTemplate): Plan | undefined {
    const plans = this.#plansOf(template)
    const [oldest] = plans
    if (!oldest || plans.size < fewPlans) return undefined
    this.#entries.get(oldest)!.forget()
    this.#remove(oldest)
    return oldest
  }

  /** Disposes of a plan. */
  delete(plan: Plan): void {
    if (this.#remove(plan)) plan.dispose()
  }

  #remove(plan: Plan): boolean {
    const entry = this.#entries.get(plan)
    if (!entry) return false
    this.#entries.delete(plan)
    this.#ran.delete(plan)
    this.#plansOf(entry.template).delete(plan)
    this.#bytes -= entry.bytes
    return true
  }

  #plansOf(template: PlanTemplate): Set<Plan> {
    const known = this.#plans.get(template)
    if (known) return known
    const plans = new Set<Plan>()
    this.#plans.set(template, plans)
    return plans
  }
}
