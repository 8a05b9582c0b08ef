// chat.ts: `dgx-spark chat`: talks with a language model on a terminal, or answers one message.
import type { Command } from 'commander'
import { printableLines } from '../../core/printable.js'
import { TextModel } from '../../text/text-model.js'
import type { TextSession } from '../../text/text-session.js'
import { withExamples } from '../command.js'
import { printError } from '../output.js'
import { ChatTerminal } from './chat-terminal.js'
import {
  addGenerationFlags,
  addModelFlags,
  type GenerationFlags,
  generationOptions,
  type ModelFlags,
  modelOptions,
} from './generation-flags.js'
import { readPrompt } from './prompt.js'

interface Flags extends ModelFlags, GenerationFlags {
  system?: string
  session?: string
  template?: string
}

/** Gives the command its options and its action. */
export function addChat(command: Command): void {
  command
    .argument('<model>', 'a folder of Hugging Face, or a GGUF file')
    .argument('[message]', 'answer this and end; - : what stdin has')
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
  const stop = new AbortController()
  const interrupt = (): void => stop.abort()
  process.on('SIGINT', interrupt)
  try {
    using model = await TextModel.load(source, {
      ...modelOptions(flags),
      ...(await templateOption(flags.template)),
      signal: stop.signal,
    })
    const session = await sessionOf(model, flags)
    if (prompt !== undefined) await answer(session, prompt, stop.signal)
    else {
      process.off('SIGINT', interrupt)
      await new ChatTerminal(model, session).run()
    }
  } catch (error) {
    if (!stop.signal.aborted) throw error
    process.exitCode = 130
    printError('interrupted')
  } finally {
    process.off('SIGINT', interrupt)
  }
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
