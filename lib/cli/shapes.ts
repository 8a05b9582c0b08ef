// shapes.ts: options for open dimensions and precision modes.
import { InvalidArgumentError, type Option } from 'commander'
import { type Precision, parsePrecision, precisions } from '../core/config.js'
import { didYouMean } from '../core/did-you-mean.js'
import type { Graph, SymbolicDimension } from '../graph/graph.js'
import { choice, UsageError } from './command.js'

/** Sizes by their name in the model. */
export type Sizes = Readonly<Record<string, number>>

/** Shapes of inputs by their names. */
export type Shapes = Readonly<Record<string, readonly number[]>>

/** What a user says about open dimensions: names of sizes, and whole shapes of inputs. */
export interface SizeOptions {
  readonly size?: Sizes
  readonly shape?: Shapes
}

/** Reads `name=size`, again and again. */
export function parseSize(text: string, sizes: Sizes = {}): Sizes {
  const [, name, size] = /^(.+)=(\d{1,9})$/.exec(text) ?? []
  if (!name) throw new InvalidArgumentError('expected <name>=<size>, such as batch=4')
  return { ...sizes, [name]: Number(size) }
}

/** Reads `input=1,3,320,320`, again and again. */
export function parseShape(text: string, shapes: Shapes = {}): Shapes {
  const [, name, sizes = ''] = /^(.+)=(\d{1,9}(?:,\d{1,9})*|)$/.exec(text) ?? []
  if (!name) throw new InvalidArgumentError('expected <input>=<sizes>, such as image=1,3,320,320')
  return { ...shapes, [name]: sizes === '' ? [] : sizes.split(',').map(Number) }
}

/** The names of open dimensions of all tensor inputs. */
function openSizes(graph: Graph): string[] {
  const named = graph.inputs.flatMap(({ type }) =>
    type?.kind === 'tensor' ? (type.shape ?? []).filter(dim => typeof dim === 'string') : [],
  )
  return [...new Set(named)]
}

/** Whether an input has sizes that the model leaves open. */
export const hasOpenSizes = (graph: Graph): boolean =>
  graph.inputs.some(({ type }) => type?.kind === 'tensor' && type.shape?.some(dim => typeof dim !== 'number'))

/** Throws for sizes and shapes of names that the model does not have, and for shapes that do not fit. */
function expectFitting(graph: Graph, { size = {}, shape = {} }: SizeOptions): void {
  const open = openSizes(graph)
  for (const name of Object.keys(size)) {
    if (open.includes(name)) continue
    const known = open.join(', ') || 'none with a name; give --shape <input>=<sizes>'
    throw new UsageError(
      `--size ${name}: open dimensions of the model are: ${known}${didYouMean(name, open)}`,
    )
  }
  for (const [name, sizes] of Object.entries(shape)) {
    const type = graph.inputs.find(input => input.name === name)?.type
    const given = `--shape ${name}=${sizes.join(',')}`
    if (type?.kind !== 'tensor') {
      const names = graph.inputs.map(input => input.name)
      const known = names.join(', ') || 'none'
      throw new UsageError(`${given}: the inputs of the model are: ${known}${didYouMean(name, names)}`)
    }
    const wanted = type.shape
    const fits = (dim: SymbolicDimension, i: number): boolean => typeof dim !== 'number' || dim === sizes[i]
    if (!wanted || (wanted.length === sizes.length && wanted.every(fits))) continue
    throw new UsageError(`${given}: the model wants [${wanted.map(dim => dim ?? '?').join(', ')}]`)
  }
}

/**
 * Shapes of all tensor inputs: the given ones, and of the others with dimensions of a given size; 1 where none is given.
 * @throws UsageError for the size of a dimension or the shape of an input that the model does not have
 */
export function inputShapes(graph: Graph, options: SizeOptions): Record<string, readonly number[]> {
  expectFitting(graph, options)
  const { size = {}, shape = {} } = options
  const sizeOf = (dim: SymbolicDimension): number => {
    if (typeof dim === 'number') return dim
    return typeof dim === 'string' && Object.hasOwn(size, dim) ? size[dim]! : 1
  }
  return Object.fromEntries(
    graph.inputs.flatMap(({ name, type }) => {
      if (Object.hasOwn(shape, name)) return [[name, shape[name]!]]
      return type?.kind === 'tensor' && type.shape ? [[name, type.shape.map(sizeOf)]] : []
    }),
  )
}

/** What to add to an error about shapes when sizes were taken as 1; undefined when all were given. */
export function sizeHint(graph: Graph, { size = {}, shape = {} }: SizeOptions): string | undefined {
  const open = graph.inputs.flatMap(({ name, type }) => {
    if (Object.hasOwn(shape, name) || type?.kind !== 'tensor') return []
    const sizes = type.shape ?? []
    const names = sizes.filter(dim => typeof dim === 'string' && !Object.hasOwn(size, dim))
    return names.length > 0 || sizes.includes(null) ? [{ name, names, sizes }] : []
  })
  const [input] = open
  if (!input) return undefined
  const names = [...new Set(open.flatMap(({ names }) => names))].map(name => `--size ${name}=N`)
  const whole = `--shape ${input.name}=${input.sizes.map(dim => (typeof dim === 'number' ? dim : 'N')).join(',')}`
  return `open sizes were taken as 1: give others, such as ${[...names, whole].join(' or ')}`
}

/** The option `--precision`. */
export const precisionOption = (description: string): Option =>
  choice('--precision <mode>', description, [...precisions, 'fp4']).argParser(parseMode)

/** Reads a precision mode. */
export function parseMode(text: string): Precision {
  const mode = parsePrecision(text)
  if (mode) return mode
  throw new InvalidArgumentError(`expected one of ${precisions.join(', ')}${didYouMean(text, precisions)}`)
}
