// place.ts: `dgx-spark place`: where the layers of a model go in a fleet of machines, which need not exist.
import path from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { defaultStatePort } from '../../cluster/node/node-options.js'
import type { Objective } from '../../cluster/placement/chain.js'
import { gigabytes } from '../../cluster/placement/constraints.js'
import { layerRange, type ModelCosts } from '../../cluster/placement/costs.js'
import type { Fleet } from '../../cluster/placement/fleet.js'
import type { Placement } from '../../cluster/placement/place.js'
import { milliseconds, type PlacementReport } from '../../cluster/placement/report.js'
import { SparkError } from '../../core/errors.js'
import { writeFileAtomic } from '../../io/atomic-write.js'
import { readJson } from '../../io/read-file.js'
import { choice, UsageError, withExamples } from '../command.js'
import { formatCount } from '../counts.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { formatBytes, print, printJson, printPairs, styled } from '../output.js'
import { parseShape, type Shapes } from '../shapes.js'
import { printTable } from '../table.js'
import { stateAt } from './state-at.js'

interface Flags {
  fleet?: string
  cluster?: boolean
  statePort: number
  objective: Objective
  context?: number
  batch: number
  sequences?: number
  pin?: string[]
  backend?: string[]
  tensorParallel: boolean
  shape?: Shapes
  html?: string
  json?: boolean
  schema?: boolean
}

/** `dgx-spark place`: layers of a model on the devices of a fleet, stage times, what would help, why devices were left out. */
export function addPlace(command: Command): void {
  command
    .argument('[model]', 'a GGUF file, the folder of a language model, or an ONNX model')
    .option('--fleet <file>', 'machines, their devices and links (JSON; --schema describes it)', pathFrom)
    .option('--cluster', 'the machines of the cluster that runs, with what was measured of them')
    .option(
      '--state-port <n>',
      'port that dgx-spark up tells its state at',
      integerFrom(1, 65535),
      defaultStatePort,
    )
    .addOption(
      choice('--objective <name>', 'what is minimized', ['latency', 'throughput']).default('latency'),
    )
    .option('--context <tokens>', 'tokens that keys and values are kept of (default: 8192)', integerFrom(1))
    .option('--batch <n>', 'sequences of a step', integerFrom(1), 1)
    .option(
      '--sequences <n>',
      'sequences that memory holds, of all stages (default: a batch)',
      integerFrom(1),
    )
    .option(
      '--pin <layers=node>',
      'put layers on a node or device, such as 0-10=spark-1; again and again',
      collect,
    )
    .option('--backend <name>', 'use devices of this backend only; again and again', collect)
    .option('--no-tensor-parallel', 'no groups of devices that share layers')
    .option(
      '--shape <input=sizes>',
      'shape of an input of an ONNX model (default: open sizes are 1)',
      parseShape,
    )
    .option('--html <file>', 'write a page', pathFrom)
    .option('--json', 'print one JSON document')
    .option('--schema', 'print the JSON Schema of the fleet, and the presets')
    .action(run)
  withExamples(
    command,
    'dgx-spark place model.gguf --fleet fleet.json',
    'dgx-spark place Qwen3-32B --fleet fleet.json --objective throughput --batch 16',
    'dgx-spark place model.gguf --fleet fleet.json --pin 0-10=spark-1 --html placement.html',
    'dgx-spark place model.gguf --cluster',
    'dgx-spark place --schema',
  )
}

function collect(text: string, others: readonly string[] = []): string[] {
  if (text === '') throw new InvalidArgumentError('expected a text')
  return [...others, text]
}

async function run(model: string | undefined, flags: Flags): Promise<void> {
  const {
    fleet: file,
    objective,
    sequences,
    context,
    batch,
    pin: pins,
    backend: backends,
    tensorParallel,
    shape,
  } = flags
  if (flags.schema) {
    const [{ fleetSchema }, { presets }] = await Promise.all([
      import('../../cluster/placement/fleet-schema.js'),
      import('../../cluster/placement/presets.js'),
    ])
    printJson({ ...fleetSchema, $comment: { presets } })
    return
  }
  if (model === undefined) throw new UsageError('missing a model: a GGUF file, a folder, or an ONNX model')
  if (flags.cluster ? file !== undefined : file === undefined)
    throw new UsageError('give --fleet <file>, which dgx-spark place --schema describes, or --cluster')
  const [{ modelCosts }, { reportPlacement }] = await Promise.all([
    import('../../cluster/placement/model-costs.js'),
    import('../../cluster/placement/report.js'),
  ])
  const fleet = file === undefined ? await liveFleet(flags) : await fleetIn(file)
  const costs = await modelCosts(model, shape && { shapes: shape })
  const report = await reportPlacement(costs, fleet, {
    ...{ objective, batch, tensorParallel },
    ...(context !== undefined && { context }),
    ...(sequences !== undefined && { sequences }),
    ...(pins && { pins }),
    ...(backends && { backends }),
  })
  const page = flags.html === undefined ? undefined : await writePage(flags.html, costs, fleet, report)
  if (flags.json) printJson({ model: costs.name, ...documentOf(costs, report), ...(page && { page }) })
  else {
    show(costs, report)
    if (page) print(`wrote ${page.file} (${formatBytes(page.bytes)})`)
  }
}

async function fleetIn(file: string): Promise<Fleet> {
  const { readFleet } = await import('../../cluster/placement/fleet.js')
  return readFleet(await readJson(file), path.basename(file))
}

