// milp.ts: placements on more devices than dynamic programming searches: a model of equal layers decides which devices are used in
// which order, and the layers as they are decide where it is cut.
import { SparkError } from '../../core/errors.js'
import type { Chain, Objective } from './chain.js'
import { maxExactDevices, solveExactly } from './dynamic-programming.js'
import { type Kind, kindsOf } from './group.js'
import { solveInOrder } from './ordered.js'
import {
  type Candidate,
  candidateBytes,
  candidateHops,
  chainOf,
  isPinnedTo,
  type Solution,
  type Task,
} from './problem.js'

/** The part of the package `highs` that is used. */
interface Highs {
  solve(
    problem: string,
    options: { readonly time_limit: number; readonly mip_rel_gap: number },
  ): { readonly Status: string; readonly Columns: Readonly<Record<string, { readonly Primal?: number }>> }
}

/** Seconds of one solution, how far from the optimum it may be, and how often the capacities of devices are lowered. */
const [timeLimit, gap, maxAttempts] = [2, 1e-3, 4]

/** Devices of a kind behind those that were chosen that the repair may use, too. */
const spares = 2

/** Devices that the repair looks at. */
const maxOrder = 160

let loaded: Promise<Highs> | undefined

/** @throws SparkError ERR_UNSUPPORTED when the package is not there */
async function loadHighs(): Promise<Highs> {
  // Its types describe a module of CommonJS, and an import gets one of ECMAScript.
  loaded ??= import('highs').then(module => (module as unknown as { default(): Promise<Highs> }).default())
  try {
    return await loaded
  } catch (cause) {
    loaded = undefined
    const message = 'a placement on more than 10 devices needs the package highs: npm install highs'
    throw new SparkError('ERR_UNSUPPORTED', message, { cause })
  }
}

/** Equal layers on kinds of devices. K is the number of kinds. */
interface Model {
  readonly layers: number
  /** Devices of each kind. */
  readonly sizes: readonly number[]
  /** Layers that a device of each kind holds. */
  readonly capacity: readonly number[]
  /** Seconds of a layer on each kind. */
  readonly seconds: readonly number[]
  /** Seconds of a step on each kind, whatever it computes. */
  readonly fixed: readonly number[]
  /** Seconds from a device of a kind to one of another, the worst of all layers; on the diagonal within a kind. */
  readonly hops: readonly (readonly number[])[]
}

/** Kinds in the order that they are used in, and how many devices of each. */
type Order = readonly { readonly kind: number; readonly count: number }[]

/**
 * A placement on many devices; undefined when none was found. The optimum of a compact model is found by HiGHS: an integer number of
 * equal layers and of devices for each kind, a binary for each pair of kinds that follow each other (a path without cycles after
 * Miller, Tucker and Zemlin). In its order, with some devices more, `solveInOrder` cuts the layers as they are. The model knows
 * nothing of pins: where it leads to no placement, a few devices are searched exactly.
 * @throws SparkError ERR_UNSUPPORTED without the package `highs`
 */
export async function solveMany(
  task: Task,
  candidates: readonly Candidate[],
  objective: Objective,
): Promise<Solution | undefined> {
  const highs = await loadHighs()
  const kinds = kindsOf(task, candidates)
  const model = modelOf(task, kinds)
  for (let attempt = 0; attempt < maxAttempts; attempt++) {
    const order = orderOf(
      highs,
      { ...model, capacity: model.capacity.map(most => Math.max(0, most - attempt)) },
      objective,
    )
    if (!order) break
    const chosen = membersOf(kinds, order)
    const chain = chainOf(task, chosen)
    const blocks = solveInOrder(chain, objective)
    if (blocks) return { candidates: chosen, chain, blocks, exact: false }
  }
  return solveFew(task, candidates, objective)
}

