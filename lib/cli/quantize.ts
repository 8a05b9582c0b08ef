import path from 'node:path'
import type { Command } from 'commander'
import { didYouMean } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'
import { exportCheckpoint } from '../dora/model/export-checkpoint.js'
import type { Graph } from '../graph/graph.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import {
  type QuantizedFormat,
  quantizableWeights,
  quantizeWithLosses,
} from '../graph/rewrites/quantize-weights.js'
import { defaultExclude } from '../io/checkpoints/checkpoint.js'
import type { CheckpointLayout } from '../io/checkpoints/layout.js'
import { lockFile, lockFolder } from '../io/lock.js'
import { readOnnx } from '../io/onnx/read.js'
import { writeOnnx } from '../io/onnx/save.js'
import { choice, UsageError, withExamples } from './command.js'
import { describeChange, expectOther, weightBytes, writtenBytes } from './files.js'
import { pathFrom } from './numbers.js'
import { formatBytes, print, printJson, printPairs } from './output.js'
import { printTable } from './table.js'

type Layout = 'onnx' | CheckpointLayout

interface QuantizeFlags {
  output: string
  format: QuantizedFormat
  layout: Layout
  keep: readonly string[]
  overwrite?: boolean
  json?: boolean
}

/** What was written. */
interface Quantized {
  /** ‖stored − weight‖ / ‖weight‖ by weight. */
  readonly losses: ReadonlyMap<string, number>
  /** Bytes of all weights as they are stored now. */
  readonly bytes: number
  readonly fileBytes: number
}

/** `dgx-spark quantize`: the weights of an ONNX model in NVFP4 or FP8. */
export function addQuantize(command: Command): void {
  command
    .argument('<model>', 'ONNX file')
    .requiredOption('-o, --output <path>', 'ONNX file to write, or the folder of a checkpoint', pathFrom)
    .addOption(choice('--format <name>', 'format of weights', ['nvfp4', 'fp8']).default('nvfp4'))
    .addOption(
      choice('--layout <name>', 'an ONNX file, or a checkpoint as one of these reads it', [
        'onnx',
        'modelopt',
        'compressed-tensors',
      ]).default('onnx'),
    )
    .option('--keep <names>', 'weights that stay as they are, separated by commas', names, [])
    .option('--overwrite', 'allow the output to replace the model itself')
    .option('--json', 'print one JSON document')
    .action(quantize)
  withExamples(
    command,
    'dgx-spark quantize model.onnx --format fp8 -o small.onnx',
    'dgx-spark quantize model.onnx --format nvfp4 --keep lm_head.weight -o small.onnx',
    'dgx-spark quantize model.onnx --layout compressed-tensors -o checkpoint',
  )
}

const names = (text: string, before: readonly string[]): readonly string[] => [
  ...before,
  ...text.split(',').flatMap(name => name.trim() || []),
]

async function quantize(model: string, flags: QuantizeFlags): Promise<void> {
  const { output, format, layout } = flags
  if (layout !== 'onnx' && format === 'fp8')
    throw new UsageError(`--layout ${layout} takes --format nvfp4 only`)
  await expectOther(model, output, flags.overwrite)
  const graph = canonicalise(await readOnnx(model))
  const before = weightBytes(graph)
  const made =
    layout === 'onnx' ? await asOnnx(graph, model, flags) : await asCheckpoint(graph, layout, flags)
  const readers = readersOf(format, layout)
  if (flags.json) {
    const { losses, ...sizes } = made
    const quantized = [...losses.keys()]
    printJson({
      output,
      format,
      layout,
      quantized,
      losses: Object.fromEntries(losses),
      before,
      ...sizes,
      readers,
    })
    return
  }
  printTable(
    ['weight', 'loss'],
    Array.from(made.losses, ([name, loss]) => [name, `${(100 * loss).toFixed(3)} %`]),
    [1],
  )
  print('loss: ‖stored − weight‖ / ‖weight‖; dgx-spark run --compare shows what it does to outputs')
  const count = made.losses.size
  printPairs([
    ['weights', describeChange(before, made.bytes)],
    ['file', formatBytes(made.fileBytes)],
    ['read by', readers],
  ])
  print(`wrote ${output}: ${count} ${count === 1 ? 'matrix' : 'matrices'} in ${format}`)
}

async function asOnnx(
  graph: Graph,
  model: string,
  { output, format, keep }: QuantizeFlags,
): Promise<Quantized> {
  const possible = quantizableWeights(graph, format)
  expectKnown(keep, [...graph.initializers.keys()])
  const weights = possible.filter(name => !keep.includes(name))
  if (weights.length === 0) {
    const rest = keep.length > 0 ? ' but for those of --keep' : ''
    const message = `${model} has no matrix of floats that ${format} can hold${rest}: nothing was written`
    throw new SparkError('ERR_UNSUPPORTED', message)
  }
  const { graph: quantized, losses } = quantizeWithLosses(graph, { format, weights })
  using _lock = await lockFile(output)
  await writeOnnx(quantized, output)
  return { losses, bytes: weightBytes(quantized), fileBytes: await writtenBytes([output, `${output}.data`]) }
}

async function asCheckpoint(
  graph: Graph,
  layout: CheckpointLayout,
  { output, keep }: QuantizeFlags,
): Promise<Quantized> {
  const modules = keep.map(name => name.replace(/\.weight$/, ''))
  const exclude = [...defaultExclude, ...modules.map(name => name.replace(/[^\w]/g, '\\$&'))]
  using _lock = await lockFolder(output)
  const { tensors, losses, excluded } = await exportCheckpoint(graph, output, { layout, exclude })
  expectKnown(modules, [...losses.keys(), ...excluded])
  const bytes = [...tensors.values()].reduce((sum, { data }) => sum + data.byteLength, 0)
  const files = ['model.safetensors', 'config.json'].map(name => path.join(output, name))
  return { losses, bytes, fileBytes: await writtenBytes(files) }
}

function expectKnown(keep: readonly string[], known: readonly string[]): void {
  const unknown = keep.find(name => !known.includes(name))
  if (unknown === undefined) return
  throw new UsageError(`--keep ${unknown}: the model has no such weight${didYouMean(unknown, known)}`)
}

/** Runtimes that are known to read the result, and one that is known not to. */
function readersOf(format: QuantizedFormat, layout: Layout): string {
  if (layout === 'modelopt')
    return 'dgx-spark; TensorRT-LLM, vLLM and SGLang for architectures that they know'
  if (layout === 'compressed-tensors') return 'dgx-spark; vLLM for architectures that it knows'
  return format === 'fp8'
    ? 'dgx-spark, ONNX Runtime'
    : 'dgx-spark; not ONNX Runtime 1.30, which has no DequantizeLinear for 4-bit floats: take --format fp8 for it'
}
