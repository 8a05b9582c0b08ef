// prepare.ts: preparation of the steps of a program on a backend, of a long program in parts.
import type { Pacer } from '../core/paced.js'
import type { BoundStep, Kernels, PreparedSteps } from '../kernels/kernels.js'
import type { PlanMemory } from '../native.js'

/** Steps that a backend takes at once: it checks their operands on the JavaScript thread. */
const partLength = 1024

/** {@link Kernels.prepare} with pauses. A GPU gets all steps at once: parts would move what they share. */
export async function prepare(
  kernels: Kernels,
  steps: readonly BoundStep[],
  pacer: Pacer,
  memory?: PlanMemory,
): Promise<PreparedSteps> {
  await pacer.pause()
  if (steps.length <= partLength || kernels.backend === 'cuda') return kernels.prepare(steps, memory)
  const parts: PreparedSteps[] = []
  try {
    for (let start = 0; start < steps.length; start += partLength) {
      parts.push(kernels.prepare(steps.slice(start, start + partLength)))
      await pacer.pause()
    }
  } catch (error) {
    for (const part of parts) part.dispose()
    throw error
  }
  return joined(parts)
}

/** Parts that run one after another. */
function joined(parts: readonly PreparedSteps[]): PreparedSteps {
  const inOrder = async (work: (part: PreparedSteps) => Promise<void> | undefined): Promise<void> => {
    for (const part of parts) await work(part)
  }
  const profile = async (): Promise<Float64Array> => {
    const times: number[] = []
    for (const part of parts) for (const time of await part.profile!()) times.push(time)
    return Float64Array.from(times)
  }
  return {
    async run(signal, times = 1) {
      for (let i = 0; i < times; i++) {
        await inOrder(part => {
          signal?.throwIfAborted()
          return part.run(signal)
        })
      }
    },
    fetch: () => inOrder(part => part.fetch()),
    store: () => inOrder(part => part.store()),
    ...(parts.every(part => part.profile) && { profile }),
    dispose() {
      for (const part of parts) part.dispose()
    },
  }
}
