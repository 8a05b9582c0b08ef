import path from 'node:path'
import type { Command } from 'commander'
import { SparkError } from '../core/errors.js'
import type { Graph, ValueInfo } from '../graph/graph.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { inlineBranches } from '../graph/rewrites/inline-branches.js'
import { optimize } from '../graph/rewrites/optimize.js'
import { inferFacts } from '../graph/shape-inference.js'
import { type GraphStatistics, graphStatistics } from '../graph/statistics.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import { readOnnx } from '../io/onnx/read.js'
import { describeType } from '../runtime/model/feeds.js'
import { compile } from '../runtime/plan/compile.js'
import { graphPage } from './graph-page.js'
import { formatBytes, print, printJson, printPairs, printTable, styled } from './output.js'
import { inputShapes, parseSize, type Sizes } from './shapes.js'

/** What is known of a model. */
interface Inspection extends GraphStatistics {
  readonly opset: number
  readonly producer: string
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  /** Nodes in the file, and after it was brought to the canonical opset. */
  readonly nodes: readonly [file: number, canonical: number]
  /** The compiled plan, or why there is none. */
  readonly plan: PlanSummary | string
}

/** A compiled plan, and the milliseconds that it took to optimize the graph and to plan it. */
interface PlanSummary {
  readonly steps: number
  readonly arenaBytes: number
  readonly lowerBound: number
  readonly compileMs: number
}

/** `dgx-spark inspect`: what a model is made of and what it costs. */
export function addInspect(program: Command): void {
  program
    .command('inspect <model.onnx>')
    .description('show inputs, outputs, operators, parameters, arithmetic and memory of a model')
    .option('--size <name=number>', 'size of an open dimension (default: 1)', parseSize)
    .option('--json', 'print one JSON document')
    .option('--html <file>', 'draw the graph as a page')
    .action(async (file: string, options: { size?: Sizes; json?: boolean; html?: string }) => {
      const original = await readOnnx(file)
      const graph = canonicalise(original)
      const shapes = inputShapes(graph, options.size ?? {})
      const inspection = inspect(original, graph, shapes)
      if (options.html) {
        const page = graphPage(path.basename(file), graph, inferFacts(graph, { shapes }))
        await writeFileAtomic(path.resolve(options.html), [Buffer.from(page)])
      }
      if (options.json) printJson(inspection)
      else report(path.basename(file), inspection)
    })
}

const describe = ({ name, type }: ValueInfo): string => `${name}: ${describeType(type)}`

function inspect(original: Graph, graph: Graph, shapes: Record<string, number[]>): Inspection {
  const facts = inferFacts(graph, { shapes })
  const typed = (info: ValueInfo): ValueInfo => {
    const type = info.type ?? facts.get(info.name)?.type
    return type ? { name: info.name, type } : info
  }
  return {
    opset: original.opsets.get('') ?? 1,
    producer: [original.producer.name, original.producer.version].filter(Boolean).join(' ') || 'unknown',
    inputs: graph.inputs.map(describe),
    outputs: graph.outputs.map(info => describe(typed(info))),
    nodes: [original.nodes.length, graph.nodes.length],
    ...graphStatistics(graph, facts),
    plan: planOf(graph, shapes),
  }
}

function planOf(graph: Graph, shapes: Record<string, number[]>): Inspection['plan'] {
  const start = performance.now()
  try {
    const inputs = graph.inputs.map(({ name, type }) => {
      const shape = shapes[name]
      return { name, type: shape && type?.kind === 'tensor' ? { ...type, shape } : type }
    })
    const decided = inlineBranches({ ...graph, inputs: inputs as readonly ValueInfo[] })
    const { steps, arenaBytes, lowerBound } = compile(optimize(decided).graph)
    return { steps: steps.length, arenaBytes, lowerBound, compileMs: performance.now() - start }
  } catch (error) {
    if (!(error instanceof SparkError)) throw error
    return `not one plan: ${error.message}`
  }
}

/** Counts with a unit: 4.1 G. */
function formatCount(count: number): string {
  const units = ['', ' k', ' M', ' G', ' T']
  const power = count < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(count) / 3))
  return `${(count / 1000 ** power).toFixed(power === 0 ? 0 : 2)}${units[power]}`
}

function report(name: string, about: Inspection): void {
  const { plan } = about
  print(styled('bold', name))
  printPairs([
    ['opset', String(about.opset)],
    ['producer', about.producer],
    ...about.inputs.map(text => ['input', text] as const),
    ...about.outputs.map(text => ['output', text] as const),
    ['nodes', `${about.nodes[0]} in the file, ${about.nodes[1]} canonical`],
    ['parameters', `${formatCount(about.parameters)}, ${formatBytes(about.parameterBytes)}`],
    ['arithmetic', `${formatCount(about.flops)}FLOP a run`],
    ['values', `${formatBytes(about.activationBytes)} made in a run`],
    ...(about.unknown > 0 ? [['not counted', `${about.unknown} nodes of unknown sizes`] as const] : []),
    ...(typeof plan === 'string'
      ? [['plan', plan] as const]
      : ([
          ['plan', `${plan.steps} kernel calls, compiled in ${plan.compileMs.toFixed(1)} ms`],
          ['arena', `${formatBytes(plan.arenaBytes)}; no layout is below ${formatBytes(plan.lowerBound)}`],
        ] as const)),
  ])
  printTable(
    ['operator', 'nodes'],
    about.operators.map(([operator, count]) => [operator, String(count)]),
    [1],
  )
}
