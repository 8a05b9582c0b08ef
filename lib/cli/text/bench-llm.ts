// bench-llm.ts: `dgx-spark bench-llm`: how fast a language model reads prompts and generates.
import { type Command, InvalidArgumentError } from 'commander'
import { openLlamaPeer } from '../../text/speed/llama-cpp-peer.js'
import { type Contestant, measureSpeeds, type Speed, timedBy } from '../../text/speed/measure-speed.js'
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
  /** Milliseconds until the model was loaded, and until the first token behind a prompt of one was there. */
  readonly loadMs: number
  readonly firstTokenMs: number
  /** Bytes that the process grew by until then, by the operating system; files that are mapped count once they are read. */
  readonly rssBytes: number
  readonly speeds: readonly Speed[]
}

/** A library with the model open. */
interface Opened extends Contestant, Omit<Measured, 'speeds'> {
  close(): Promise<void>
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
    const opened: Opened[] = []
    try {
      opened.push(await openOurs(source, flags, signal))
      if (flags.vs) opened.push(await openPeer(source, flags))
      const speeds: Speed[][] = []
      const { prompt, generate, depth: depths, batch: batches, runs } = flags
      const options = { prompt, generate, depths, batches, runs, signal }
      for await (const each of measureSpeeds(opened, options)) speeds.push(each)
      const measured = opened.map(({ name, loadMs, firstTokenMs, rssBytes }, i) => ({
        ...{ name, loadMs, firstTokenMs, rssBytes },
        speeds: speeds.map(each => each[i]!),
      }))
      if (flags.json) printJson(measured)
      else report(measured)
    } finally {
      for (const { close } of opened) await close()
    }
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

async function openOurs(source: string, flags: Flags, signal: AbortSignal): Promise<Opened> {
  const { context, cache } = sizesOf(flags)
  const options = { contextLength: flags.context ?? context, cacheTokens: flags.cacheTokens ?? cache, signal }
  return opened(async () => {
    const model = await loadModel(source, flags, options)
    return {
      name: `dgx-spark (${model.backend.name})`,
      generate: timedBy(model, signal),
      vocabulary: model.tokenizer.vocabularySize,
      close: async () => model.dispose(),
    }
  })
}

const openPeer = (source: string, flags: Flags): Promise<Opened> =>
  opened(async () => {
    const peer = await openLlamaPeer(source, {
      contextLength: sizesOf(flags).context,
      sequences: Math.max(...flags.batch),
      threads: flags.threads,
    })
    const { generate, dispose } = peer
    return { name: 'node-llama-cpp', generate, vocabulary: 256, close: dispose }
  })

/** Measures what it takes until the first token. */
async function opened(open: () => Promise<Contestant & Pick<Opened, 'name' | 'close'>>): Promise<Opened> {
  const before = process.memoryUsage.rss()
  const begin = performance.now()
  const contestant = await open()
  const loadMs = performance.now() - begin
  const [first] = await contestant.generate(Int32Array.of(1, 2, 3, 4), 2)
  const rssBytes = process.memoryUsage.rss() - before
  return { ...contestant, loadMs, firstTokenMs: first! - begin, rssBytes }
}

function report(measured: readonly Measured[]): void {
  const [ours, peer] = measured
  const rate = (value: number): string => value.toFixed(value < 100 ? 1 : 0)
  for (const { name, loadMs, firstTokenMs, rssBytes } of measured) {
    const times = `loaded in ${loadMs.toFixed(0)} ms, first token after ${firstTokenMs.toFixed(0)} ms`
    print(`${name}: ${times}, ${formatBytes(rssBytes)} of memory`)
  }
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
