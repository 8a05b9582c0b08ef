// group.ts: devices that are alike as one, so that fleets of hundreds have a model of a few dozen.
import { type FleetDevice, freeBytes } from './fleet.js'
import { type Candidate, candidateBytes, isPinnedTo, type Task } from './problem.js'

/** Devices, or groups of devices that share layers, that are alike. */
export interface Kind {
  /** The one with the least memory comes first: it stands for all. */
  readonly candidates: readonly Candidate[]
}

/** Kinds that a model may have. */
export const maxKinds = 32

/** Grids that memory and rates are rounded to, the finest first, until there are few enough kinds; 1: as they are. */
const grids = [1, 1.1, 1.25, 1.5, 2, 4]

/**
 * Candidates by kind: each alone to 32. Of more those are one kind whose backend, memory, rates, operators and links are equal; of
 * more than 32 kinds those that are equal on a coarser grid, and at last the 32 with the most memory bandwidth.
 */
export function kindsOf(task: Task, candidates: readonly Candidate[]): Kind[] {
  if (candidates.length <= maxKinds) return candidates.map(candidate => ({ candidates: [candidate] }))
  let kinds: Kind[] = []
  for (const grid of grids) {
    kinds = onGrid(task, candidates, grid)
    if (kinds.length <= maxKinds) return kinds
  }
  const bandwidth = ({ candidates: all }: Kind): number =>
    all.reduce((sum, { members }) => sum + members.reduce((own, member) => own + member.bandwidth, 0), 0)
  return kinds.sort((a, b) => bandwidth(b) - bandwidth(a)).slice(0, maxKinds)
}

function onGrid(task: Task, candidates: readonly Candidate[], grid: number): Kind[] {
  const found = new Map<string, Candidate[]>()
  for (const candidate of candidates) {
    const pins = task.pins.map(pin => isPinnedTo(pin, candidate))
    const links = grid > 2 ? '' : task.fleet.linkClass(candidate.members[0]!.node)
    const key = JSON.stringify([candidate.members.map(member => rounded(member, grid)), pins, links])
    const own = found.get(key)
    if (own) own.push(candidate)
    else found.set(key, [candidate])
  }
  return [...found.values()].map(all => {
    const smallest = all.reduce((a, b) => (candidateBytes(b) < candidateBytes(a) ? b : a))
    return { candidates: [smallest, ...all.filter(each => each !== smallest)] }
  })
}

function rounded(device: FleetDevice, grid: number): unknown[] {
  const round = (value: number): number =>
    grid === 1 ? value : Math.round(Math.log(value + 1) / Math.log(grid))
  const { backend, bandwidth, flops, headroom, overhead, operators } = device
  const rates = Object.entries(flops).map(([dtype, rate]) => [dtype, round(rate * headroom)])
  return [backend, round(freeBytes(device)), round(bandwidth), rates, grid === 1 ? overhead : 0, operators]
}
