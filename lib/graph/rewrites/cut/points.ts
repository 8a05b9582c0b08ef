// points.ts: the places where a graph can be cut into stages that are run on different machines.
import { isSize, type Size, total } from '../../../core/size.js'
import { describeNode } from '../../attributes.js'
import { namedStates } from '../../edit.js'
import type { Graph } from '../../graph.js'
import { keepFacts } from '../../kept-facts.js'
import type { Fact } from '../../shape-inference.js'
import { optimize } from '../optimize.js'
import { type Living, livingOf } from './living.js'
import { bytesOf, type InputShapes, symbolicFacts } from './values.js'

/** A value that lives over more of the nodes than this share, such as a mask, goes through cuts beside the one of the layer. */
const longLived = 0.25

/** A place between two nodes. */
export interface CutPoint {
  /** One behind the last node in front of it, in the order of the graph. */
  readonly end: number
  /** Names of the values that pass, but for inputs of the graph, which any stage can be fed, and constants. */
  readonly values: readonly string[]
  /** Their bytes: a number, or an expression of the open sizes of inputs. Values of unknown sizes are not counted. */
  readonly bytes: Size
}

/** Options of {@link cutPoints}. */
export interface CutPointOptions {
  /** Sizes of inputs by name. Default: those of the graph; open ones are symbols. */
  readonly shapes?: InputShapes | undefined
  /** Values that may pass beside long-lived ones. Default: 1. */
  readonly maxValues?: number
  /** Outputs by the inputs that they replace in the next run. Default: `past…` and `present…`, `x` and `next_x`. */
  readonly states?: ReadonlyMap<string, string> | undefined
}

/**
 * The places where a canonical graph can be cut so that stages give what the whole gives, bit for bit: few values pass, none of
 * which is inside of what kernels compute in one go, and no state lies on both sides. Values that live through more than a
 * quarter of the nodes, such as masks, are not counted as few, but their bytes are.
 * @throws SparkError ERR_SHAPE or ERR_ARGUMENT as `inferFacts`
 */
export function cutPoints(
  graph: Graph,
  { shapes, maxValues = 1, states = namedStates(graph.inputs, graph.outputs) }: CutPointOptions = {},
): CutPoint[] {
  const facts = symbolicFacts(graph, shapes)
  const living = livingOf(graph, facts)
  const whole = { ...graph }
  keepFacts(whole, { facts, trustFile: false })
  const kept = new Set(optimize(whole).graph.nodes.flatMap(({ outputs }) => outputs))
  const blocked = blockedByStates(graph, living, states)
  const points: CutPoint[] = []
  for (const { end, values } of passing(graph, living)) {
    const few = values.filter(({ isLong }) => !isLong)
    const names = values.map(({ name }) => name)
    if (few.length > maxValues || names.length === 0 || blocked[end]! > 0) continue
    if (!names.every(name => kept.has(name) && isSendable(facts.get(name)))) continue
    points.push({ end, values: names, bytes: total(names.map(name => sizeOf(facts.get(name)))) })
  }
  return points
}

const isSendable = (fact: Fact | undefined): boolean =>
  fact?.type?.kind === 'tensor' && fact.type.dtype !== 'string'

function sizeOf(fact: Fact | undefined): Size {
  const bytes = bytesOf(fact?.type)
  return isSize(bytes) ? bytes : 0
}

interface Passing {
  readonly end: number
  readonly values: readonly { readonly name: string; readonly isLong: boolean }[]
}

/** The values that pass each place, in the order in which they are made. */
function* passing({ nodes }: Graph, { needed, made, readers }: Living): Generator<Passing> {
  const living = new Map<string, { readonly last: number; readonly isLong: boolean }>()
  for (const [i, node] of nodes.entries()) {
    for (const name of node.outputs) {
      const last = readers.get(name)?.at(-1)
      if (made.get(name) !== i || last === undefined) continue
      living.set(name, { last, isLong: last - i > Math.max(longLived * nodes.length, 8) })
    }
    for (const [name, { last }] of living) if (last <= i) living.delete(name)
    // Behind a node that makes no more than constants is the same place as in front of it.
    if (i + 1 < nodes.length && needed.has(node) && node.outputs.some(name => made.has(name)))
      yield { end: i + 1, values: Array.from(living, ([name, { isLong }]) => ({ name, isLong })) }
  }
}

/** For each place how many states have a reader or the maker of their next value on either side. */
function blockedByStates(
  { nodes, updates }: Graph,
  { made, readers }: Living,
  states: ReadonlyMap<string, string>,
): Int32Array {
  const blocked = new Int32Array(nodes.length + 1)
  for (const [name, next] of [...states, ...(updates ?? [])]) {
    const places = [...(readers.get(name) ?? [])]
    const maker = made.get(next)
    if (maker !== undefined) places.push(maker)
    for (let end = Math.min(...places) + 1; end <= Math.max(...places); end++) blocked[end]! += 1
  }
  return blocked
}

/** A place in words, for errors. */
export const placeOf = ({ nodes }: Graph, end: number): string =>
  `the cut at ${end}, behind ${describeNode(nodes[end - 1]!)}`
