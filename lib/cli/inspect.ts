import path from 'node:path'
import { type Command, Option } from 'commander'
import type { Precision } from '../core/config.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { inferFacts } from '../graph/shape-inference.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import { readOnnx } from '../io/onnx/read.js'
import { type ModelBackend, modelBackends } from '../model/engine.js'
import { graphPage } from './graph-page.js'
import { type Inspection, inspect, optimizedGraph } from './inspection.js'
import { formatBytes, print, printJson, printPairs, printTable, styled } from './output.js'
import { profileModel, reportProfile } from './profile.js'
import { inputShapes, parseMode, parseSize, type Sizes } from './shapes.js'

interface InspectOptions {
  size?: Sizes
  json?: boolean
  html?: string
  profile?: boolean
  backend?: ModelBackend
  precision?: Precision
}

/** `dgx-spark inspect`: what a model is made of and what it costs, before and after fusion. */
export function addInspect(program: Command): void {
  program
    .command('inspect <model.onnx>')
    .description('show inputs, operators, parameters, arithmetic, fusions and memory of a model')
    .option('--size <name=number>', 'size of an open dimension (default: 1)', parseSize)
    .option('--json', 'print one JSON document')
    .option('--html <file>', 'draw the graph as a page, before and after fusion')
    .option('--profile', 'run the model and show how long each step takes')
    .addOption(new Option('--backend <name>', 'engine of --profile').choices(modelBackends))
    .option('--precision <mode>', 'format of weights of --profile', parseMode)
    .action(async (file: string, options: InspectOptions) => {
      const { size = {} } = options
      const original = await readOnnx(file)
      const graph = canonicalise(original)
      const shapes = inputShapes(graph, size)
      const inspection = inspect(original, graph, shapes)
      const title = path.basename(file)
      if (options.html) {
        const { graph: optimized, running, fusions } = optimizedGraph(graph, shapes)
        const page = graphPage(title, fusions, [
          { title: 'Canonical', graph, facts: inferFacts(graph, { shapes }) },
          { title: 'After fusion', graph: running, facts: inferFacts(optimized) },
        ])
        await writeFileAtomic(path.resolve(options.html), [Buffer.from(page)])
      }
      const profile = options.profile ? await profileModel(file, size, options) : undefined
      if (options.json) {
        printJson({ ...inspection, ...(profile && { profile }) })
        return
      }
      report(title, inspection)
      if (profile) reportProfile(profile)
    })
}

/** Counts with a unit: 4.1 G. */
function formatCount(count: number): string {
  const units = ['', ' k', ' M', ' G', ' T']
  const power = count < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(count) / 3))
  return `${(count / 1000 ** power).toFixed(power === 0 ? 0 : 2)}${units[power]}`
}

function report(name: string, about: Inspection): void {
  const { plan, optimized, fusions } = about
  const made = Object.entries(fusions).map(([name, count]) => `${name} ${count}`)
  print(styled('bold', name))
  printPairs([
    ['opset', String(about.opset)],
    ['producer', about.producer],
    ...about.inputs.map(text => ['input', text] as const),
    ...about.outputs.map(text => ['output', text] as const),
    [
      'nodes',
      `${about.nodes[0]} in the file, ${about.nodes[1]} canonical, ${nodeCount(optimized)} after fusion`,
    ],
    ['fusions', made.join(', ') || 'none'],
    ['parameters', `${formatCount(about.parameters)}, ${formatBytes(about.parameterBytes)}`],
    ['arithmetic', `${formatCount(about.flops)}FLOP a run, ${formatCount(optimized.flops)}FLOP after fusion`],
    [
      'values',
      `${formatBytes(about.activationBytes)} made in a run, ${formatBytes(optimized.activationBytes)} after fusion`,
    ],
    ...(about.unknown > 0 ? [['not counted', `${about.unknown} nodes of unknown sizes`] as const] : []),
    ...planPairs(plan),
  ])
  const after = new Map(optimized.operators)
  const operators = new Set([...about.operators, ...optimized.operators].map(([operator]) => operator))
  const before = new Map(about.operators)
  printTable(
    ['operator', 'nodes', 'after fusion'],
    [...operators].map(name => [name, String(before.get(name) ?? 0), String(after.get(name) ?? 0)]),
    [1, 2],
  )
}

const nodeCount = ({ operators }: Inspection['optimized']): number =>
  operators.reduce((sum, [, count]) => sum + count, 0)

function planPairs(plan: Inspection['plan']): (readonly [string, string])[] {
  if (typeof plan === 'string') return [['plan', plan]]
  return [
    ['plan', `${plan.steps} kernel calls, compiled in ${plan.compileMs.toFixed(0)} ms`],
    ['arena', `${formatBytes(plan.arenaBytes)}; no layout is below ${formatBytes(plan.lowerBound)}`],
    ['weights', `${formatBytes(plan.constantBytes)} held for the kernels`],
  ]
}
