// profile.ts: table of the time per step of a model.
import type { Precision } from '../core/config.js'
import type { ModelBackend, ModelBackendChoice, ModelStats } from '../model/engine.js'
import { Model } from '../model/model.js'
import type { StepTime } from '../plan/step-time.js'
import { feedsFor } from './feeds.js'
import { formatBytes, print, printPairs, styled } from './output.js'
import type { SizeOptions } from './shapes.js'
import { printTable } from './table.js'

/** Times of a model. */
export interface Profile {
  readonly backend: ModelBackendChoice
  readonly precision: string
  readonly precisionReason: string
  readonly stats: ModelStats
  /** All steps in their order. */
  readonly steps: readonly StepTime[]
}

/** Rows of the table of steps: the slowest. */
const shownSteps = 20

/** Runs a model on random inputs and measures its steps. */
export async function profileModel(
  file: string,
  options: SizeOptions & { readonly backend?: ModelBackend; readonly precision?: Precision },
): Promise<Profile> {
  const { backend, precision } = options
  using model = await Model.load(file, { ...(backend && { backend }), ...(precision && { precision }) })
  const steps = await model.profile(feedsFor(model, {}, options, 0), { runs: 10 })
  const { precisionReason, stats } = model
  return { backend: model.backend, precision: model.precision, precisionReason, stats, steps }
}

/** Milliseconds of the steps of each node. */
export function nodeTimes({ steps }: Profile): Map<string, number> {
  const times = new Map<string, number>()
  for (const { node, ms } of steps) times.set(node, (times.get(node) ?? 0) + ms)
  return times
}

/** Prints times by operation, the slowest steps, and what the plans hold. */
export function reportProfile({ backend, precision, precisionReason, stats, steps }: Profile): void {
  const total = steps.reduce((sum, { ms }) => sum + ms, 0)
  const share = (ms: number): string => `${((100 * ms) / (total || 1)).toFixed(1)} %`
  const operations = new Map<string, { count: number; ms: number }>()
  for (const { op, ms } of steps) {
    const { count, ms: sum } = operations.get(op) ?? { count: 0, ms: 0 }
    operations.set(op, { count: count + 1, ms: sum + ms })
  }
  print(styled('bold', `${backend.name}: ${backend.reason}`))
  print(styled('bold', `${precision}: ${precisionReason}`))
  printPairs([
    ['steps', `${steps.length} in ${total.toFixed(3)} ms`],
    ['compilation', `${stats.compileMs.toFixed(1)} ms, ${stats.plans} plans`],
    ['arena', `${formatBytes(stats.arenaBytes)}; no layout is below ${formatBytes(stats.lowerBound)}`],
    ['weights', formatBytes(stats.constantBytes)],
  ])
  printTable(
    ['operation', 'steps', 'ms', 'share'],
    [...operations]
      .sort(([, a], [, b]) => b.ms - a.ms)
      .map(([op, { count, ms }]) => [op, String(count), ms.toFixed(3), share(ms)]),
    [1, 2, 3],
  )
  const rate = ({ flops, ms }: StepTime): string => (flops > 0 ? (flops / ms / 1e6).toFixed(1) : '')
  printTable(
    ['slowest steps', 'node', 'elements of operands', 'ms', 'share', 'GFLOP/s'],
    [...steps]
      .sort((a, b) => b.ms - a.ms)
      .slice(0, shownSteps)
      .map(step => {
        const { op, node, sizes, ms } = step
        return [op, node, sizes.join(' '), ms.toFixed(3), share(ms), rate(step)]
      }),
    [3, 4, 5],
  )
}