async function liveFleet({ statePort, json }: Flags): Promise<Fleet> {
  const [{ readFleet }, { fleetOf }] = await Promise.all([
    import('../../cluster/placement/fleet.js'),
    import('../../cluster/node/live-fleet.js'),
  ])
  const { fleet, leftOut } = fleetOf(await stateAt(statePort))
  for (const reason of leftOut) if (!json) print(`left out: ${reason}`)
  if (fleet.nodes.length > 0) return readFleet(fleet, 'the cluster')
  throw new SparkError('ERR_BUSY', 'no device of the cluster was measured yet: try again in some seconds')
}

async function writePage(
  file: string,
  costs: ModelCosts,
  fleet: Fleet,
  report: PlacementReport,
): Promise<{ file: string; bytes: number }> {
  const { placementPage } = await import('../placement-page/page.js')
  const page = Buffer.from(placementPage(summary(costs, report.placement), costs, fleet, report))
  await writeFileAtomic(path.resolve(file), [page])
  return { file, bytes: page.length }
}

/** The JSON document. */
const documentOf = (costs: ModelCosts, { placement, helps, unused }: PlacementReport) => ({
  ...placement,
  stages: placement.stages.map(stage => ({ ...stage, layers: layerRange(costs, stage.from, stage.end) })),
  unused,
  helps,
  layers: costs.layers.map(({ name }) => name),
})

function show(costs: ModelCosts, { placement, helps, unused }: PlacementReport): void {
  print(styled('bold', costs.name))
  printPairs(summary(costs, placement))
  print(`  ${strip(placement, costs.layers.length)}`)
  printTable(
    ['', 'devices', 'layers', 'time', 'receives', 'needs', 'free'],
    placement.stages.map((stage, i) => [
      letterOf(i),
      stage.devices.join(' + '),
      layerRange(costs, stage.from, stage.end),
      milliseconds(stage.seconds),
      i === 0 ? '' : milliseconds(stage.hopSeconds),
      gigabytes(stage.bytes),
      gigabytes(stage.freeBytes),
    ]),
    [3, 4, 5, 6],
  )
  if (helps.length > 0)
    printTable(
      ['what would help', 'then', 'less'],
      helps.map(({ change, seconds, gain }) => [
        change,
        milliseconds(seconds),
        `${(100 * gain).toFixed(1)} %`,
      ]),
      [1, 2],
    )
  if (unused.length > 0)
    printTable(
      ['left out', 'why'],
      grouped(unused).map(({ device, why }) => [device, why]),
    )
}

/** Devices with the same reason in one row. */
export function grouped(unused: PlacementReport['unused']): { device: string; why: string }[] {
  const reasons = new Map<string, string[]>()
  for (const { device, why } of unused) reasons.set(why, [...(reasons.get(why) ?? []), device])
  return [...reasons].map(([why, devices]) => {
    const rest = devices.length - 3
    return { device: [...devices.slice(0, 3), ...(rest > 0 ? [`and ${rest} more`] : [])].join(', '), why }
  })
}

const letterOf = (i: number): string => (i < 26 ? String.fromCharCode(65 + i) : `${i + 1}`)

/** One letter a layer where they fit in a line, else in proportion. */
function strip({ stages }: Placement, layers: number): string {
  const width = Math.min(layers, 96)
  const parts = stages.map(({ from, end }, i) => {
    const columns = Math.round((end * width) / layers) - Math.round((from * width) / layers)
    return letterOf(i).slice(0, 1).repeat(columns)
  })
  return parts.join('|')
}

/** What a person wants to know first, as names and values. */
function summary(costs: ModelCosts, placement: Placement): (readonly [string, string])[] {
  const { objective, latency, bottleneck, promptSeconds, exact, stages, load } = placement
  const weights = costs.layers.reduce((sum, { weightBytes }) => sum + weightBytes, 0) - costs.sharedBytes
  const isLanguage = costs.kind === 'language'
  const step = isLanguage ? 'token' : 'run'
  const slowest = stages.reduce((a, b) =>
    Math.max(b.seconds, b.hopSeconds) > Math.max(a.seconds, a.hopSeconds) ? b : a,
  )
  const part = slowest.hopSeconds > slowest.seconds ? 'the link to' : 'the stage on'
  const busy = load.batch * stages.length
  const lacking =
    isLanguage && load.sequences < busy
      ? `, which needs memory for ${busy} sequences (--sequences ${busy})`
      : ''
  const rate = (seconds: number): string => `${formatRate(load.batch / seconds)} ${step}s/s`
  return [
    ['model', `${costs.layers.length} layers, ${gigabytes(weights)} of weights`],
    [
      'load',
      `${isLanguage ? `a context of ${load.context} tokens, ` : ''}a batch of ${load.batch}, memory for ${load.sequences} ${load.sequences === 1 ? 'sequence' : 'sequences'}`,
    ],
    [
      'objective',
      `${objective}; ${exact ? 'no placement is better' : 'found by a model of equal layers, and repaired'}`,
    ],
    ['one stream', `${milliseconds(latency)} a ${step}, ${rate(latency)}`],
    [
      'all busy',
      `${milliseconds(bottleneck)} a step, ${rate(bottleneck)}, ${stages.length === 1 ? 'with one stage' : `with a batch in each of ${stages.length} stages`}${lacking}`,
    ],
    ['bottleneck', `${part} ${slowest.devices.join(' + ')}`],
    ...(promptSeconds === undefined
      ? []
      : [['first token', `${milliseconds(promptSeconds)} for a prompt of ${load.context} tokens`] as const]),
  ]
}

const formatRate = (rate: number): string => (rate < 1000 ? rate.toPrecision(3) : formatCount(rate))
