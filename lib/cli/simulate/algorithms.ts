// algorithms.ts: algorithms on the command line: ONNX files, and built-in ones with their options.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { InvalidArgumentError } from 'commander'
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import type { Algorithm, PolicyWithMemory } from '../../simulation/algorithm.js'
import { acc, idm, laneKeeping, type PidOptions, pid } from '../../simulation/controllers.js'

/** An algorithm, or a part of one, and what it was called on the command line. */
export interface NamedAlgorithm {
  readonly label: string
  readonly algorithm: Algorithm
}

const builtIn: Readonly<Record<string, (options: object) => PolicyWithMemory>> = {
  idm,
  acc,
  laneKeeping,
  pid: options => pid(options as PidOptions),
}

const names = Object.keys(builtIn)

/** Characters of a label. */
const maxLabel = 60

/** Adds the algorithm that a text names to those before it. */
export function parseAlgorithm(text: string, before: readonly NamedAlgorithm[] = []): NamedAlgorithm[] {
  return [...before, readAlgorithm(text)]
}

/** Several algorithms as one: each gives some of the actions. */
export function joinAlgorithms(parts: readonly NamedAlgorithm[]): NamedAlgorithm {
  const label = parts.map(part => part.label).join(' + ')
  return { label, algorithm: parts.map(part => part.algorithm) }
}

function readAlgorithm(text: string): NamedAlgorithm {
  const [, name = '', options] = /^([^:]*)(?::(.*))?$/s.exec(text) ?? []
  const make = Object.hasOwn(builtIn, name) ? builtIn[name]! : undefined
  if (make) return { label: shortened(text), algorithm: made(make, options) }
  if (text.endsWith('.onnx') || existsSync(text))
    return { label: shortened(path.basename(text)), algorithm: text }
  const known = `expected ${names.join(', ')}, or the path of an ONNX file`
  throw new InvalidArgumentError(`${known}${didYouMean(name, names)}`)
}

function made(make: (options: object) => PolicyWithMemory, text: string | undefined): PolicyWithMemory {
  try {
    return make(text === undefined ? {} : readOptions(text))
  } catch (error) {
    if (error instanceof SparkError) throw new InvalidArgumentError(error.message)
    throw error
  }
}

/** Options as a JSON object, or as pairs key=value with commas between them. */
function readOptions(text: string): object {
  if (text.startsWith('{')) {
    try {
      return JSON.parse(text)
    } catch (error) {
      throw new InvalidArgumentError(`the options are no JSON: ${(error as Error).message}`)
    }
  }
  return Object.fromEntries(
    text.split(',').map(pair => {
      const at = pair.indexOf('=')
      if (at <= 0) throw new InvalidArgumentError(`expected key=value, got '${pair}'`)
      const value = pair.slice(at + 1)
      return [pair.slice(0, at), value !== '' && Number.isFinite(Number(value)) ? Number(value) : value]
    }),
  )
}

const shortened = (text: string): string =>
  text.length > maxLabel ? `${text.slice(0, maxLabel - 1)}…` : text
