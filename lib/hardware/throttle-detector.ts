// throttle-detector.ts: causes that hold the clocks of a GPU back for long.
import type { GpuSample } from './gpu-sample.js'
import type { ThrottleReason } from './throttling.js'

/** Clocks count as held back for long when a cause is in so many samples in a row that lie so far apart. */
const sustained = { samples: 5, ms: 3000 }

/** Below this share of the highest SM clock a power cap costs much; a GPU that works hard always reaches its cap. */
const cappedShare = 0.75

interface Cause {
  readonly what: string
  readonly reasons: readonly ThrottleReason[]
  readonly advice: string
}

const causes: readonly Cause[] = [
  {
    what: 'the GPU is too hot',
    reasons: ['software thermal slowdown', 'hardware thermal slowdown'],
    advice:
      'Keep its vents free and away from other warm machines, look at its fans, or limit its power; ' +
      '`nvidia-smi -q -d TEMPERATURE` shows its limits',
  },
  {
    what: 'the power supply asks the GPU to slow down (power brake)',
    reasons: ['hardware power brake'],
    advice:
      'Use the original power supply, plugged into the wall; in a server look at its power supplies ' +
      'and what else draws from them',
  },
  {
    what: 'the power limit holds the GPU far below its highest clock',
    reasons: ['software power cap'],
    advice:
      '`nvidia-smi -q -d POWER` shows the limit, `sudo nvidia-smi -pl <watts>` changes it where it can be changed ' +
      '(not on a DGX Spark); lower precisions need less power for the same work',
  },
]

type ThrottleSample = Pick<GpuSample, 'time' | 'clocks' | 'throttleReasons'>

/** Finds causes that hold the clocks of one GPU back over several samples: heat, the power brake, the power cap. */
export class ThrottleDetector {
  readonly #runs = new Map<Cause, { readonly since: number; readonly samples: number }>()

  /**
   * Takes the next sample.
   * @returns a warning for each cause that has lasted for at least 5 samples and 3 s, with what to do
   */
  add(sample: ThrottleSample): string[] {
    return causes.flatMap(cause => {
      if (!holdsBack(cause, sample)) {
        this.#runs.delete(cause)
        return []
      }
      const before = this.#runs.get(cause)
      const run = { since: before?.since ?? sample.time, samples: (before?.samples ?? 0) + 1 }
      this.#runs.set(cause, run)
      const ms = sample.time - run.since
      if (run.samples < sustained.samples || ms < sustained.ms) return []
      return [`${cause.what}, for ${(ms / 1000).toFixed(0)} s now. ${cause.advice}`]
    })
  }
}

function holdsBack({ reasons }: Cause, { clocks, throttleReasons }: ThrottleSample): boolean {
  if (!reasons.some(reason => throttleReasons.includes(reason))) return false
  if (!reasons.includes('software power cap')) return true
  return clocks.sm !== null && clocks.maxSm !== null && clocks.sm < cappedShare * clocks.maxSm
}

/** A warning without its numbers, which change from sample to sample: what tells one kind from another. */
export const warningKind = (warning: string): string => warning.replace(/\d+/g, '')
