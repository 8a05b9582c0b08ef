import { stat } from 'node:fs/promises'
import path from 'node:path'
import type { Command } from 'commander'
import { getConfig, type Precision } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { canonicalOpset, type Graph } from '../graph/graph.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { inferFacts } from '../graph/shape-inference.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import { isGguf } from '../io/gguf/is-gguf.js'
import { readOnnx } from '../io/onnx/read.js'
import { type ModelBackend, modelBackends } from '../model/engine.js'
import { describeType } from '../model/feeds.js'
import type { ModelValue } from '../model/model-value.js'
import { choosePrecision } from '../model/precision.js'
import { choice, UsageError, withExamples } from './command.js'
import { formatCount } from './counts.js'
import { type Inspection, inspect, optimizedGraph, type PlanChoice } from './inspection.js'
import { integerFrom, pathFrom } from './numbers.js'
import { formatBytes, print, printJson, printPairs, styled } from './output.js'
import { nodeTimes, type Profile, profileModel, reportProfile } from './profile.js'
import { inputShapes, parseShape, parseSize, precisionOption, type SizeOptions, sizeHint } from './shapes.js'
import { printTable } from './table.js'

interface InspectOptions extends SizeOptions {
  context?: number
  json?: boolean
  html?: string
  profile?: boolean
  backend?: ModelBackend
  precision?: Precision
}

/** `dgx-spark inspect`: what a model is made of and what it costs, before and after fusion. */
export function addInspect(command: Command): void {
  command
    .argument('<model>', 'an ONNX model, a GGUF file, or the folder of a language model')
    .option('--size <name=number>', 'size of an open dimension (default: 1)', parseSize)
    .option('--shape <input=sizes>', 'shape of an input, such as image=1,3,320,320', parseShape)
    .option('--json', 'print one JSON document')
    .option('--html <file>', 'draw the graph as a page, before and after fusion', pathFrom)
    .option('--profile', 'run the model and show how long each step takes')
    .addOption(choice('--backend <name>', 'engine of plan and profile', modelBackends))
    .addOption(precisionOption('format of weights of plan and profile (default: the best of the hardware)'))
    .option('--context <tokens>', 'context that memory is computed for (GGUF, safetensors)', integerFrom(1))
    .action(run)
  withExamples(
    command,
    'dgx-spark inspect model.onnx',
    'dgx-spark inspect model.onnx --size batch=8 --html model.html',
    'dgx-spark inspect model.onnx --profile --backend cpu --precision bf16',
    'dgx-spark inspect model.gguf --context 8192',
    'dgx-spark inspect Qwen3-0.6B --context 8192',
  )
}

async function run(file: string, options: InspectOptions): Promise<void> {
  const { context, json, ...forOnnx } = options
  const isFolder = (await stat(file).catch(() => undefined))?.isDirectory() ?? false
  if (isFolder || (await isGguf(file))) {
    const [wrong] = Object.keys(forOnnx)
    const what = isFolder ? 'a folder' : 'a GGUF file'
    if (wrong) throw new UsageError(`--${wrong} is for ONNX models; ${what} takes --context and --json`)
    const given = { ...(context && { context }), ...(json && { json }) }
    if (isFolder) return (await import('./text/inspect-folder.js')).inspectFolder(file, given)
    return (await import('./inspect-gguf.js')).inspectGguf(file, given)
  }
  if (context) throw new UsageError(`--context is for language models, and ${file} is none`)
  const original = await readOnnx(file)
  const graph = canonicalise(original)
  const { shapes, why } = fittingShapes(graph, options)
  const { backend = getConfig().backend } = options
  const { name: precision } = await choosePrecision(options.precision, { backend })
  const choice: PlanChoice = { backend, precision }
  const inspection = await inspect(original, graph, shapes, choice, why)
  const title = path.basename(file)
  const profile = options.profile ? await profileModel(file, options) : undefined
  if (options.html) {
    const facts = [...summary(inspection), ...(profile ? [profilePair(profile)] : [])]
    const page = await drawGraphs(title, facts, graph, profile, { shapes, precision })
    await writeFileAtomic(path.resolve(options.html), [Buffer.from(page)])
  }
  if (options.json) {
    printJson({ ...inspection, ...(profile && { profile }) })
    return
  }
  report(title, inspection)
  if (profile) reportProfile(profile)
}

/** Shapes that all nodes fit; or none and the reason, when open sizes were taken as 1 and do not fit. */
function fittingShapes(
  graph: Graph,
  options: SizeOptions,
): { shapes?: Record<string, readonly number[]>; why?: string } {
  const shapes = inputShapes(graph, options)
  try {
    inferFacts(graph, { shapes })
    return { shapes }
  } catch (error) {
    const hint = error instanceof SparkError && error.code === 'ERR_SHAPE' && sizeHint(graph, options)
    if (!hint) throw error
    return { why: `none for these sizes: ${error.message}; ${hint}` }
  }
}

