// shapes.ts: options for open dimensions and precision modes.
import { InvalidArgumentError } from 'commander'
import { type Precision, parsePrecision, precisions } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import type { Dimension, Graph } from '../graph/graph.js'

/** Sizes by their name in the model. */
export type Sizes = Readonly<Record<string, number>>

/** Reads `name=size`, again and again. */
export function parseSize(text: string, sizes: Sizes = {}): Sizes {
  const [, name, size] = /^(.+)=(\d{1,9})$/.exec(text) ?? []
  if (!name) throw new InvalidArgumentError('expected <name>=<size>, such as batch=4')
  return { ...sizes, [name]: Number(size) }
}

/**
 * Shapes of all tensor inputs; dimensions without a given size are 1.
 * @throws SparkError ERR_ARGUMENT for the size of a dimension that the model does not have
 */
export function inputShapes(graph: Graph, sizes: Sizes): Record<string, number[]> {
  const size = (dim: Dimension): number => (typeof dim === 'number' ? dim : (sizes[dim ?? ''] ?? 1))
  const open = graph.inputs.flatMap(({ type }) =>
    type?.kind === 'tensor' ? (type.shape ?? []).filter(dim => typeof dim === 'string') : [],
  )
  const unknown = Object.keys(sizes).find(name => !open.includes(name))
  if (unknown !== undefined) {
    const known = [...new Set(open)].join(', ') || 'none'
    throw new SparkError('ERR_ARGUMENT', `--size ${unknown}: open dimensions of the model are: ${known}`)
  }
  const shapes: Record<string, number[]> = {}
  for (const { name, type } of graph.inputs) {
    if (type?.kind === 'tensor' && type.shape) shapes[name] = type.shape.map(size)
  }
  return shapes
}

/** Reads a precision mode. */
export function parseMode(text: string): Precision {
  const mode = parsePrecision(text)
  if (!mode) throw new InvalidArgumentError(`expected one of ${precisions.join(', ')}`)
  return mode
}