/** The best placement on those with the most memory, and on those that layers are pinned to: first on one for each pin, then on all. */
function solveFew(task: Task, candidates: readonly Candidate[], objective: Objective): Solution | undefined {
  const bytes = (candidate: Candidate): number => candidateBytes(candidate) * candidate.members.length
  const bySize = [...candidates].sort((a, b) => bytes(b) - bytes(a))
  const targets = task.pins.map(pin => bySize.filter(candidate => isPinnedTo(pin, candidate)))
  const largest = targets.flatMap(all => all.slice(0, 1))
  for (const first of [largest, [...largest, ...targets.flat()]]) {
    const few = [...new Set([...first, ...bySize])].slice(0, maxExactDevices)
    const chain = chainOf(task, few)
    const blocks = solveExactly(chain, objective)
    if (blocks) return { candidates: few, chain, blocks, exact: false }
  }
  return undefined
}

function modelOf(task: Task, kinds: readonly Kind[]): Model {
  const first = kinds.map(({ candidates }) => candidates[0]!)
  const chain = chainOf(task, first)
  const { layers, devices } = chain
  const within = new Float64Array(layers)
  const rowsOf = (d: number): number[] => Array.from(chain.seconds.subarray(d * layers, (d + 1) * layers))
  return {
    layers,
    sizes: kinds.map(({ candidates }) => Math.min(candidates.length, layers)),
    capacity: first.map((_, d) => capacityOf(chain, d)),
    seconds: first.map((_, d) => rowsOf(d).reduce((sum, each) => sum + each, 0) / layers),
    fixed: Array.from(chain.fixed),
    hops: first.map((_, d) =>
      first.map((_, e) => {
        if (d !== e)
          return worst(chain.hops.subarray((d * devices + e) * layers, (d * devices + e + 1) * layers))
        const [one, other] = kinds[d]!.candidates
        if (!other) return 0
        candidateHops(task, one!, other, within)
        return worst(within)
      }),
    ),
  }
}

const worst = (values: Float64Array): number => values.reduce((a, b) => Math.max(a, b), 0)

/** Layers of the longest block that a device can hold. */
function capacityOf({ first, layers }: Chain, d: number): number {
  let longest = 0
  for (let q = 1; q <= layers; q++) longest = Math.max(longest, q - first[d * (layers + 1) + q]!)
  return longest
}

/** The best order for latency, or for the smallest bottleneck that has an order. */
function orderOf(highs: Highs, model: Model, objective: Objective): Order | undefined {
  if (objective === 'latency') return solveModel(highs, model, Number.POSITIVE_INFINITY)
  // Bottlenecks that equal layers can have, from the smallest that all devices together reach without links.
  const { seconds, fixed, layers, hops } = model
  const limits = new Set(hops.flat())
  for (const [k, each] of seconds.entries())
    for (let n = 1; n <= layers; n++) limits.add(fixed[k]! + n * each)
  const enough = (limit: number): boolean =>
    limited(model, limit).reduce((sum, most, k) => sum + most * model.sizes[k]!, 0) >= layers
  const sorted = [...limits].filter(limit => Number.isFinite(limit) && enough(limit)).sort((a, b) => a - b)
  let [low, high, step] = [0, 0, 1]
  let found: Order | undefined
  for (; high < sorted.length && !found; high += step, step *= 2) {
    found = solveModel(highs, model, sorted[high]!)
    if (found) break
    low = high + 1
  }
  if (!found) return sorted.length > 0 ? solveModel(highs, model, sorted.at(-1)!) : undefined
  while (low < high) {
    const middle = (low + high) >> 1
    const better = solveModel(highs, model, sorted[middle]!)
    if (better) [found, high] = [better, middle]
    else low = middle + 1
  }
  return found
}

/** Layers that a device of each kind holds within a bottleneck. */
const limited = ({ capacity, seconds, fixed }: Model, limit: number): number[] =>
  capacity.map((most, k) => Math.max(0, Math.min(most, Math.floor((limit - fixed[k]!) / seconds[k]! + 1e-9))))

/** The order with the lowest latency whose bottleneck is at most `limit` seconds; undefined when HiGHS finds none. */
function solveModel(highs: Highs, model: Model, limit: number): Order | undefined {
  const capacity = limited(model, limit)
  const kinds = capacity.flatMap((most, k) => (most > 0 ? [k] : []))
  if (kinds.length === 0) return undefined
  const { Status, Columns } = highs.solve(textOf(model, kinds, capacity, limit), {
    time_limit: timeLimit,
    mip_rel_gap: gap,
  })
  const primal = (name: string): number => Math.round(Columns[name]?.Primal ?? 0)
  if (Status === 'Infeasible' || kinds.every(k => primal(`s${k}`) === 0)) return undefined
  const order: { kind: number; count: number }[] = []
  let next = kinds.find(k => primal(`s${k}`) === 1)
  while (next !== undefined && order.length < kinds.length) {
    const kind: number = next
    order.push({ kind, count: primal(`c${kind}`) })
    next = kinds.find(other => other !== kind && primal(`y${kind}_${other}`) === 1)
  }
  return order
}

