// diagram.ts: a graph as boxes and the edges between them.
import type { Constant } from '../../graph/constant.js'
import { readsOf, subgraphsOf } from '../../graph/edit.js'
import type { Node, Subgraph, ValueInfo } from '../../graph/graph.js'
import type { Fact } from '../../graph/shape-inference.js'
import { workOf } from '../../graph/statistics.js'
import { describeType } from '../../model/feeds.js'
import { inputKind, type Kind, kindOf, outputKind } from './kinds.js'
import { attributesOf, constantText } from './labels.js'

/** A graph to draw, and what is known of it. */
export interface Section {
  readonly title: string
  readonly graph: Subgraph
  readonly facts: ReadonlyMap<string, Fact>
  /** Milliseconds of a run by the name of a node, or of its first output. */
  readonly times?: ReadonlyMap<string, number>
  /** Of a branch or loop body: the constants of the graphs around it. */
  readonly outer?: ReadonlyMap<string, Constant>
}

/** A value at a box: its name, type, and the boxes at its other end. */
export interface Port {
  readonly name: string
  readonly type: string
  readonly boxes: readonly number[]
  /** The text of a constant. */
  readonly constant?: string
}

/** A node, or an input or output of the graph. */
export interface Box {
  readonly kind: Kind
  /** Operator, input or output. */
  readonly title: string
  /** Who defines the operator; '' is ONNX. */
  readonly domain: string
  readonly name: string
  readonly attributes: readonly string[]
  readonly reads: readonly Port[]
  readonly makes: readonly Port[]
  /** Multiplications and additions; absent for ends and unknown sizes. */
  readonly flops?: number
  /** Milliseconds of a run, where it was measured. */
  readonly ms?: number
  /** Branches and loop bodies. */
  readonly bodies: readonly Subgraph[]
}

/** Something flows from one box to another. */
export interface Edge {
  readonly from: number
  readonly to: number
}

/** Boxes in an order in which edges lead forward. */
export interface Diagram {
  readonly boxes: readonly Box[]
  readonly edges: readonly Edge[]
}

/** The boxes of a section: inputs, nodes, outputs. Constants are part of the boxes that read them. */
export function diagramOf(section: Section): Diagram {
  const { graph } = section
  const inputs = graph.inputs.filter(({ name }) => !graph.initializers.has(name))
  const nodes = graph.nodes.filter(node => !isConstantNode(node))
  const ports = portsOf(section, inputs, nodes)
  const end = (kind: Kind, { name, type }: ValueInfo): Omit<Box, 'reads' | 'makes'> => {
    const described = describeType(section.facts.get(name)?.type ?? type)
    return { kind, title: kind.name, domain: '', name, attributes: [described], bodies: [] }
  }
  const boxes: Box[] = [
    ...inputs.map(info => ({ ...end(inputKind, info), reads: [], makes: [ports.made(info.name)] })),
    ...nodes.map(node => boxOf(node, section, ports)),
    ...graph.outputs.map(info => ({ ...end(outputKind, info), reads: [ports.read(info.name)], makes: [] })),
  ]
  const edges = boxes.flatMap(({ reads }, to) =>
    [...new Set(reads.flatMap(port => port.boxes))].map(from => ({ from, to })),
  )
  return { boxes, edges }
}

const isConstantNode = ({ op, domain }: Node): boolean => op === 'Constant' && domain === ''

/** The constants that nodes of a section may read, those of the graphs around it included. */
export function constantsOf({ graph, outer = new Map() }: Section): Map<string, Constant> {
  const constants = new Map<string, Constant>([...outer, ...graph.initializers])
  for (const { outputs, attributes } of graph.nodes.filter(isConstantNode)) {
    const { value } = attributes
    if (value?.type === 'tensor') constants.set(outputs[0]!, value.value)
  }
  return constants
}

interface Ports {
  read(name: string): Port
  made(name: string): Port
}

function portsOf(section: Section, inputs: readonly ValueInfo[], nodes: readonly Node[]): Ports {
  const { graph, facts, outer } = section
  const constants = constantsOf(section)
  const makers = new Map(inputs.map(({ name }, i) => [name, i]))
  for (const [i, { outputs }] of nodes.entries())
    for (const name of outputs) if (name !== '') makers.set(name, inputs.length + i)
  const readers = new Map<string, number[]>()
  const reads = [...nodes.map(node => new Set(readsOf(node))), ...graph.outputs.map(({ name }) => [name])]
  for (const [i, names] of reads.entries()) {
    for (const name of names) {
      const list = readers.get(name)
      if (list) list.push(inputs.length + i)
      else readers.set(name, [inputs.length + i])
    }
  }
  const typeOf = (name: string): string => describeType(facts.get(name)?.type)
  const read = (name: string): Port => {
    const [maker, constant, type] = [makers.get(name), constants.get(name), typeOf(name)]
    if (maker !== undefined) return { name, type, boxes: [maker] }
    if (constant) return { name, type, boxes: [], constant: constantText(constant) }
    // Nodes that are computed once, on constants, are not drawn.
    return { name, type, boxes: [], ...(!outer && { constant: type }) }
  }
  return { read, made: name => ({ name, type: typeOf(name), boxes: readers.get(name) ?? [] }) }
}

function boxOf(node: Node, { facts, times }: Section, ports: Ports): Box {
  const { op, domain, name, outputs } = node
  const flops = workOf(node, facts)?.flops
  const ms = times?.get(name) ?? times?.get(outputs[0] ?? '')
  return {
    kind: kindOf(node),
    title: op,
    domain,
    name: name || outputs.find(Boolean) || '',
    attributes: attributesOf(node),
    reads: readsOf(node).map(ports.read),
    makes: outputs.filter(Boolean).map(ports.made),
    ...(flops !== undefined && { flops }),
    ...(ms !== undefined && { ms }),
    bodies: subgraphsOf(node),
  }
}
