// settings.ts: what must stay as it is for a resumed training to give the bits of an uninterrupted one.
import { createHash } from 'node:crypto'
import { SparkError } from '../core/errors.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import type { Graph } from '../graph/graph.js'
import { sampleCount, type TrainingData } from './dataset.js'
import type { CheckedOptions } from './options.js'

/** Settings by name, each as JSON with its keys in order. */
export type Settings = Readonly<Record<string, string>>

const names = [
  ...(['seed', 'batchSize', 'accumulate', 'shuffle', 'precision', 'maxNorm'] as const),
  ...(['loss', 'optimizer', 'schedule'] as const),
]

/**
 * The settings of a training, those of its adapter, its teacher and the number of its samples included. The number of
 * epochs may grow.
 */
export function settingsOf(options: CheckedOptions, adapter: TrainableAdapter, data: TrainingData): Settings {
  const own = names.map(name => [name, options[name]] as const)
  const teacher = options.teacher ? weightsHash(options.teacher.graph) : null
  const given = { teacher, samples: sampleCount(data) ?? null }
  const all = [...own, ...Object.entries({ ...given, ...adapter.settings })]
  return Object.fromEntries(all.map(([name, value]) => [name, canonicalJson(value)]))
}

/** The sha256 of the bytes of all constants, in hexadecimal. */
function weightsHash({ initializers }: Graph): string {
  const hash = createHash('sha256')
  for (const { bytes } of initializers.values()) hash.update(bytes)
  return hash.digest('hex')
}

/**
 * Compares the settings of a checkpoint with those of a training; what the file does not say is not compared.
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

/** JSON of a value, infinities as strings, the keys of objects in the order of the alphabet. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === 'number' && !Number.isFinite(part)) return String(part)
    if (part === null || typeof part !== 'object' || Array.isArray(part)) return part
    return Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}
