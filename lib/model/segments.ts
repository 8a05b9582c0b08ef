// segments.ts: partition of a graph into statically shaped subgraphs. A segment ends where a shape depends on elements that are
// not there yet, and at operators that run on the host: control flow, sequences, selections.
import type { ElementType } from '../core/dtype.js'
import type { Paced } from '../core/paced.js'
import type { Constant } from '../graph/constant.js'
import { readsOf } from '../graph/edit.js'
import { type Graph, makeGraph, type Node, type ValueInfo } from '../graph/graph.js'
import { keepFacts } from '../graph/kept-facts.js'
import { type Fact, isStatic, ShapeInference } from '../graph/shape-inference.js'
import { loweringOf } from '../plan/lower/index.js'
import { isHostOperator } from './host/index.js'
import type { HostValue } from './values.js'

/** What is known where a segment begins. */
export interface SegmentInput {
  /** Nodes that have not run. */
  readonly nodes: readonly Node[]
  /** Names of values that the graph returns. */
  readonly wanted: readonly string[]
  /** Values that are there and that the nodes read, by name. */
  readonly values: ReadonlyMap<string, HostValue>
  /** What compilation may know of them. */
  readonly facts: ReadonlyMap<string, Fact>
  /** Those of them whose elements are built into the segment. */
  readonly pinned: ReadonlyMap<string, Constant>
  /** Values that are states, and what replaces them: both names. */
  readonly states: ReadonlyMap<string, string>
  /** Constants of the graph and of those around it. */
  readonly constants: ReadonlyMap<string, Constant>
  /** Outputs of nodes that have to wait because they need elements that this segment makes. */
  readonly deferred: ReadonlySet<string>
}

/** A part of a graph. */
export interface Segment {
  /** What is compiled, or undefined when no node can be. */
  readonly graph: Graph | undefined
  /** What runs on the host afterwards, in order. */
  readonly hostNodes: readonly Node[]
  /** What is left for later segments. */
  readonly rest: readonly Node[]
}

/** Cuts off the next segment. */
export function* cutSegment(start: SegmentInput): Paced<Segment> {
  const { compiled, facts } = yield* compilable(start)
  const made = new Set<string>()
  const taken = new Set<Node>()
  for (const node of compiled) {
    for (const name of node.outputs) made.add(name)
    taken.add(node)
    yield
  }
  const left = start.nodes.filter(node => !taken.has(node))
  const known = (name: string): boolean =>
    made.has(name) || start.values.has(name) || start.constants.has(name)
  const hostNodes: Node[] = []
  const rest: Node[] = []
  for (const node of left) {
    yield
    if (!isHostOperator(node) || !readsOf(node).every(known)) {
      rest.push(node)
      continue
    }
    hostNodes.push(node)
    for (const name of node.outputs) made.add(name)
  }
  const graph = compiled.length > 0 ? yield* segmentGraph(start, compiled, left) : undefined
  if (graph) keepFacts(graph, { facts, trustFile: false })
  return { graph, hostNodes, rest }
}

/** Names of the values that decide the shapes of a node that is left over although all it reads is there. */
export function* decisiveInputs(
  { rest }: Segment,
  { values, facts, pinned, constants, deferred }: SegmentInput,
): Paced<string[]> {
  const found: string[] = []
  for (const node of rest) {
    yield
    if (isDeferred(node, deferred) || !readsOf(node).every(name => values.has(name) || constants.has(name)))
      continue
    const isPinned = (name: string): boolean => pinned.has(name) || facts.get(name)?.known !== undefined
    const open = node.inputs.filter(name => !isPinned(name) && canPin(values.get(name)))
    // The first input is data in most operators, and the others say what to do with it.
    for (const name of open) if (open.length === 1 || name !== node.inputs[0]) found.push(name)
  }
  return found
}

/** Elements a value may have to be built into a plan. */
const maxPinned = 4096

function canPin(value: HostValue | undefined): boolean {
  const types: readonly ElementType[] = ['i64', 'i32', 'u8', 'bool', 'f32', 'f64', 'f16', 'bf16']
  return value?.kind === 'tensor' && types.includes(value.dtype) && value.data.length <= maxPinned
}

/** The nodes that can be compiled: they have kernels, their shapes are known, and all they read is there before. */
function* compilable({ nodes, facts, pinned, constants, deferred }: SegmentInput): Paced<{
  compiled: Node[]
  facts: ReadonlyMap<string, Fact>
}> {
  const inference = new ShapeInference({ trustFile: false, strict: true })
  for (const name of yield* readsOfAll(nodes)) {
    yield
    const [constant, fact] = [pinned.get(name) ?? constants.get(name), facts.get(name)]
    if (constant) inference.defineConstant(name, constant)
    else if (fact) inference.facts.set(name, fact)
  }
  const here = makeGraph({})
  const waiting = new Set<string>()
  const found: Node[] = []
  for (const node of nodes) {
    if (!isDeferred(node, deferred) && !readsOf(node).some(name => waiting.has(name))) {
      yield* inference.inferNodePaced(node, here)
      if (isCompilable(node, inference)) {
        found.push(node)
        continue
      }
    }
    for (const name of node.outputs) if (name !== '') waiting.add(name)
  }
  return { compiled: found, facts: inference.facts }
}

/** Names of all values that nodes read. */
export function* readsOfAll(nodes: readonly Node[]): Paced<Set<string>> {
  const reads = new Set<string>()
  for (const node of nodes) {
    for (const name of readsOf(node)) reads.add(name)
    yield
  }
  return reads
}

const isDeferred = ({ outputs }: Node, deferred: ReadonlySet<string>): boolean =>
  outputs.some(name => deferred.has(name))

function isCompilable(node: Node, { facts }: ShapeInference): boolean {
  if (!loweringOf(node) && !(node.outputs.length === 1 && facts.get(node.outputs[0]!)?.known)) return false
  const tensors = [...node.inputs, ...node.outputs].filter(name => name !== '')
  return tensors.every(name => {
    const type = facts.get(name)?.type
    return isStatic(type) && type?.kind === 'tensor' && type.dtype !== 'string'
  })
}

function* segmentGraph(
  { facts, pinned, constants, states, wanted }: SegmentInput,
  nodes: Node[],
  left: Node[],
): Paced<Graph> {
  const reads = yield* readsOfAll(nodes)
  const later = yield* readsOfAll(left)
  const made = new Set(nodes.flatMap(({ outputs }) => outputs))
  const updates = new Map(
    [...states].filter(
      ([name, next]) => reads.has(name) && !pinned.has(name) && !later.has(name) && made.has(next),
    ),
  )
  const replaced = new Set(updates.values())
  for (const name of wanted) if (!replaced.has(name)) later.add(name)
  const initializers = new Map<string, Constant>()
  for (const name of reads) {
    yield
    const constant = pinned.get(name) ?? constants.get(name)
    if (constant) initializers.set(name, constant)
  }
  const outputs: ValueInfo[] = []
  for (const node of nodes) {
    for (const name of node.outputs) if (later.has(name)) outputs.push({ name })
    yield
  }
  return makeGraph({
    inputs: [...facts]
      .filter(([name]) => reads.has(name) && !initializers.has(name))
      .map(([name, { type }]) => ({ name, type: type! })),
    outputs,
    nodes,
    initializers,
    updates,
  })
}
