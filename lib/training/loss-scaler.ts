// loss-scaler.ts: dynamic loss scaling for training in fp16.

/** The state of a {@link LossScaler}. */
export interface LossScale {
  /** Factor of the loss. */
  readonly scale: number
  /** Consecutive updates since the factor changed. */
  readonly good: number
  /** Skipped steps in total. */
  readonly skipped: number
}

/** The defaults of PyTorch's GradScaler. */
const initialScale = 2 ** 16
const growth = 2
const backoff = 0.5
const growthInterval = 2000

/** The smallest subnormal of f16: smaller factors do not help. */
const minScale = 2 ** -24

/**
 * Dynamic loss scaling (Micikevicius et al. 2018): an overflow skips the step and halves the factor; 2000 consecutive
 * updates double it.
 */
export class LossScaler {
  readonly #active: boolean
  #state: LossScale

  /** @param active - whether to scale the loss; otherwise the factor is 1 and no step is skipped */
  constructor(active: boolean) {
    this.#active = active
    this.#state = { scale: active ? initialScale : 1, good: 0, skipped: 0 }
  }

  get state(): LossScale {
    return this.#state
  }

  /** Whether a checkpoint must contain the state. */
  get matters(): boolean {
    return this.#active || this.#state.skipped > 0
  }

  /** Whether the factor has reached its minimum. */
  get exhausted(): boolean {
    return this.#state.scale < minScale
  }

  /** Continues from a saved state. */
  restore(state: LossScale): void {
    this.#state = state
  }

  /** Updates the factor after a step. @param finite - whether its gradients were finite */
  observe(finite: boolean): void {
    const { scale, good, skipped } = this.#state
    if (!finite) this.#state = { scale: scale * backoff, good: 0, skipped: skipped + 1 }
    else if (good + 1 < growthInterval) this.#state = { scale, good: good + 1, skipped }
    else
      this.#state = {
        scale: Number.isFinite(Math.fround(scale * growth)) ? scale * growth : scale,
        good: 0,
        skipped,
      }
  }
}
