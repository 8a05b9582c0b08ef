// cpu.ts: the kernels of the addon on the CPU.
import { freemem } from 'node:os'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { getConfig } from '../core/config.js'
import { usableCores } from '../hardware/cpu.js'
import { systemRoot } from '../hardware/system-files.js'
import { type Addon, type CommunicatorHandle, type PlanHandle, requireAddon } from '../native.js'
import type { Kernels, PlanCommunicator, PreparedSteps } from './kernels.js'
import { untilStopped } from './until-stopped.js'

/** Milliseconds after the first plan of a turn of the event loop in which more may run on the JavaScript thread. */
const briefPeriod = 1
/** When they end; infinite where no plan has run there in this turn. */
let briefUntil = Number.POSITIVE_INFINITY

/** A plan has run on the JavaScript thread: a loop of them must not starve timers and sockets. */
function noteBriefRun(start: number): void {
  if (briefUntil !== Number.POSITIVE_INFINITY) return
  briefUntil = start + briefPeriod
  setImmediate(() => {
    briefUntil = Number.POSITIVE_INFINITY
  })
}

/** Steps that are read, or bound to their sizes, in one native call: some hundred microseconds. */
const stepsAtOnce = 128

/** A native call that makes one run, at once where it is short and may be `brief`. */
type BriefCall = (plan: PlanHandle, brief: boolean) => Promise<void> | undefined

/** The native plans of steps. */
const handles = new WeakMap<PreparedSteps, PlanHandle>()

function prepared(addon: Addon, plan: PlanHandle): PreparedSteps {
  /** Whether the last run was so short that it ran on the JavaScript thread. */
  let isBrief = false
  const repeat = (signal: AbortSignal | undefined, times: number): Promise<void> =>
    untilStopped(addon, plan, signal, () => addon.planRun(plan, false, times)!)
  const start = (call: BriefCall): Promise<void> | undefined => {
    const now = performance.now()
    const pending = call(plan, now < briefUntil)
    isBrief = !pending
    if (isBrief) noteBriefRun(now)
    return pending
  }
  /** A run that waits for the next turn of the event loop. */
  let waiting: Promise<void> | undefined
  const once = (call: BriefCall): Promise<void> | undefined => {
    if (!isBrief || performance.now() < briefUntil) return start(call)
    // The event loop turns sooner than work gets to another thread and back.
    waiting = nextTurn().then(() => {
      waiting = undefined
      return start(call)
    })
    return waiting
  }
  const steps: PreparedSteps = {
    run: (signal, times = 1) => (times > 1 ? repeat(signal, times) : once(addon.planRun)),
    async profile() {
      await once(addon.planProfile)
      return addon.planStepTimes(plan)
    },
    async fetch() {},
    async store() {},
    dispose() {
      const end = (): void => addon.planDispose(plan)
      if (waiting) void waiting.then(end, end)
      else end()
    },
  }
  handles.set(steps, plan)
  return steps
}

/**
 * The native kernels, with as many threads as the configuration says.
 * @param threads - as many for prepared steps instead
 * @param communicator - what prepared steps call to work with other ranks
 * @throws SparkError ERR_NO_NATIVE when the addon does not load
 */
export function openCpuKernels(threads?: number, communicator?: PlanCommunicator): Kernels {
  const addon = requireAddon()
  const usable = usableCores(systemRoot())
  addon.setThreads(getConfig().threads, usable.threads)
  const limit = threads === 0 ? usable.threads : threads
  const ranks = communicator?.native as CommunicatorHandle | undefined
  return {
    backend: 'cpu',
    world: communicator?.world,
    bf16Support: addon.cpuBf16Support(),
    freeBytes: freemem,
    padding: buffer => addon.linePadding(buffer),
    release: buffer => addon.release(buffer),
    supports: () => true,
    runSync: (op, args) => addon.run(op, args),
    run: (op, args) => addon.runAsync(op, args),
    runOwned: (op, args) => addon.runAsync(op, args, true),
    prepare: steps => prepared(addon, addon.planCreate(steps, undefined, undefined, undefined, limit, ranks)),
    *blueprint(steps, regions) {
      const blueprint = addon.blueprintCreate(limit, ranks)
      for (let first = 0; first < Math.max(steps.length, regions.length); first += stepsAtOnce) {
        const part = <T>(list: readonly T[]): T[] => list.slice(first, first + stepsAtOnce)
        addon.blueprintAdd(blueprint, part(steps), part(regions))
        yield
      }
      return {
        *bind(sizes, arrays, arena, offsets, over) {
          const before = over && handles.get(over)
          const binding = addon.blueprintBind(blueprint, sizes, arrays, arena, offsets, before)
          for (;;) {
            const plan = addon.blueprintBindSteps(binding, stepsAtOnce)
            if (plan) return over ?? prepared(addon, plan)
            yield
          }
        },
        dispose: () => addon.blueprintDispose(blueprint),
      }
    },
    async hold(array) {
      addon.hold(array)
      return { array, dispose() {} }
    },
  }
}
