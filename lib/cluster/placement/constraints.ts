// constraints.ts: hard constraints of placements, by name: devices that are out before anything is solved, and why nothing fits.
import { SparkError } from '../../core/errors.js'
import { layerName, layerRange } from './costs.js'
import { canRun, type FleetDevice } from './fleet.js'
import {
  blockBytes,
  type Candidate,
  candidateBytes,
  isAllowed,
  isPinnedTo,
  type Network,
  type Task,
} from './problem.js'

/** A hard constraint that does not hold. */
export interface Violation {
  /** Which one. */
  readonly kind: 'backend' | 'operator' | 'memory' | 'link' | 'pin'
  /** The device that it is about; undefined when it is about all of them. */
  readonly device?: string
  /** With numbers and names: `layer 31 needs f8_e4m3 MatMul, node-b has none`. */
  readonly message: string
}

/**
 * No placement meets the hard constraints.
 * @example
 * await place(costs, fleet).catch(error => {
 *   if (error instanceof InfeasibleError) console.log(error.violation.kind, error.violation.device)
 * })
 */
export class InfeasibleError extends SparkError {
  /** The constraint that fails. */
  readonly violation: Violation

  constructor(violation: Violation) {
    super(violation.kind === 'memory' ? 'ERR_OUT_OF_MEMORY' : 'ERR_UNSUPPORTED', violation.message)
    this.violation = violation
  }
}

