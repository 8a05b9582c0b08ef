// cpu.ts: the kernels of the addon on the CPU.
import { getConfig } from '../core/config.js'
import { requireAddon } from '../native.js'
import type { Kernels } from './kernels.js'

/**
 * The native kernels, with as many threads as the configuration says.
 * @throws SparkError ERR_NO_NATIVE when the addon does not load
 */
export function openCpuKernels(): Kernels {
  const addon = requireAddon()
  addon.setThreads(getConfig().threads)
  return {
    backend: 'cpu',
    supports: () => true,
    runSync: (op, args) => addon.run(op, args),
    run: (op, args) => addon.runAsync(op, args),
    prepare(steps) {
      const plan = addon.planCreate(steps)
      return {
        run: async () => addon.planRun(plan),
        profile: async () => addon.planProfile(plan),
        dispose: () => addon.planDispose(plan),
      }
    },
    hold: async array => ({ array, dispose() {} }),
  }
}
