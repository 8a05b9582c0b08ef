// chat.ts: `dgx-spark chat`: talks with a language model on a terminal, or answers one message.
import type { Command } from 'commander'
import { printableLines } from '../../core/printable.js'
import type { TextModel } from '../../text/text-model.js'
import type { TextSession } from '../../text/text-session.js'
import { interruptible, withExamples } from '../command.js'
import { printError } from '../output.js'
import { ChatTerminal } from './chat-terminal.js'
import {
  addGenerationFlags,
  addModelFlags,
  type GenerationFlags,
  generationOptions,
  type ModelFlags,
} from './generation-flags.js'
import { loadModel, modelArgument } from './load-model.js'
import { readPrompt } from './prompt.js'

interface Flags extends ModelFlags, GenerationFlags {
  system?: string
  session?: string
  template?: string
}

/** Gives the command its options and its action. */
export function addChat(command: Command): void {
  command.argument(...modelArgument).argument('[message]', 'answer this and end; - : what stdin has')
  addGenerationFlags(addModelFlags(command))
    .option('--system <text>', 'message of the system in front of the conversation')
    .option('--session <file>', 'begin with the messages of a file that /save wrote')
    .option('--template <file>', 'chat template in place of that of the model')
    .action(run)
  withExamples(
    command,
    'dgx-spark chat model.gguf',
    "dgx-spark chat Qwen3-0.6B 'Why is the sky blue?' --system 'Answer in one sentence.'",
    'dgx-spark chat model.gguf -',
  )
}

async function run(source: string, message: string | undefined, flags: Flags): Promise<void> {
  const isTalk = message === undefined && process.stdin.isTTY
  const prompt = isTalk ? undefined : await readPrompt(message)
  const load = async (signal?: AbortSignal): Promise<TextModel> =>
    loadModel(source, flags, { ...(await templateOption(flags.template)), ...(signal && { signal }) })
  if (prompt === undefined) {
    using model = await load()
    await new ChatTerminal(model, await sessionOf(model, flags)).run()
    return
  }
  const isInterrupted = await interruptible(async signal => {
    using model = await load(signal)
    await answer(await sessionOf(model, flags), prompt, signal)
  })
  if (!isInterrupted) return
  printError('interrupted')
  process.exitCode = 130
}

async function templateOption(file: string | undefined): Promise<{ chatTemplate?: string }> {
  if (file === undefined) return {}
  const { readText } = await import('../../io/read-file.js')
  return { chatTemplate: await readText(file) }
}

async function sessionOf(model: TextModel, flags: Flags): Promise<TextSession> {
  const messages = flags.system === undefined ? [] : [{ role: 'system', content: flags.system }]
  const session = model.session({ messages, generation: generationOptions(flags) })
  if (flags.session !== undefined) await session.restore(flags.session)
  return session
}

async function answer(session: TextSession, prompt: string, signal: AbortSignal): Promise<void> {
  try {
    for await (const piece of session.send(prompt, { signal })) process.stdout.write(printableLines(piece))
  } finally {
    process.stdout.write('\n')
  }
}
