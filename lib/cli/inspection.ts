// inspection.ts: statistics of a model before and after optimization, and the plan that runs it.
import type { Precision } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { atOnce, Pacer } from '../core/paced.js'
import { findModules } from '../dora/model/find-modules.js'
import { describeNode } from '../graph/attributes.js'
import type { Graph, ValueInfo } from '../graph/graph.js'
import { GraphView } from '../graph/rewrites/fuse/pattern.js'
import { type Fact, inferFacts } from '../graph/shape-inference.js'
import { type GraphStatistics, graphStatistics } from '../graph/statistics.js'
import { openKernels } from '../kernels/open.js'
import type { ModelBackend } from '../model/engine.js'
import { isHostOperator } from '../model/host/index.js'
import { describeValue, type ModelValue } from '../model/model-value.js'
import { rewriteForInference } from '../pipeline.js'
import { layOut } from '../plan/arena.js'
import { compilePaced, optionsFor } from '../plan/compile.js'
import { constantBytesOf } from '../plan/program.js'
import type { Shapes } from './shapes.js'

/** The inspected properties of a model. */
export interface Inspection extends GraphStatistics {
  readonly opset: number
  readonly producer: string
  readonly inputs: readonly ModelValue[]
  readonly outputs: readonly ModelValue[]
  /** Shapes of the inputs that all numbers are for; undefined when there are none that fit. */
  readonly shapes: Shapes | undefined
  /** Nodes in the file, and at the opset that all models are rewritten to. */
  readonly nodes: { readonly file: number; readonly canonical: number }
  /** Layers that an adapter can target. */
  readonly adaptable: readonly {
    readonly name: string
    readonly kind: string
    readonly shape: readonly number[]
  }[]
  /** How often each fusion was made. */
  readonly fusions: Readonly<Record<string, number>>
  /** The nodes that run after fusion. */
  readonly optimized: GraphStatistics
  /** The compiled plan, or why there is not one. */
  readonly plan: PlanNumbers | string
}

/** Numbers of a plan. */
export interface PlanNumbers {
  readonly steps: number
  readonly arenaBytes: number
  readonly lowerBound: number
  readonly constantBytes: number
  readonly compileMs: number
}

/** What decides which plan runs. */
export interface PlanChoice {
  readonly backend: ModelBackend
  readonly precision: Precision
}

/** A graph as plans of ours run it, and the fusions that made it. */
export interface Optimized {
  readonly graph: Graph
  /** Without the nodes that are computed once. */
  readonly running: Graph
  readonly fusions: Readonly<Record<string, number>>
}

/** The graph with the given sizes of its inputs. */
function sized(graph: Graph, shapes: Shapes): Graph {
  const inputs = graph.inputs.map(({ name, type }): ValueInfo => {
    const shape = Object.hasOwn(shapes, name) ? shapes[name] : undefined
    return shape && type?.kind === 'tensor'
      ? { name, type: { ...type, shape } }
      : { name, ...(type && { type }) }
  })
  return { ...graph, inputs }
}

/** The graph after all rewrites of inference in `precision`, for inputs of these shapes. */
export async function optimizedGraph(
  graph: Graph,
  shapes: Shapes,
  precision: Precision = 'fp32',
): Promise<Optimized> {
  const fusions = new Map<string, number>()
  const rounded = await rewriteForInference('round', graph, { mode: precision })
  const opened = await rewriteForInference('open', rounded, {})
  const specialised = await rewriteForInference('specialise', sized(opened, shapes), {})
  const optimized = await rewriteForInference('compile', specialised, {
    onFusions(counts) {
      for (const [name, count] of counts) fusions.set(name, count)
    },
  })
  const view = atOnce(GraphView.of(optimized))
  const nodes = optimized.nodes.filter(
    ({ outputs }) => !outputs.every(name => name === '' || view.isConstant(name)),
  )
  return { graph: optimized, running: { ...optimized, nodes }, fusions: Object.fromEntries(fusions) }
}

/**
 * Everything about a model: the graph as it was read, and as it is canonical.
 * @param shapes - of the inputs; undefined when there are none, so that sizes stay open and nothing is compiled
 * @param why - there are no shapes
 */
export async function inspect(
  original: Graph,
  graph: Graph,
  shapes: Shapes | undefined,
  choice: PlanChoice,
  why = '',
): Promise<Inspection> {
  const facts = inferFacts(graph, shapes && { shapes: shapes as Record<string, number[]> })
  const start = performance.now()
  const optimized = shapes && (await optimizedGraph(graph, shapes, choice.precision))
  const compiled = optimized ? await planOf(optimized.graph, choice, start) : why
  return {
    opset: original.opsets.get('') ?? 1,
    producer: [original.producer.name, original.producer.version].filter(Boolean).join(' ') || 'unknown',
    inputs: graph.inputs.map(describeValue),
    outputs: graph.outputs.map(info => describeValue(typed(info, facts))),
    shapes,
    nodes: { file: original.nodes.length, canonical: graph.nodes.length },
    adaptable: findModules(graph).map(({ name, kind, shape }) => ({ name, kind, shape })),
    ...graphStatistics(graph, facts),
    fusions: optimized?.fusions ?? {},
    optimized: graphStatistics(optimized?.running ?? graph, optimized ? inferFacts(optimized.graph) : facts),
    plan: compiled,
  }
}

function typed(info: ValueInfo, facts: ReadonlyMap<string, Fact>): ValueInfo {
  const type = info.type ?? facts.get(info.name)?.type
  return type ? { name: info.name, type } : info
}

async function planOf(graph: Graph, choice: PlanChoice, start: number): Promise<PlanNumbers | string> {
  if (choice.backend === 'onnxruntime') return 'made by ONNX Runtime'
  try {
    const kernels = await openKernels({ backend: choice.backend })
    const options = { ...optionsFor(kernels), mode: choice.precision }
    const program = await new Pacer().do(compilePaced(graph, options))
    const { steps } = program
    const constantBytes = constantBytesOf(program)
    const { arenaBytes, lowerBound } = await new Pacer().do(layOut(steps))
    return {
      steps: steps.length,
      arenaBytes,
      lowerBound,
      constantBytes,
      compileMs: performance.now() - start,
    }
  } catch (error) {
    if (!(error instanceof SparkError)) throw error
    const host = graph.nodes.find(isHostOperator)
    const why = host ? `${describeNode(host)} runs between them` : error.message
    const isSeveral = host !== undefined || error.message.includes('depends on data')
    return isSeveral ? `several, made during a run: ${why}; --profile shows them` : why
  }
}
