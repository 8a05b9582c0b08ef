// command.ts: examples in the help of commands, marks of required options, short usage errors, Ctrl-C.
import { type Command, Help, InvalidArgumentError, Option } from 'commander'
import { didYouMean } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'

/** What stands for a command in the help of the tool, where its options and operands are not loaded. */
const termOf = new WeakMap<Command, string>()

/** Has the help of the tool list a command as `term`: its name, marks of options and operands. */
export function withTerm(command: Command, term: string): Command {
  termOf.set(command, term)
  return command
}

/** How all commands describe their options, and the tool its commands. */
export const helpStyle = {
  subcommandTerm: (command: Command): string => termOf.get(command) ?? Help.prototype.subcommandTerm(command),
  optionDescription(option: Option): string {
    const { defaultValue } = option
    const isEmptyList = Array.isArray(defaultValue) && defaultValue.length === 0
    const shown: Option = isEmptyList ? Object.create(option, { defaultValue: { value: undefined } }) : option
    const text = Help.prototype.optionDescription(shown)
    return option.mandatory ? `${text} (required)` : text
  },
}

/** Examples by command, as a user types them. */
const examplesOf = new WeakMap<Command, readonly string[]>()

/** Gives a command examples: its help ends with them, and the first one follows a usage error. */
export function withExamples(command: Command, ...examples: readonly [string, ...string[]]): Command {
  examplesOf.set(command, examples)
  const lines = examples.map(example => `  ${example}`)
  return command
    .addHelpText('after', ['', 'Examples:', ...lines].join('\n'))
    .showHelpAfterError(`example: ${examples[0]}\nhelp: ${fullName(command)} --help`)
}

/** The examples of a command. */
export const examples = (command: Command): readonly string[] => examplesOf.get(command) ?? []

/** The words that call a command: `dgx-spark adapter diff`. */
export function fullName(command: Command): string {
  const parent = command.parent ? `${fullName(command.parent)} ` : ''
  return `${parent}${command.name()}`
}

/** An option that takes one of some names. */
export function choice(flags: string, description: string, names: readonly string[]): Option {
  return new Option(flags, description).choices(names).argParser(text => {
    if (names.includes(text)) return text
    throw new InvalidArgumentError(`Allowed choices are ${names.join(', ')}${didYouMean(text, names)}`)
  })
}

/** An error about how a command was called: exit code 2. */
export class UsageError extends SparkError {
  constructor(message: string) {
    super('ERR_ARGUMENT', message)
  }
}

/** Where commander writes a usage error: one line, with the nearest spelling at its end. */
export function writeUsageError(text: string, write: (text: string) => void): void {
  write(text.replace(/\n\(Did you mean (.+)\?\)/, ' (did you mean $1?)'))
}

const signals = ['SIGINT', 'SIGTERM'] as const

/**
 * Does some work, whose signal Ctrl-C aborts; a second one ends the process.
 * @returns whether it was interrupted
 * @throws what the work throws, unless it was interrupted
 */
export async function interruptible(
  work: (signal: AbortSignal) => Promise<void>,
  abort = new AbortController(),
): Promise<boolean> {
  const interrupt = (): void => {
    if (abort.signal.aborted) process.exit(130)
    abort.abort()
  }
  for (const signal of signals) process.on(signal, interrupt)
  try {
    await work(abort.signal)
  } catch (error) {
    if (!abort.signal.aborted) throw error
  } finally {
    for (const signal of signals) process.off(signal, interrupt)
  }
  return abort.signal.aborted
}
