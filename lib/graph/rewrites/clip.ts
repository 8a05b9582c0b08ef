// clip.ts: appends the norm of all gradients together, and scales them where it is too large.
import { int } from '../attributes.js'
import { GraphBuilder } from '../builder.js'
import type { Graph } from '../graph.js'
import { flattenGradients } from './flat-gradients.js'

/** A graph whose gradients were measured. */
export interface Clipped {
  readonly graph: Graph
  /** Name of the norm of all gradients before clipping: one number. */
  readonly norm: string
  /** Name of the gradient of each parameter after clipping. */
  readonly gradients: ReadonlyMap<string, string>
}

/** Keeps the quotient of the largest element and itself finite when all gradients are 0: the smallest normal f32. */
const smallest = 2 ** -126

/**
 * Appends the Euclidean norm of all gradients, taken as one vector, and multiplies each by
 * min(1, maxNorm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does. Elements are divided by the largest one before
 * they are squared, so that no square overflows or vanishes.
 *
 * @param gradients - by parameter, which is an initializer
 * @param maxNorm - Infinity: the norm is computed and nothing clipped
 */
export function addClip(graph: Graph, gradients: ReadonlyMap<string, string>, maxNorm: number): Clipped {
  const builder = new GraphBuilder(graph, 'clip')
  const scalar = { keepdims: int(0) }
  const { names, unflatten } = flattenGradients(builder, graph, gradients)
  const peaks = names.map(name => builder.add('ReduceMax', [builder.add('Abs', [name])], scalar))
  const peak = builder.add('Max', [...peaks, builder.constant(smallest)])
  const squares = names.map(name =>
    builder.add('ReduceSumSquare', [builder.add('Div', [name, peak])], scalar),
  )
  const norm = builder.add('Mul', [peak, builder.add('Sqrt', [builder.add('Sum', squares)])])
  if (maxNorm === Number.POSITIVE_INFINITY) return { graph: builder.build(), norm, gradients }
  const ratio = builder.add('Div', [
    builder.constant(maxNorm),
    builder.add('Add', [norm, builder.constant(1e-6)]),
  ])
  const factor = builder.add('Min', [ratio, builder.constant(1)])
  const clipped = unflatten(names.map(name => builder.add('Mul', [name, factor])))
  return { graph: builder.build(), norm, gradients: clipped }
}