/** The page of a graph as it was read, and as it runs where its shapes are known. */
async function drawGraphs(
  title: string,
  facts: readonly (readonly [string, string])[],
  graph: Graph,
  profile: Profile | undefined,
  { shapes, precision }: { shapes: Record<string, readonly number[]> | undefined; precision: Precision },
): Promise<string> {
  const { graphPage } = await import('./graph-page/page.js')
  const before = inferFacts(graph, shapes && { shapes })
  const after = shapes && (await optimizedGraph(graph, shapes, precision))
  const times = profile && nodeTimes(profile)
  return graphPage({ title, facts }, [
    { title: 'Before fusion', graph, facts: before },
    ...(after
      ? [
          {
            title: 'After fusion',
            graph: after.running,
            facts: inferFacts(after.graph),
            ...(times && { times }),
          },
        ]
      : []),
  ])
}

const describe = ({ name, kind, dtype, shape }: ModelValue): string => {
  const type =
    dtype === null ? 'of unknown type' : describeType({ kind: 'tensor', dtype, ...(shape && { shape }) })
  return `${name}: ${kind === 'tensor' ? type : `${kind} of ${type}`}`
}

/** Layers that are named in the summary; all of them are in the JSON document. */
const shownLayers = 8

function describeLayers(adaptable: Inspection['adaptable']): string {
  const names = adaptable.slice(0, shownLayers).map(({ name, kind }) => `${name} (${kind})`)
  const more = adaptable.length - names.length
  return [names.join(', ') || 'none', ...(more > 0 ? [`and ${more} more (--json lists them)`] : [])].join(' ')
}

/** What a person wants to know first, as names and values. */
function summary(about: Inspection): (readonly [string, string])[] {
  const { plan, optimized, nodes, shapes } = about
  const fusions = Object.entries(about.fusions).map(([name, count]) => `${name} ${count}`)
  const count = optimized.operators.reduce((sum, [, count]) => sum + count, 0)
  const after = (text: string): string => (shapes ? `, ${text} after fusion` : '')
  return [
    ['opset', String(about.opset)],
    ['producer', about.producer],
    ...about.inputs.map(value => ['input', describe(value)] as const),
    ...about.outputs.map(value => ['output', describe(value)] as const),
    [
      'nodes',
      `${nodes.file} in the file, ${nodes.canonical} at opset ${canonicalOpset}${after(String(count))}`,
    ],
    ...(shapes ? [['fusions', fusions.join(', ') || 'none'] as const] : []),
    ['parameters', `${formatCount(about.parameters)}, ${formatBytes(about.parameterBytes)}`],
    ['adaptable', describeLayers(about.adaptable)],
    ['arithmetic', `${formatCount(about.flops, 'FLOP')} a run${after(formatCount(optimized.flops, 'FLOP'))}`],
    [
      'values',
      `${formatBytes(about.activationBytes)} made in a run${after(formatBytes(optimized.activationBytes))}`,
    ],
    ...(about.unknown > 0 ? [['not counted', `${about.unknown} nodes of unknown sizes`] as const] : []),
    ...planPairs(plan),
  ]
}

function profilePair({ backend, precision, steps }: Profile): readonly [string, string] {
  const ms = steps.reduce((sum, step) => sum + step.ms, 0)
  return ['time', `${ms.toFixed(3)} ms in ${steps.length} steps, ${backend.name}, ${precision}`]
}

function report(name: string, about: Inspection): void {
  print(styled('bold', name))
  printPairs(summary(about))
  const after = new Map(about.optimized.operators)
  const before = new Map(about.operators)
  printTable(
    ['operator', 'nodes', 'after fusion'],
    [...new Set([...before.keys(), ...after.keys()])].map(name => [
      name,
      String(before.get(name) ?? 0),
      String(after.get(name) ?? 0),
    ]),
    [1, 2],
  )
}

function planPairs(plan: Inspection['plan']): (readonly [string, string])[] {
  if (typeof plan === 'string') return [['plan', plan]]
  return [
    ['plan', `${plan.steps} kernel calls, compiled in ${plan.compileMs.toFixed(0)} ms`],
    ['arena', `${formatBytes(plan.arenaBytes)}; no layout is below ${formatBytes(plan.lowerBound)}`],
    ['weights', `${formatBytes(plan.constantBytes)} held for the kernels`],
  ]
}
