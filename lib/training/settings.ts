// settings.ts: the settings that a resumed training must share with the original one.
import { createHash } from 'node:crypto'
import { SparkError } from '../core/errors.js'
import type { TrainableAdapter, TrainingRecord } from '../dora/model/trainable-adapter.js'
import type { Graph } from '../graph/graph.js'
import { isGraph } from '../graph/rewrites/losses/graph-loss.js'
import { type Batch, sampleCount, type TrainingData } from './dataset.js'
import type { CheckedOptions } from './options.js'
import type { ValidationSettings } from './validation.js'

/** Settings by name, each as JSON with sorted keys. */
export type Settings = Readonly<Record<string, string>>

const names = [
  'seed',
  'batchSize',
  'accumulate',
  'shuffle',
  'precision',
  'maxNorm',
  'loss',
  'optimizer',
  'schedule',
] as const

/**
 * The settings of a training, including those of its adapter and validation, the hash of its teacher and the number of
 * samples. The number of epochs and the patience are not among them: they may grow.
 */
export function settingsOf(
  options: CheckedOptions,
  adapter: TrainableAdapter,
  data: TrainingData,
  validation?: ValidationSettings,
): Settings {
  const { loss } = options
  const plain = { ...options, loss: isGraph(loss) ? graphHash(loss) : loss }
  const own = names.map(name => [name, plain[name]] as const)
  const teacher = options.teacher ? weightsHash(options.teacher.graph) : null
  const given = { teacher, samples: sampleCount(data) ?? null, ...validationSettings(validation) }
  const all = [...own, ...Object.entries({ ...given, ...adapter.settings })]
  return Object.fromEntries(all.map(([name, value]) => [name, canonicalJson(value)]))
}

/** What an adapter remembers of its training: settings, completed steps and the fields of a batch with its own sizes. */
export function trainingRecord(
  options: CheckedOptions,
  data: TrainingData,
  {
    step,
    epoch,
    batch,
  }: { readonly step: number; readonly epoch: number; readonly batch: Batch | undefined },
): TrainingRecord {
  const settings = names.map(name => {
    const value = options[name]
    const isGraph = typeof value === 'object' && 'nodes' in value
    return [name, isGraph ? 'a graph' : JSON.parse(canonicalJson(value))] as const
  })
  const fields = Object.entries(batch ?? {}).map(([name, { shape, data }]) => {
    return [
      name,
      `${data.constructor.name} [n${shape
        .slice(1)
        .map(size => `, ${size}`)
        .join('')}]`,
    ] as const
  })
  const samples = sampleCount(data) ?? null
  return {
    ...Object.fromEntries(settings),
    steps: step,
    epochs: epoch,
    data: { samples, fields: Object.fromEntries(fields) },
  }
}

/** What decides which validation is best. */
function validationSettings(validation: ValidationSettings | undefined) {
  if (!validation) return {}
  const { data, every = 'epoch', monitor, mode, minDelta } = validation
  return { validation: { samples: sampleCount(data) ?? null, every, monitor, mode, minDelta } }
}

/** The hexadecimal sha256 of the nodes and constants of a graph. */
export const graphHash = (graph: Graph): string => {
  const nodes = canonicalJson([graph.inputs, graph.outputs, graph.nodes])
  return createHash('sha256').update(nodes).update(weightsHash(graph)).digest('hex')
}

/** The hexadecimal sha256 of the bytes of all initializers. */
function weightsHash({ initializers }: Graph): string {
  const hash = createHash('sha256')
  for (const { bytes } of initializers.values()) hash.update(bytes)
  return hash.digest('hex')
}

/**
 * Compares the settings in a checkpoint with those of a training. Settings that the file lacks are not compared.
 * @throws SparkError ERR_ARGUMENT naming the file and each setting that differs
 */
export function expectSettings(file: string, saved: Settings, asked: Settings): void {
  const differences = Object.entries(saved)
    .filter(([name, value]) => asked[name] !== value)
    .map(([name, value]) => `${name} ${value}, not ${asked[name] ?? 'nothing'}`)
  if (differences.length === 0) return
  const remedy = 'resume with the settings that the training began with, or begin a new one'
  throw new SparkError('ERR_ARGUMENT', `${file} was made with ${differences.join('; ')}: ${remedy}`)
}

/** JSON with infinities as strings and sorted keys. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === 'bigint' || (typeof part === 'number' && !Number.isFinite(part))) return String(part)
    if (part === null || typeof part !== 'object' || Array.isArray(part)) return part
    return Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}
