// cpu.ts: the kernels of the addon on the CPU.
import { freemem } from 'node:os'
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
    freeBytes: freemem,
    supports: () => true,
    runSync: (op, args) => addon.run(op, args),
    run: (op, args) => addon.runAsync(op, args),
    prepare(steps) {
      const plan = addon.planCreate(steps)
      const run = async (): Promise<void> => addon.planRun(plan)
      return { run, async fetch() {}, async store() {}, dispose: () => addon.planDispose(plan) }
    },
    hold: async array => ({ array, dispose() {} }),
  }
}
