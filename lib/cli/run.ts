import { type Command, InvalidArgumentError, Option } from 'commander'
import type { Precision } from '../core/config.js'
import { type ElementType, elementBits, isFloat, type TypedArrayOf } from '../core/dtype.js'
import { parseNpy } from '../io/npy.js'
import { readBytes } from '../io/read-file.js'
import { readSafetensors } from '../io/safetensors.js'
import { Tensor } from '../memory/tensor.js'
import { type ModelBackend, modelBackends } from '../model/engine.js'
import { Model } from '../model/model.js'
import { formatBytes, print, printJson, printPairs, printTable, styled } from './output.js'
import { randomFeeds } from './random-feeds.js'
import { parseMode, parseSize, type Sizes } from './shapes.js'

interface RunOptions {
  input?: Readonly<Record<string, string>>
  inputs?: string
  size?: Sizes
  backend?: ModelBackend
  precision?: Precision
  runs: number
  json?: boolean
}

/** `dgx-spark run`: runs a model and prints its outputs and how long it took. */
export function addRun(program: Command): void {
  program
    .command('run <model.onnx>')
    .description('run a model with given or random inputs and print its outputs and latency')
    .option('--input <name=file.npy>', 'an input from a file; the others are random', parseInput)
    .option('--inputs <file.safetensors>', 'inputs by their names')
    .option('--size <name=number>', 'size of an open dimension (default: 1)', parseSize)
    .addOption(new Option('--backend <name>', 'engine').choices(modelBackends))
    .option('--precision <mode>', 'format of weights (default: the best of the hardware)', parseMode)
    .option('--runs <count>', 'runs that are timed', parseRuns, 10)
    .option('--json', 'print one JSON document')
    .action(async (file: string, options: RunOptions) => {
      const { backend, precision, size = {}, runs } = options
      using model = await Model.load(file, { ...(backend && { backend }), ...(precision && { precision }) })
      const feeds = { ...randomFeeds(model, size), ...(await fileFeeds(options)) }
      const started = performance.now()
      let outputs = await model.run(feeds)
      const times = [performance.now() - started]
      for (let run = 0; run < runs; run++) {
        const start = performance.now()
        outputs = await model.run(feeds)
        times.push(performance.now() - start)
      }
      const [first = 0, ...rest] = times
      const latency = {
        first,
        median: rest.sort((a, b) => a - b)[rest.length >> 1] ?? first,
        best: rest[0] ?? first,
      }
      const summary = Object.entries(outputs).map(([name, output]) => summarize(name, output))
      const { backend: chosen, precision: mode, precisionReason } = model
      if (options.json)
        printJson({
          backend: chosen,
          precision: mode,
          precisionReason,
          latency,
          outputs: summary,
          stats: model.stats,
        })
      else report(model, latency, summary)
    })
}

function parseInput(text: string, inputs: Readonly<Record<string, string>> = {}): Record<string, string> {
  const at = text.indexOf('=')
  if (at <= 0) throw new InvalidArgumentError('expected <name>=<file.npy>')
  return { ...inputs, [text.slice(0, at)]: text.slice(at + 1) }
}

function parseRuns(text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('expected a number from 1 to 999999')
}

async function fileFeeds({ input = {}, inputs }: RunOptions): Promise<Record<string, Tensor<ElementType>>> {
  const feeds: Record<string, Tensor<ElementType>> = {}
  if (inputs) {
    const { tensors } = await readSafetensors(inputs)
    for (const [name, { dtype, shape, data }] of tensors) {
      feeds[name] = Tensor.of(data as TypedArrayOf<ElementType>, shape, dtype.toLowerCase() as ElementType)
    }
  }
  for (const [name, file] of Object.entries(input)) {
    feeds[name] = parseNpy(await readBytes(file), file)
  }
  return feeds
}

type Summary = { name: string; type: string; values: string[] }

function summarize(name: string, { dtype, shape, data }: Tensor<ElementType>): Summary {
  const isCoded = isFloat(dtype) && (elementBits[dtype] === 16 || elementBits[dtype] === 8)
  const plain = isCoded ? Tensor.of(data as Uint16Array, shape, dtype).toFloat32() : data
  const shown = Array.from(plain.slice(0, 6) as ArrayLike<unknown>, value =>
    typeof value === 'number' ? String(Number(value.toPrecision(5))) : String(value),
  )
  return { name, type: `${dtype} [${shape.join(', ')}]`, values: shown }
}

function report(
  model: Model,
  { first, median, best }: { first: number; median: number; best: number },
  outputs: readonly Summary[],
): void {
  const { backend, stats } = model
  const ms = (time: number): string => `${time.toFixed(time < 10 ? 3 : 1)} ms`
  print(styled('bold', `${backend.name}: ${backend.reason}`))
  print(styled('bold', `${model.precision}: ${model.precisionReason}`))
  printTable(
    ['output', 'type', 'first values'],
    outputs.map(({ name, type, values }) => [name, type, values.join(' ')]),
  )
  printPairs([
    ['latency', `${ms(median)} (median), ${ms(best)} (best)`],
    ['first run', `${ms(first)}, compilation included`],
    ['compilation', `${stats.compileMs.toFixed(1)} ms`],
    ['plans', `${stats.plans}, ${stats.steps} kernel calls`],
    ['memory', `arena ${formatBytes(stats.arenaBytes)}, weights ${formatBytes(stats.constantBytes)}`],
  ])
}
