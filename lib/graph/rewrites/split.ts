// split.ts: a graph that several ranks share: each has a part of the weights, and AllReduce adds what they make.
import { argumentError, expectInteger, expectKnownOptions } from '../../core/checks.js'
import { elementArrayOf } from '../../core/dtype.js'
import { formatInfo, weightSizes } from '../../weights/formats.js'
import { describeNode } from '../attributes.js'
import type { Constant } from '../constant.js'
import { type Graph, sparkDomain } from '../graph.js'
import { removeDead } from './remove-dead.js'
import { applySplit } from './split/apply-split.js'
import { SplitFacts } from './split/facts.js'
import { planSplit, type SplitPlan } from './split/plan-split.js'

/** Options of {@link splitGraph}. */
export interface SplitOptions {
  /** Which rank: 0 to world − 1. */
  readonly rank: number
  /** How many ranks share the graph. */
  readonly world: number
}

/** What a rank runs. */
export interface SplitGraph {
  /** Its graph: inputs and outputs are those of the whole, but for states by heads, of which it keeps a part. */
  readonly graph: Graph
  /** Nodes that ranks share, as errors name them, and how. */
  readonly shared: ReadonlyMap<string, 'columns' | 'sum' | 'rows' | 'table'>
  /** Why weights, and nodes of attention, stay whole on all ranks, by their names; small weights are left out. */
  readonly whole: ReadonlyMap<string, string>
  /** Bytes of weights of this rank, and of the whole graph, in their formats. */
  readonly bytes: { readonly own: number; readonly whole: number }
  /** Sums over all ranks in a run. */
  readonly allReduces: number
}

/**
 * Splits a canonical graph over ranks. Products whose results are read in parts are cut by out features (queries, keys, values, gates,
 * ups), the products behind them by in features (outputs, downs), and their results are summed by AllReduce; attention is cut by
 * heads with its caches, convolutions by channels, experts by rows. What is left and large, such as the head and the table of a
 * vocabulary, is cut by rows, and a sum with zeros puts the results together. Weights stay in their formats: what would cut a block
 * stays whole. All ranks run the same sums in the same order, and each has all outputs. Initializers cannot be fed any more.
 * @throws SparkError ERR_ARGUMENT; ERR_SHAPE as `inferFacts`
 */
export function splitGraph(graph: Graph, options: SplitOptions): SplitGraph {
  expectKnownOptions('options', options, ['rank', 'world'])
  const { rank, world } = options
  expectInteger('options.world', world, 1, 1024)
  expectInteger('options.rank', rank, 0, world - 1)
  if (graph.functions.length > 0) throw argumentError('graph', 'a canonical graph', graph.name)
  const facts = new SplitFacts({ ...graph, overridable: [] }, world)
  const plan = planSplit(facts)
  const own = world === 1 ? graph : removeDead(applySplit(plan, facts, { rank, world }))
  return {
    graph: own,
    shared: world === 1 ? new Map() : sharedNodes(plan),
    whole: plan.whole,
    bytes: { own: storedBytes(own), whole: storedBytes(graph) },
    allReduces: own.nodes.filter(({ op, domain }) => op === 'AllReduce' && domain === sparkDomain).length,
  }
}

function sharedNodes({ parts, summed, gathered, tables }: SplitPlan): SplitGraph['shared'] {
  const columns = [...parts].filter(([, { isGain }]) => isGain).map(([node]) => node)
  const named = (
    nodes: Iterable<Parameters<typeof describeNode>[0]>,
    how: 'columns' | 'sum' | 'rows' | 'table',
  ) => [...nodes].map(node => [describeNode(node), how] as const)
  return new Map([
    ...named(columns, 'columns'),
    ...named(summed.keys(), 'sum'),
    ...named(gathered.keys(), 'rows'),
    ...named(tables, 'table'),
  ])
}

const storedBytes = ({ initializers }: Graph): number =>
  [...initializers.values()].reduce((sum, constant) => sum + bytesOf(constant), 0)

function bytesOf({ weight, byteLength }: Constant): number {
  if (!weight) return byteLength
  const { format, rows, cols } = weight.shared
  const { data, rowScale, blockScale } = weightSizes(format, rows, cols)
  return data * elementArrayOf(formatInfo(format).dtype).BYTES_PER_ELEMENT + 4 * rowScale + blockScale
}
