// finetune-data.ts: training and validation data of `dgx-spark finetune`, and what is said of them.
import { existsSync } from 'node:fs'
import { openData, type StreamOf } from '../data/open.js'
import type { FieldRules, TableDataset } from '../data/table.js'
import type { Graph, TensorType } from '../graph/graph.js'
import { inferFacts } from '../graph/shape-inference.js'
import { Tensor } from '../memory/tensor.js'
import type { Batch, Dataset } from '../training/dataset.js'
import { splitDataset } from '../training/split.js'
import { UsageError } from './command.js'
import { isClassification } from './finetune-loss.js'
import { print, printError } from './output.js'

/** What says where data come from and how they are read. */
export interface DataOptions {
  readonly data: string
  readonly validation?: string
  readonly loss: string
  readonly normalize?: readonly [mean: number, deviation: number]
  readonly seed: number
}

/** Data to train on, and to validate with. */
export interface FinetuneData {
  readonly training: Dataset | StreamOf
  readonly validation?: Dataset | StreamOf
}

/**
 * Opens the data and prints what was found.
 * @throws SparkError as {@link openData}, UsageError for a fraction of a stream
 */
export async function openFinetuneData(graph: Graph, options: DataOptions): Promise<FinetuneData> {
  const rules = rulesFor(graph, options)
  const found = await openData(options.data, rules)
  if ('bad' in found) reportBad(found)
  await describe('data', found)
  const { validation } = options
  if (validation === undefined) return { training: found }
  const fraction = Number(validation)
  if (!Number.isNaN(fraction) && !existsSync(validation)) return split(found, fraction, options)
  const other = await openData(validation, rules)
  if ('bad' in other) reportBad(other)
  await describe('validation', other)
  return { training: found, validation: other }
}

function split(
  data: TableDataset | StreamOf,
  fraction: number,
  { validation, seed }: DataOptions,
): FinetuneData {
  if (!(fraction > 0 && fraction < 1))
    throw new UsageError(`--validation ${validation}: expected a path, or a fraction between 0 and 1`)
  if (typeof data === 'function')
    throw new UsageError(`--validation ${validation}: a stream of batches cannot be split; give a path`)
  const [training, held] = splitDataset(data, fraction, { seed })
  print(`${training.size} samples to train on, ${held.size} to validate with`)
  return { training, validation: held }
}

/** Fields of a dataset as the model wants them: images and labels by their role, others by the names of inputs. */
function rulesFor(graph: Graph, { loss, normalize }: DataOptions): FieldRules {
  const inputs = graph.inputs.filter(({ name }) => !graph.initializers.has(name))
  const sample = (type: TensorType): readonly number[] | undefined => {
    const sizes = type.shape?.slice(1)
    return sizes?.every(size => typeof size === 'number') ? (sizes as number[]) : undefined
  }
  const rules: Record<string, FieldRules[string]> = {}
  for (const { name, type } of inputs) {
    if (type?.kind !== 'tensor') continue
    const shape = sample(type)
    rules[name] = { dtype: type.dtype, ...(shape && { shape }) }
  }
  const [first] = inputs
  const [mean, deviation] = normalize ?? [0, 1]
  const scaling = normalize ? { scale: 1 / (255 * deviation), offset: -mean / deviation } : {}
  if (first) rules.images = { ...rules[first.name], name: first.name, ...scaling }
  const scores = inferFacts(graph).get(graph.outputs[0]?.name ?? '')?.type
  const classes = scores?.kind === 'tensor' ? scores.shape?.at(-1) : undefined
  const labels = { dtype: 'i32', ...(typeof classes === 'number' && { classes }) } as const
  rules.labels = { name: 'target', ...labels }
  if (isClassification(loss)) rules.target = labels
  return rules
}

/** Rows that are named one by one. */
const namedRows = 5

function reportBad({ bad, size }: TableDataset): void {
  if (bad.length === 0) return
  printError(`${bad.length} rows or files of the data are left out, ${size} are good:`)
  for (const { source, reason } of bad.slice(0, namedRows)) printError(`  ${source}: ${reason}`)
  if (bad.length > namedRows) printError(`  … and ${bad.length - namedRows} more`)
}

/** Prints samples and fields of a dataset; streams show their fields only when they are read. */
async function describe(name: string, data: TableDataset | StreamOf): Promise<void> {
  if (typeof data === 'function') print(`${name}  a stream of batches`)
  else print(`${name}  ${data.size.toLocaleString('en')} samples: ${fieldsOf(await data.read([0]))}`)
}

/** Fields of a batch with the types and shapes of one sample: `x f32 [7], target i32 []`. */
const fieldsOf = (batch: Batch): string =>
  Object.entries(batch)
    .map(([name, { shape, data, axis = 0 }]) => {
      const sizes = axis === null ? shape : shape.toSpliced(axis, 1)
      return `${name} ${Tensor.from(data, { shape }).dtype} [${sizes.join(', ')}]`
    })
    .join(', ')
