// loss-scaler.ts: the factor of the loss in fp16, which follows what the gradients bear.

/** What a {@link LossScaler} remembers. */
export interface LossScale {
  /** Factor of the loss. */
  readonly scale: number
  /** Updates in a row since the factor changed. */
  readonly good: number
  /** Steps without an update. */
  readonly skipped: number
}

/** The numbers of PyTorch's GradScaler. */
const [first, growth, backoff, interval] = [2 ** 16, 2, 0.5, 2000]

/** Below this nothing is left of f16 to gain: its smallest number. */
const least = 2 ** -24

/**
 * Dynamic loss scaling (Micikevicius et al. 2018): a step with an overflow is left out and halves the factor; 2000 updates
 * in a row double it.
 */
export class LossScaler {
  readonly #active: boolean
  #state: LossScale

  /** @param active - whether the loss is scaled; else the factor is 1, and nothing is skipped */
  constructor(active: boolean) {
    this.#active = active
    this.#state = { scale: active ? first : 1, good: 0, skipped: 0 }
  }

  /** What it remembers. */
  get state(): LossScale {
    return this.#state
  }

  /** Whether a training could not go on without what it remembers. */
  get matters(): boolean {
    return this.#active || this.#state.skipped > 0
  }

  /** Whether there is no smaller factor to try. */
  get exhausted(): boolean {
    return this.#state.scale < least
  }

  /** Goes on from there. */
  restore(state: LossScale): void {
    this.#state = state
  }

  /** Says whether the gradients of a step were finite. */
  observe(finite: boolean): void {
    const { scale, good, skipped } = this.#state
    if (!finite) this.#state = { scale: scale * backoff, good: 0, skipped: skipped + 1 }
    else if (good + 1 < interval) this.#state = { scale, good: good + 1, skipped }
    else
      this.#state = {
        scale: Number.isFinite(Math.fround(scale * growth)) ? scale * growth : scale,
        good: 0,
        skipped,
      }
  }
}
