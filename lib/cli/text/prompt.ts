// prompt.ts: a text of the command line, or of stdin.
import { text as readAll } from 'node:stream/consumers'
import { UsageError } from '../command.js'

/**
 * The text of an argument; of stdin where it is `-` or missing.
 * @throws UsageError when there is none
 */
export async function readPrompt(argument: string | undefined): Promise<string> {
  if (argument !== undefined && argument !== '-') return expectText(argument)
  if (argument === undefined && process.stdin.isTTY)
    throw new UsageError("a text is missing: give it behind the model, or '-' and type it")
  return expectText(await readAll(process.stdin))
}

function expectText(text: string): string {
  if (text !== '') return text
  throw new UsageError('the text is empty')
}
