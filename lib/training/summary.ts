// summary.ts: what a training did.
import type { Validation } from './validation.js'

/** Why a training ended: all epochs are done, validations stopped improving, or its signal was aborted. */
export type StopReason = 'epochs' | 'patience' | 'signal'

/** What {@link Trainer.fit} did. */
export interface TrainingSummary {
  /** Why it ended. */
  readonly reason: StopReason
  /** Completed steps, including those before a resumption. */
  readonly steps: number
  /** Completed epochs, including those before a resumption. */
  readonly epochs: number
  /** Samples that were read since the start or resumption; each epoch counts. */
  readonly samples: number
  /** Time since the start or resumption, in seconds, including validation. */
  readonly seconds: number
  /** Loss of the last step; NaN without a step. */
  readonly finalLoss: number
  /** Mean loss of all samples since the start or resumption; NaN without a step. */
  readonly meanLoss: number
  /** The smallest loss of a step since the start or resumption; NaN without a step. */
  readonly bestLoss: number
  /** All validations, including those before a resumption. */
  readonly validation: readonly Validation[]
  /** The step of the best validation, whose parameters the adapter has unless `keepBest` is false. */
  readonly bestStep?: number
  /** Path of the newest checkpoint, if any. */
  readonly lastCheckpoint?: string
  /** Path of the checkpoint of the best validation, if any. */
  readonly bestCheckpoint?: string
}

/** Sums over the steps of a training since its start or resumption. */
export class Tally {
  readonly #began = performance.now()
  #samples = 0
  #lossSum = 0
  #finalLoss = Number.NaN
  #bestLoss = Number.POSITIVE_INFINITY

  /** Adds a step. */
  add(loss: number, samples: number): void {
    this.#samples += samples
    this.#lossSum += loss * samples
    this.#finalLoss = loss
    this.#bestLoss = Math.min(this.#bestLoss, loss)
  }

  /** The sums so far. */
  get sums() {
    const samples = this.#samples
    return {
      samples,
      seconds: (performance.now() - this.#began) / 1000,
      finalLoss: this.#finalLoss,
      meanLoss: this.#lossSum / samples,
      bestLoss: samples > 0 ? this.#bestLoss : Number.NaN,
    }
  }
}
