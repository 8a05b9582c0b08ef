// bench-llm.ts: `dgx-spark bench-llm`: how fast a language model reads prompts and generates.
import { type Command, InvalidArgumentError } from 'commander'
import { type LlamaPeer, openLlamaPeer } from '../../text/speed/llama-cpp-peer.js'
import { measureSpeed, type Speed, timedBy } from '../../text/speed/measure-speed.js'
import { choice, interruptible, withExamples } from '../command.js'
import { integerFrom } from '../numbers.js'
import { formatBytes, print, printError, printJson } from '../output.js'
import { printTable } from '../table.js'
import { addModelFlags, type ModelFlags } from './generation-flags.js'
import { loadModel, modelArgument } from './load-model.js'

interface Flags extends ModelFlags {
  prompt: number
  generate: number
  depth: number[]
  batch: number[]
  runs: number
  vs?: string
  json?: boolean
}

/** What was measured of one library. */
interface Measured {
  readonly name: string
  /** Milliseconds until the model was loaded. */
  readonly loadMs: number
  readonly speeds: Speed[]
  /** Bytes of the process, by the operating system. */
  readonly rssBytes: number
}

/** Gives the command its options and its action. */
export function addBenchLlm(command: Command): void {
  command.argument(...modelArgument)
  addModelFlags(command)
    .option('--prompt <tokens>', 'tokens of the prompt that is read', integerFrom(1), 512)
    .option('--generate <tokens>', 'tokens that are generated', integerFrom(2), 64)
    .option('--depth <tokens,…>', 'tokens in front of those that are generated', listFrom(0), [0])
    .option('--batch <texts,…>', 'texts at once', listFrom(1), [1])
    .option('--runs <count>', 'how often; the median counts', integerFrom(1, 1000), 3)
    .addOption(choice('--vs <package>', 'another library on the same GGUF file', ['node-llama-cpp']))
    .option('--json', 'print one JSON document')
    .action(run)
  withExamples(
    command,
    'dgx-spark bench-llm model.gguf',
    'dgx-spark bench-llm model.gguf --depth 0,2048 --batch 1,8 --threads 2 --vs node-llama-cpp',
  )
}

const listFrom =
  (min: number) =>
  (text: string): number[] => {
    const values = text.split(',').map(Number)
    if (values.every(value => Number.isSafeInteger(value) && value >= min)) return values
    throw new InvalidArgumentError(`expected integers from ${min} on, such as ${min},8`)
  }

async function run(source: string, flags: Flags): Promise<void> {
  const isInterrupted = await interruptible(async signal => {
    const measured = [await measureOurs(source, flags, signal)]
    if (flags.vs) measured.push(await measurePeer(source, flags, signal))
    if (flags.json) printJson(measured)
    else report(measured)
  })
  if (!isInterrupted) return
  printError('interrupted')
  process.exitCode = 130
}

/** Tokens of the longest sequence, and of all that are there at once. */
function sizesOf({ prompt, generate, depth, batch }: Flags): { context: number; cache: number } {
  const deepest = Math.max(...depth, 1) + generate
  const context = Math.max(prompt + 1, deepest, 16)
  return { context, cache: Math.max(...batch) * (context + 32) }
}

async function measureOurs(source: string, flags: Flags, signal: AbortSignal): Promise<Measured> {
  const { context, cache } = sizesOf(flags)
  const begin = performance.now()
  const options = { contextLength: flags.context ?? context, cacheTokens: flags.cacheTokens ?? cache, signal }
  using model = await loadModel(source, flags, options)
  const loadMs = performance.now() - begin
  const speeds = await all(timedBy(model, signal), model.tokenizer.vocabularySize, flags, signal)
  return { name: `dgx-spark (${model.backend.name})`, loadMs, speeds, rssBytes: process.memoryUsage.rss() }
}

async function measurePeer(source: string, flags: Flags, signal: AbortSignal): Promise<Measured> {
  const { context } = sizesOf(flags)
  const begin = performance.now()
  const sequences = Math.max(...flags.batch)
  const peer: LlamaPeer = await openLlamaPeer(source, {
    contextLength: context,
    sequences,
    threads: flags.threads,
  })
  try {
    const loadMs = performance.now() - begin
    const speeds = await all(peer.generate, 256, flags, signal)
    return { name: 'node-llama-cpp', loadMs, speeds, rssBytes: process.memoryUsage.rss() }
  } finally {
    await peer.dispose()
  }
}

async function all(
  generate: Parameters<typeof measureSpeed>[0],
  vocabulary: number,
  { prompt, generate: count, depth, batch, runs }: Flags,
  signal: AbortSignal,
): Promise<Speed[]> {
  const speeds: Speed[] = []
  const options = { prompt, generate: count, depths: depth, batches: batch, runs, signal }
  for await (const speed of measureSpeed(generate, vocabulary, options)) {
    signal.throwIfAborted()
    speeds.push(speed)
  }
  return speeds
}

function report(measured: readonly Measured[]): void {
  const [ours, peer] = measured
  const rate = (value: number): string => value.toFixed(value < 100 ? 1 : 0)
  for (const { name, loadMs, rssBytes } of measured)
    print(`${name}: loaded in ${loadMs.toFixed(0)} ms, ${formatBytes(rssBytes)} in the process afterwards`)
  printTable(
    ['', 'depth', 'texts', 'tokens/s', 'from', 'to', ...(peer ? [peer.name, 'ratio'] : [])],
    ours!.speeds.map(({ kind, depth, batch, median, slowest, fastest }, i) => {
      const other = peer?.speeds[i]?.median
      return [
        ...[kind, `${depth}`, `${batch}`, rate(median), rate(slowest), rate(fastest)],
        ...(other === undefined ? [] : [rate(other), `${(median / other).toFixed(2)}x`]),
      ]
    }),
    [1, 2, 3, 4, 5, 6, 7],
  )
}