/**
 * The model in the LP format of CPLEX. Of kind k: n layers, c devices, u whether it is used, s and e whether it is first and last, o its
 * number in the order; y of two kinds: whether one follows the other.
 */
function textOf(model: Model, kinds: readonly number[], capacity: readonly number[], limit: number): string {
  const { layers, sizes, seconds, fixed, hops } = model
  // Numbers of the order of 1 suit the tolerances of the solver.
  const scale = 1 / (seconds.reduce((sum, each) => sum + each, 0) / seconds.length || 1)
  const number = (value: number): string => (value * scale).toPrecision(12)
  const pairs = kinds.flatMap(a =>
    kinds.flatMap(b =>
      a !== b && hops[a]![b]! <= limit && Number.isFinite(hops[a]![b]!) ? [[a, b] as const] : [],
    ),
  )
  const inside = (k: number): number => (Number.isFinite(hops[k]![k]!) ? hops[k]![k]! : 0)
  const cost = [
    ...kinds.map(
      k =>
        `${number(seconds[k]!)} n${k} + ${number(fixed[k]! + inside(k))} c${k} - ${number(inside(k))} u${k}`,
    ),
    ...pairs.map(([a, b]) => `${number(hops[a]![b]!)} y${a}_${b}`),
  ]
  const into = (k: number): string => pairs.flatMap(([a, b]) => (b === k ? [`y${a}_${b} + `] : [])).join('\n')
  const outOf = (k: number): string =>
    pairs.flatMap(([a, b]) => (a === k ? [`y${a}_${b} + `] : [])).join('\n')
  const rows = [
    `${kinds.map(k => `n${k}`).join(' +\n')} = ${layers}`,
    `${kinds.map(k => `s${k}`).join(' +\n')} = 1`,
    `${kinds.map(k => `e${k}`).join(' +\n')} = 1`,
    ...kinds.flatMap(k => {
      const isJoined = hops[k]![k]! <= limit && Number.isFinite(hops[k]![k]!)
      return [
        `n${k} - ${capacity[k]} c${k} <= 0`,
        `n${k} - c${k} >= 0`,
        `c${k} - ${isJoined ? sizes[k] : 1} u${k} <= 0`,
        `c${k} - u${k} >= 0`,
        `${into(k)}s${k} - u${k} = 0`,
        `${outOf(k)}e${k} - u${k} = 0`,
      ]
    }),
    ...pairs.map(([a, b]) => `o${a} - o${b} + ${kinds.length} y${a}_${b} <= ${kinds.length - 1}`),
  ]
  return [
    'Minimize',
    `cost: ${cost.join(' +\n')}`,
    'Subject To',
    ...rows.map((row, i) => `r${i}: ${row}`),
    'Bounds',
    ...kinds.map(k => `0 <= n${k} <= ${layers}\n0 <= c${k} <= ${sizes[k]}\n0 <= o${k} <= ${kinds.length}`),
    `General\n${kinds.map(k => `n${k} c${k}`).join('\n')}`,
    `Binary\n${[...kinds.map(k => `u${k} s${k} e${k}`), ...pairs.map(([a, b]) => `y${a}_${b}`)].join('\n')}`,
    'End',
  ].join('\n')
}

/** The devices of an order, with some of each kind more, and behind them one of each kind that it lacks. */
function membersOf(kinds: readonly Kind[], order: Order): Candidate[] {
  const chosen = order.flatMap(({ kind, count }) => kinds[kind]!.candidates.slice(0, count + spares))
  const used = new Set(order.map(({ kind }) => kind))
  const others = kinds.flatMap(({ candidates }, k) => (used.has(k) ? [] : candidates.slice(0, 1)))
  return [...chosen, ...others].slice(0, maxOrder)
}