/** Bytes as specifications of devices count them: 41.2 GB. */
export const gigabytes = (bytes: number): string =>
  bytes > 0 && bytes < 5e7 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`

/** Candidates that may have layers, and why others may not. */
export interface Domain {
  readonly usable: readonly Candidate[]
  readonly out: readonly (Violation & { readonly device: string })[]
}

/** Takes candidates out that no layer can be on: by backend, by operators and dtypes, by pins, by memory. */
export function pruneDomain(
  task: Task,
  candidates: readonly Candidate[],
  backends: readonly string[] | undefined,
): Domain {
  const out: (Violation & { device: string })[] = []
  const usable = candidates.filter(candidate => {
    const violation = violationOf(task, candidate, backends)
    if (violation) out.push({ ...violation, device: candidate.name })
    return violation === undefined
  })
  return { usable, out }
}

function violationOf(
  task: Task,
  candidate: Candidate,
  backends: readonly string[] | undefined,
): Violation | undefined {
  const { name, members } = candidate
  const foreign = backends && members.find(({ backend }) => !backends.includes(backend))
  if (foreign)
    return {
      kind: 'backend',
      message: `${name} runs ${foreign.backend}, and only ${backends.join(', ')} may be used`,
    }
  const layers = task.costs.layers.map((_, l) => l)
  const able = layers.filter(l => isAble(task, members, l))
  if (able.length === 0) return missingOperator(task, candidate, 0)
  const allowed = able.filter(l => isAllowed(task, candidate, l))
  if (allowed.length === 0)
    return { kind: 'pin', message: `all layers that ${name} can run are pinned to other devices` }
  const needs = allowed.map(l => blockBytes(task, members.length, l, l + 1))
  const smallest = needs.reduce((a, b) => Math.min(a, b))
  const free = candidateBytes(candidate)
  if (smallest <= free) return undefined
  const layer = layerName(task.costs.layers[allowed[needs.indexOf(smallest)]!]!)
  return {
    kind: 'memory',
    message: `${layer} needs ${gigabytes(smallest)}, ${name} has ${gigabytes(free)} free`,
  }
}

const isAble = ({ costs }: Task, members: readonly FleetDevice[], l: number): boolean =>
  members.every(device => costs.layers[l]!.operators.every(use => canRun(device, use)))

function missingOperator({ costs }: Task, { name, members }: Candidate, l: number): Violation {
  const layer = costs.layers[l]!
  const use = layer.operators.find(each => !members.every(device => canRun(device, each)))!
  return { kind: 'operator', message: `${layerName(layer)} needs ${use.dtype} ${use.op}, ${name} has none` }
}

/** Whether a task has a placement on candidates. */
export type Feasible = (task: Task, candidates: readonly Candidate[]) => Promise<boolean>

/**
 * Why nothing fits: the first of these that fails alone. A layer that no device can run; a layer or a pinned block that no device has
 * memory for; all memory together; then links, pins and operators, each of which is dropped to see whether the others can be met.
 */
export async function explainInfeasible(
  task: Task,
  candidates: readonly Candidate[],
  { usable, out }: Domain,
  feasible: Feasible,
): Promise<Violation> {
  const alone = layerViolation(task, candidates) ?? pinViolation(task, candidates)
  if (alone) return alone
  if (usable.length === 0) return out[0]!
  const total = totalViolation(task, usable)
  if (total) return total
  if (await feasible({ ...task, fleet: joined(task.fleet) }, usable)) return linkViolation(task, usable)
  if (task.pins.length > 0 && (await feasible({ ...task, pins: [] }, usable))) {
    const pins = task.pins.map(({ from, end, target }) => `${layerRange(task.costs, from, end)} on ${target}`)
    return { kind: 'pin', message: `what is pinned leaves no placement: ${pins.join('; ')}` }
  }
  const layers = task.costs.layers.map(layer => ({ ...layer, operators: [] }))
  if (await feasible({ ...task, costs: { ...task.costs, layers } }, usable)) {
    const lacking = usable.find(({ members }) => layers.some((_, l) => !isAble(task, members, l)))!
    const l = layers.findIndex((_, l) => !isAble(task, lacking.members, l))
    const { message } = missingOperator(task, lacking, l)
    return { kind: 'operator', message: `${message}, and what can run it has too little memory` }
  }
  return stageViolation(task, usable)
}

/** The first layer that no candidate can run, or has memory for. */
function layerViolation(task: Task, candidates: readonly Candidate[]): Violation | undefined {
  for (const [l, layer] of task.costs.layers.entries()) {
    const able = candidates.filter(({ members }) => isAble(task, members, l))
    if (able.length === 0) {
      const { message } = missingOperator(task, candidates[0]!, l)
      const rest = candidates.length > 1 ? `, nor has any of the other ${candidates.length - 1}` : ''
      return { kind: 'operator', message: `${message}${rest}` }
    }
    const best = largest(able)
    const bytes = blockBytes(task, best.members.length, l, l + 1)
    if (able.some(each => blockBytes(task, each.members.length, l, l + 1) <= candidateBytes(each))) continue
    const message = `${layerName(layer)} needs ${gigabytes(bytes)}, ${best.name} has ${gigabytes(candidateBytes(best))} free`
    return { kind: 'memory', message: `${message}, and no other device that can run it has more` }
  }
  return undefined
}

const largest = (candidates: readonly Candidate[]): Candidate =>
  candidates.reduce((a, b) =>
    candidateBytes(b) * b.members.length > candidateBytes(a) * a.members.length ? b : a,
  )

/** A pin to something that cannot have its layers. */
function pinViolation(task: Task, candidates: readonly Candidate[]): Violation | undefined {
  for (const pin of task.pins) {
    const targets = candidates.filter(candidate => isPinnedTo(pin, candidate))
    for (let l = pin.from; l < pin.end; l++) {
      const unable = targets.filter(({ members }) => !isAble(task, members, l))
      if (unable.length === targets.length && unable[0]) return missingOperator(task, unable[0], l)
    }
    const [target] = targets
    if (targets.length !== 1 || !target) continue
    const bytes = blockBytes(task, target.members.length, pin.from, pin.end)
    if (bytes > candidateBytes(target)) return tooLarge(task, target, pin.from, pin.end)
  }
  return undefined
}

function tooLarge(task: Task, candidate: Candidate, from: number, end: number): Violation {
  const bytes = blockBytes(task, candidate.members.length, from, end)
  const message = `stage of ${layerRange(task.costs, from, end)} needs ${gigabytes(bytes)}, ${candidate.name} has ${gigabytes(candidateBytes(candidate))} free`
  return { kind: 'memory', device: candidate.name, message }
}

function totalViolation(task: Task, usable: readonly Candidate[]): Violation | undefined {
  const needed = blockBytes(task, 1, 0, task.costs.layers.length)
  const free = usable.reduce((sum, each) => sum + candidateBytes(each) * each.members.length, 0)
  if (needed <= free) return undefined
  const devices = usable.length === 1 ? usable[0]!.name : `${usable.length} devices together`
  const context = `a context of ${task.load.context} tokens and ${task.load.sequences} ${task.load.sequences === 1 ? 'sequence' : 'sequences'}`
  const load = task.costs.kind === 'language' ? ` with ${context}` : ''
  return {
    kind: 'memory',
    message: `${task.costs.name} needs ${gigabytes(needed)}${load}, ${devices} ${usable.length === 1 ? 'has' : 'have'} ${gigabytes(free)} free`,
  }
}

/** The same fleet with a link between all devices. */
const joined = ({ devices }: Network): Network => ({
  devices,
  link: () => ({ latency: 0, bandwidth: 1e15 }),
  linkClass: () => '',
})

function linkViolation({ fleet }: Task, usable: readonly Candidate[]): Violation {
  const devices = usable.flatMap(({ members }) => members)
  for (const a of devices)
    for (const b of devices)
      if (a !== b && !fleet.link(a, b)) {
        const message = `no link joins ${a.node} and ${b.node}: add one to links, or give a network`
        return { kind: 'link', message }
      }
  return { kind: 'link', message: 'links leave no placement' }
}

/** Memory is enough in total, but layers are whole: fills the largest devices first and names the stage that is left. */
function stageViolation(task: Task, usable: readonly Candidate[]): Violation {
  const bySize = [...usable].sort(
    (a, b) => candidateBytes(b) * b.members.length - candidateBytes(a) * a.members.length,
  )
  const count = task.costs.layers.length
  let from = 0
  for (const [i, candidate] of bySize.entries()) {
    const size = candidate.members.length
    if (i === bySize.length - 1) return tooLarge(task, candidate, from, count)
    let end = from
    while (
      end < count - 1 &&
      isAllowed(task, candidate, end) &&
      blockBytes(task, size, from, end + 1) <= candidateBytes(candidate)
    )
      end++
    from = end
  }
  throw new SparkError('ERR_INTERNAL', 'a placement without devices')
}
