// inspection.ts: statistics of a model before and after optimization.

import { SparkError } from '../core/errors.js'
import { atOnce } from '../core/paced.js'
import type { Graph, ValueInfo } from '../graph/graph.js'
import { GraphView } from '../graph/rewrites/fuse/pattern.js'
import { inlineBranches } from '../graph/rewrites/inline-branches.js'
import { optimize } from '../graph/rewrites/optimize.js'
import { inferFacts } from '../graph/shape-inference.js'
import { type GraphStatistics, graphStatistics } from '../graph/statistics.js'
import { describeType } from '../model/feeds.js'
import { compile } from '../plan/compile.js'

/** The inspected properties of a model. */
export interface Inspection extends GraphStatistics {
  readonly opset: number
  readonly producer: string
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  /** Nodes in the file, and after it was brought to the canonical opset. */
  readonly nodes: readonly [file: number, canonical: number]
  /** How often each fusion was made. */
  readonly fusions: Readonly<Record<string, number>>
  /** The nodes that run after fusion. */
  readonly optimized: GraphStatistics
  /** The compiled plan, or why there is none. */
  readonly plan:
    | {
        readonly steps: number
        readonly arenaBytes: number
        readonly lowerBound: number
        readonly constantBytes: number
        readonly compileMs: number
      }
    | string
}

const describe = ({ name, type }: ValueInfo): string => `${name}: ${describeType(type)}`

/** The graph with the given sizes of its inputs. */
function sized(graph: Graph, shapes: Readonly<Record<string, readonly number[]>>): Graph {
  const inputs = graph.inputs.map(({ name, type }): ValueInfo => {
    const shape = Object.hasOwn(shapes, name) ? shapes[name] : undefined
    return shape && type?.kind === 'tensor'
      ? { name, type: { ...type, shape } }
      : { name, ...(type && { type }) }
  })
  return { ...graph, inputs }
}

/** The graph that runs for the given sizes, without the nodes that are computed once, and the fusions that made it. */
export function optimizedGraph(
  graph: Graph,
  shapes: Readonly<Record<string, readonly number[]>>,
): { graph: Graph; running: Graph; fusions: Readonly<Record<string, number>> } {
  const { graph: optimized, fusions } = optimize(inlineBranches(sized(graph, shapes)))
  const view = atOnce(GraphView.of(optimized))
  const nodes = optimized.nodes.filter(
    ({ outputs }) => !outputs.every(name => name === '' || view.isConstant(name)),
  )
  return { graph: optimized, running: { ...optimized, nodes }, fusions: Object.fromEntries(fusions) }
}

/** Everything about a model: the graph as it was read, and as it is canonical. */
export function inspect(original: Graph, graph: Graph, shapes: Record<string, number[]>): Inspection {
  const facts = inferFacts(graph, { shapes })
  const typed = (info: ValueInfo): ValueInfo => {
    const type = info.type ?? facts.get(info.name)?.type
    return type ? { name: info.name, type } : info
  }
  const start = performance.now()
  const { graph: optimized, running, fusions } = optimizedGraph(graph, shapes)
  return {
    opset: original.opsets.get('') ?? 1,
    producer: [original.producer.name, original.producer.version].filter(Boolean).join(' ') || 'unknown',
    inputs: graph.inputs.map(describe),
    outputs: graph.outputs.map(info => describe(typed(info))),
    nodes: [original.nodes.length, graph.nodes.length],
    ...graphStatistics(graph, facts),
    fusions,
    optimized: graphStatistics(running, inferFacts(optimized)),
    plan: planOf(optimized, start),
  }
}

function planOf(graph: Graph, start: number): Inspection['plan'] {
  try {
    const { steps, arenaBytes, lowerBound, constantBytes } = compile(graph, { backend: 'cpu' })
    const compileMs = performance.now() - start
    return { steps: steps.length, arenaBytes, lowerBound, constantBytes, compileMs }
  } catch (error) {
    if (!(error instanceof SparkError)) throw error
    return `not one plan: ${error.message}`
  }
}
