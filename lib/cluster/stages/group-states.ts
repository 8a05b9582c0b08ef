// group-states.ts: states of a stage that ranks share: caches by heads are in parts, others are whole on each rank.
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import type { Graph } from '../../graph/graph.js'
import { Tensor } from '../../memory/tensor.js'
import type { NamedTensors } from './messages.js'

/** Sizes of the inputs of a rank that are states, by name; those that are open are null. */
export type StateShapes = Readonly<Record<string, readonly (number | null)[]>>

/** Sizes of inputs of a graph. */
export const shapesOf = ({ inputs }: Graph, names: Iterable<string>): StateShapes => {
  const wanted = new Set(names)
  return Object.fromEntries(
    inputs.flatMap(({ name, type }) =>
      wanted.has(name) && type?.kind === 'tensor' && type.shape
        ? [[name, type.shape.map(size => (typeof size === 'number' ? size : null))]]
        : [],
    ),
  )
}

/** Sizes as a node told them; what is none is left out. */
export function stateShapesOf(value: unknown): StateShapes {
  const entries = Object.entries((value ?? {}) as Record<string, unknown>)
  return Object.fromEntries(
    entries.filter(([, shape]) => Array.isArray(shape)) as [string, readonly (number | null)[]][],
  )
}

/** The axis by which ranks have parts of a state, and their sizes; undefined where each has all of it. */
function cutOf(
  name: string,
  graph: Graph,
  ranks: readonly StateShapes[],
): { axis: number; sizes: number[] } | undefined {
  const whole = shapesOf(graph, [name])[name]
  const axis = whole?.findIndex((size, i) => size !== null && (ranks[0]?.[name]?.[i] ?? size) !== size) ?? -1
  if (axis < 0) return undefined
  const sizes = ranks.map(shapes => Number(shapes[name]?.[axis]))
  const total = sizes.reduce((sum, size) => sum + size, 0)
  if (total === whole![axis]) return { axis, sizes }
  throw new SparkError(
    'ERR_CONFLICT',
    `the parts ${sizes.join(' + ')} of state ${name} are not ${whole![axis]}`,
  )
}

/** What each rank gets of the states of a sequence. */
export function shareStates(
  states: NamedTensors,
  graph: Graph,
  ranks: readonly StateShapes[],
): NamedTensors[] {
  const shares: Record<string, Tensor<ElementType>>[] = ranks.map(() => ({}))
  for (const [name, tensor] of Object.entries(states)) {
    const cut = cutOf(name, graph, ranks)
    let begin = 0
    for (const [rank, share] of shares.entries()) {
      const size = cut?.sizes[rank] ?? 0
      share[name] = cut ? sliceOf(tensor, cut.axis, begin, size) : tensor
      begin += size
    }
  }
  return shares
}

/** The states of a sequence from those of all ranks. */
export function joinStates(
  parts: readonly NamedTensors[],
  graph: Graph,
  ranks: readonly StateShapes[],
): NamedTensors {
  return Object.fromEntries(
    Object.entries(parts[0]!).map(([name, first]) => {
      const cut = cutOf(name, graph, ranks)
      const own = parts.map(part => part[name]!)
      return [name, cut ? joined(own, cut.axis) : first]
    }),
  )
}

type Elements = Uint8Array

function sliceOf(
  { data, shape, dtype }: Tensor<ElementType>,
  axis: number,
  begin: number,
  size: number,
): Tensor<ElementType> {
  const own = shape.map((length, i) => (i === axis ? size : length))
  const [outer, inner] = [numel(shape.slice(0, axis)), numel(shape.slice(axis + 1))]
  const from = data as Elements
  const to = new (from.constructor as new (length: number) => Elements)(numel(own))
  for (let i = 0; i < outer; i++) {
    const at = (i * shape[axis]! + begin) * inner
    to.set(from.subarray(at, at + size * inner), i * size * inner)
  }
  return Tensor.of(to as never, own, dtype)
}

function joined(parts: readonly Tensor<ElementType>[], axis: number): Tensor<ElementType> {
  const { shape, dtype, data } = parts[0]!
  const sizes = parts.map(part => part.shape[axis]!)
  const total = sizes.reduce((sum, size) => sum + size, 0)
  const [outer, inner] = [numel(shape.slice(0, axis)), numel(shape.slice(axis + 1))]
  const to = new (data.constructor as new (length: number) => Elements)(outer * total * inner)
  let begin = 0
  for (const [rank, part] of parts.entries()) {
    const length = sizes[rank]! * inner
    for (let i = 0; i < outer; i++)
      to.set((part.data as Elements).subarray(i * length, (i + 1) * length), i * total * inner + begin)
    begin += length
  }
  return Tensor.of(
    to as never,
    shape.map((size, i) => (i === axis ? total : size)),
    dtype,
  )
}
