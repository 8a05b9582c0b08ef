import { spawnSync } from 'node:child_process'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { type BackendName, backendNames } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import type { TrainingEvent } from '../training/options.js'
import { choice, UsageError, withExamples } from './command.js'
import { demoModel, reportModel } from './demo-model.js'
import { pathFrom } from './numbers.js'
import { formatBytes, print, printJson, printPairs, styled } from './output.js'
import { trainingProgress } from './progress.js'
import { printTable } from './table.js'

/** What examples/finetune-mnist/use.js prints; the example is JavaScript for people to read, outside of the library. */
interface Used {
  backend: BackendName
  digits: number
  accuracy: Record<'before' | 'after', { digits: number; negatives: number }>
  adapter: { rank: number; parameters: number; bytes: number; share: number }
  mergeError: number
  runtimeError: number | null
  precisions: { precision: string; accuracy: number; bytes: number }[]
}

type DemoResult = Used & { device: string; seconds: number }

/** The functions of the example that the demo calls. */
interface Example {
  loadDigits(): Promise<{ train: object }>
  negatives(digits: object): object
  makeBase: (file: string, digits: object, options: Engine, onStep: OnStep) => Promise<void>
  finetune: (folder: string, digits: object, options: Engine, onStep: OnStep) => Promise<unknown>
  files: { base: string }
}

type OnStep = (event: TrainingEvent) => void
type Engine = { backend?: BackendName }

interface DemoOptions extends Engine {
  json?: boolean
  model?: string
  data?: string
  output?: string
}

const example = new URL('../../examples/finetune-mnist/', import.meta.url)

/** `dgx-spark demo`: fine-tune, merge and export a model, of digits or a given one. */
export function addDemo(command: Command): void {
  command
    .option('--model <file>', 'an ONNX model: 50 steps lead a DoRA adapter back to it')
    .option('--data <path>', 'batches for that model, as for finetune. Default: random ones')
    .option('--output <folder>', 'keep base.onnx, the adapter negatives and merged.onnx there', pathFrom)
    .option('--json', 'print one JSON document')
    .addOption(choice('--backend <name>', 'engine to run on', backendNames))
    .action(async ({ json, model, data, output, ...engine }: DemoOptions) => {
      if (model === undefined && data !== undefined) {
        throw new UsageError(`--data ${data} needs --model, whose inputs it is for`)
      }
      if (model !== undefined && output !== undefined) {
        throw new UsageError(`--output ${output} keeps the models of digits; leave --model away`)
      }
      if (model !== undefined) {
        const result = await demoModel(model, { ...(data !== undefined && { data }), ...engine })
        if (json) printJson(result)
        else reportModel(result)
        return
      }
      const result = await demoDigits(engine, output)
      if (json) printJson(result)
      else reportDigits(result)
    })
  withExamples(
    command,
    'dgx-spark demo',
    'dgx-spark demo --output .',
    'dgx-spark demo --model model.onnx',
    'dgx-spark demo --backend cpu --json',
  )
}

async function demoDigits(engine: Engine, output: string | undefined): Promise<DemoResult> {
  const started = performance.now()
  const parts = ['data.js', 'base.js', 'finetune.js'].map(file => import(new URL(file, example).href))
  const { loadDigits, negatives, makeBase, finetune, files }: Example = Object.assign(
    {},
    ...(await Promise.all(parts)),
  )
  if (output !== undefined) await mkdir(output, { recursive: true })
  const folder = output ?? (await mkdtemp(path.join(os.tmpdir(), 'dgx-spark-demo-')))
  try {
    const { train } = await loadDigits()
    await shown('the base', step => makeBase(path.join(folder, files.base), train, engine, step))
    await shown('the adapter', step => finetune(folder, negatives(train), engine, step))
    const used = useInNewProcess(folder, engine)
    return { ...used, device: await deviceName(used.backend), seconds: (performance.now() - started) / 1000 }
  } finally {
    if (output === undefined) await rm(folder, { recursive: true, force: true })
  }
}

async function shown(title: string, train: (onStep: OnStep) => Promise<unknown>): Promise<void> {
  const progress = trainingProgress(title.padEnd(11))
  try {
    await train(event => progress.step(event))
  } finally {
    progress.end()
  }
}

function useInNewProcess(folder: string, { backend }: Engine): Used {
  const args = [
    '--no-warnings',
    fileURLToPath(new URL('use.js', example)),
    folder,
    ...(backend ? [backend] : []),
  ]
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  if (status === 0) return JSON.parse(stdout) as Used
  throw new SparkError('ERR_INTERNAL', `loading the adapter in a new process failed: ${stderr.trim()}`)
}

/** The GPU or the processor that computes. */
async function deviceName(backend: BackendName): Promise<string> {
  const { gpus, cpu, backend: chosen } = await HardwareInfo.detect()
  const gpu = backend === 'cuda' && gpus[chosen.gpu ?? 0]?.name
  return gpu || `${cpu.model ?? 'unknown processor'}, ${cpu.cores} cores`
}

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`

function reportDigits({ accuracy, adapter, precisions, ...result }: DemoResult): void {
  const { before, after } = accuracy
  print()
  print(styled('bold', 'A classifier of handwritten digits, adapted to their photographic negatives'))
  printTable(
    ['accuracy on the test digits', 'base model', 'with the adapter'],
    [
      ['photographic negatives', percent(before.negatives), styled('green', percent(after.negatives))],
      ['digits as written', percent(before.digits), percent(after.digits)],
    ],
    [1, 2],
  )
  printPairs([
    ['adapter', `DoRA rank ${adapter.rank}, ${adapter.parameters.toLocaleString('en')} parameters`],
    ['adapter file', `${formatBytes(adapter.bytes)}, ${percent(adapter.share)} of the base model's weights`],
    ['merged = unmerged', errorText(result.mergeError)],
    ['exported, in ONNX Runtime', errorText(result.runtimeError)],
  ])
  print()
  print(styled('bold', 'The merged model with its weights in each precision'))
  printTable(
    ['weights', 'accuracy', 'size', 'of fp32'],
    precisions.map(({ precision, accuracy, bytes }) => [
      precision,
      percent(accuracy),
      formatBytes(bytes),
      percent(bytes / precisions[0]!.bytes),
    ]),
    [1, 2, 3],
  )
  print()
  print(
    `${result.device} (${result.backend}); ${result.digits} digits tested, ${result.seconds.toFixed(1)} s in all`,
  )
}

/** A relative difference in words. */
function errorText(error: number | null): string {
  return error === null
    ? 'onnxruntime-node is not installed'
    : `to ${error.toExponential(1)} of the largest score`
}
