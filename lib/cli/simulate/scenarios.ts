// scenarios.ts: the scenarios of a simulation: from a file, from stdin, generated; and those that could not run.
import { createReadStream } from 'node:fs'
import type { Readable } from 'node:stream'
import { SparkError } from '../../core/errors.js'
import { printable } from '../../core/printable.js'
import { ioError } from '../../io/atomic-write.js'
import type { DrivingScenario } from '../../simulation/driving-scenario.js'
import type { FailedScenario } from '../../simulation/scenarios.js'
import { formatBytes } from '../output.js'

/** Bytes of a file of scenarios: about a million of them. */
const maxBytes = 256 * 2 ** 20

/** A scenario that could not run, as the command shows it. */
export interface Refusal {
  readonly index: number
  readonly name: string
  /** What is wrong, such as `ego.speed`; '' for the scenario as a whole. */
  readonly field: string
  readonly reason: string
}

/**
 * The list of scenarios in a JSON file, `-` for stdin. Each of them is checked when it runs.
 * @throws SparkError ERR_IO, ERR_FORMAT
 */
export async function readScenarioFile(file: string): Promise<DrivingScenario[]> {
  const isStdin = file === '-'
  const label = isStdin ? 'stdin' : file
  const bytes = await readLimited(isStdin ? process.stdin : createReadStream(file), label)
  const list = listOf(parsed(bytes.toString('utf8').replace(/^\ufeff/, ''), label), label)
  if (list.length === 0) throw new SparkError('ERR_FORMAT', `${label} has no scenarios: its list is empty`)
  return list as DrivingScenario[]
}

async function readLimited(stream: Readable, label: string): Promise<Buffer> {
  const chunks: Buffer[] = []
  let length = 0
  try {
    for await (const chunk of stream) {
      chunks.push(chunk as Buffer)
      length += (chunk as Buffer).length
      if (length > maxBytes)
        throw new SparkError('ERR_FORMAT', `${label} has more than ${formatBytes(maxBytes)}: divide it`)
    }
  } catch (error) {
    throw ioError('read', label, error)
  }
  return Buffer.concat(chunks)
}

function parsed(text: string, label: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    const message = text.trim() === '' ? 'it is empty' : (error as Error).message
    throw new SparkError('ERR_FORMAT', `${label} is no JSON: ${message}`, { cause: error })
  }
}

function listOf(value: unknown, label: string): readonly unknown[] {
  if (Array.isArray(value)) return value
  const { scenarios, ego } = (value ?? {}) as { readonly scenarios?: unknown; readonly ego?: unknown }
  if (Array.isArray(scenarios)) return scenarios
  const hint = ego === undefined ? '' : '; for a single scenario write [ … ] around it'
  const wanted = 'a list of scenarios, or an object { "scenarios": [ … ] }'
  throw new SparkError('ERR_FORMAT', `${label} must hold ${wanted}${hint}`)
}

/** What was wrong with a scenario, without its index and name, which errors of the library begin with. */
export function refusal({ index, name, error: { message } }: FailedScenario): Refusal {
  // The index is that in the part of the list which ran.
  const [label] = /^scenario \d+/.exec(message) ?? []
  if (label === undefined) {
    const [field = '', ...words] = message.split(' ')
    return { index, name, field, reason: words.join(' ') }
  }
  const quoted = ` '${printable(name)}'`
  const begin = message.slice(label.length)
  const rest = begin.startsWith(quoted) ? begin.slice(quoted.length) : begin
  const [, field = '', reason = rest] = /^\.(\S+) (.*)$/s.exec(rest) ?? []
  return { index, name, field, reason: reason.trim() }
}
