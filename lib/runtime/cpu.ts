// cpu.ts: the kernels of the addon on the CPU.
import { freemem } from 'node:os'
import { getConfig } from '../core/config.js'
import { requireAddon } from '../native.js'
import type { Kernels } from './kernels.js'

/** Milliseconds that plans may take on the JavaScript thread between two turns of the event loop. */
const turnBudget = 1
let spent = 0

/** Keeps account of plans that have run on the JavaScript thread: a loop of them must not starve timers and sockets. */
function spend(milliseconds: number): void {
  if (spent === 0) {
    setImmediate(() => {
      spent = 0
    })
  }
  spent += milliseconds
}

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
      const run = (): Promise<void> | undefined => {
        const done = addon.planRun(plan, spent < turnBudget)
        if (typeof done !== 'number') return done
        spend(done)
        return undefined
      }
      return { run, async fetch() {}, async store() {}, dispose: () => addon.planDispose(plan) }
    },
    hold: async array => ({ array, dispose() {} }),
  }
}
