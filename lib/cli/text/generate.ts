// generate.ts: `dgx-spark generate`: continues a text.
import type { Command } from 'commander'
import type { OwnText } from '../../cluster/own-text.js'
import { printableLines } from '../../core/printable.js'
import type { Generation } from '../../text/generation/generation.js'
import { openTextOnNodes } from '../cluster/generate-on-nodes.js'
import { type NodeFlags, nodeOptions } from '../cluster/run-on-nodes.js'
import { interruptible, UsageError, withExamples } from '../command.js'
import { integerFrom } from '../numbers.js'
import { printError, printJson } from '../output.js'
import {
  addGenerationFlags,
  addModelFlags,
  type GenerationFlags,
  generationOptions,
  type ModelFlags,
  modelOptions,
} from './generation-flags.js'
import { loadModel, modelArgument } from './load-model.js'
import { readPrompt } from './prompt.js'

interface Flags extends ModelFlags, GenerationFlags, NodeFlags {
  ignoreEnd?: boolean
  special?: boolean
  logprobs?: number
  json?: boolean
}

/** Gives the command its options and its action. */
export function addGenerate(command: Command): void {
  command.argument(...modelArgument).argument('[text]', 'the beginning; - or nothing: what stdin has')
  addGenerationFlags(addModelFlags(command))
    .option('--ignore-end', 'go on behind tokens that end a text')
    .option('--special', 'show control tokens')
    .option(
      '--logprobs <count>',
      'report this many of the most likely tokens, with --json',
      integerFrom(0, 1000),
    )
    .option('--json', 'print one JSON document: text, tokens, why it ended')
  for (const option of nodeOptions()) command.addOption(option)
  command.action(run)
  withExamples(
    command,
    "dgx-spark generate model.gguf 'Once upon a time' --max-tokens 100",
    "dgx-spark generate Qwen3-0.6B 'Once upon a time' --temperature 0.8 --seed 1 --json",
    'dgx-spark generate model.gguf -',
    "dgx-spark generate model.gguf 'Once upon a time' --cluster --nodes 2",
    "dgx-spark generate model.gguf 'Once upon a time' --cluster --nodes 2 --strategy tensor",
  )
}

async function run(source: string, text: string | undefined, flags: Flags): Promise<void> {
  if (flags.logprobs !== undefined && !flags.json) throw new UsageError('--logprobs needs --json')
  const prompt = await readPrompt(text)
  const isInterrupted = await interruptible(async signal => {
    const model = await openModel(source, flags, signal)
    try {
      const { ignoreEnd = false, special = false, logprobs } = flags
      const generation = model.generate(prompt, {
        ...generationOptions(flags),
        ...{ ignoreEnd, skipSpecialTokens: !special, signal },
        ...(logprobs === undefined ? {} : { logprobs }),
      })
      if (flags.json) await printResult(model, generation)
      else await printText(prompt, generation)
    } finally {
      await model.close()
    }
  })
  if (!isInterrupted) return
  printError('interrupted')
  process.exitCode = 130
}

/** What generates: a model of this process, or one on several nodes. */
type Generator = Omit<OwnText, 'stages'>

async function openModel(source: string, flags: Flags, signal: AbortSignal): Promise<Generator> {
  if (flags.cluster) return openTextOnNodes(source, flags, { ...modelOptions(flags), signal })
  const model = await loadModel(source, flags, { signal })
  return {
    ...{ architecture: model.architecture, backend: model.backend },
    generate: (prompt, options) => model.generate(prompt, options),
    tokenOf: id => model.tokenizer.tokenOf(id),
    close: async () => model.dispose(),
  }
}

async function printText(prompt: string, generation: Generation): Promise<void> {
  process.stdout.write(printableLines(prompt))
  try {
    for await (const piece of generation) process.stdout.write(printableLines(piece))
  } finally {
    process.stdout.write('\n')
  }
}

async function printResult(model: Generator, generation: Generation): Promise<void> {
  const result = await generation.result()
  const tokens = generation.generated.map(({ id, logprob, top }) => ({
    id,
    token: model.tokenOf(id) ?? null,
    ...(logprob === undefined ? {} : { logprob }),
    ...(top ? { top } : {}),
  }))
  const { text, finishReason, stop, promptTokens } = result
  printJson({
    model: model.architecture,
    backend: model.backend,
    ...{ text, finishReason, ...(stop === undefined ? {} : { stop }), promptTokens },
    tokens,
  })
}
