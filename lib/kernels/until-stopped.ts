// until-stopped.ts: repeated runs of a native plan that a signal ends.
import type { Addon, PlanHandle } from '../native.js'

/** Waits for repeated runs of a plan, which a signal ends after the run in progress. */
export async function untilStopped(
  addon: Addon,
  plan: PlanHandle,
  signal: AbortSignal | undefined,
  run: () => Promise<void>,
): Promise<void> {
  signal?.throwIfAborted()
  const stop = (): void => addon.planStop(plan)
  signal?.addEventListener('abort', stop, { once: true })
  try {
    await run()
  } finally {
    signal?.removeEventListener('abort', stop)
  }
  signal?.throwIfAborted()
}
