// model-value.ts: inputs and outputs of a model as its user sees them.
import type { ElementType } from '../core/dtype.js'
import { SizeExpression } from '../core/size-scope.js'
import type { Dimension, ValueInfo } from '../graph/graph.js'

/** An input or output of a model. */
export interface ModelValue {
  /** Its name. */
  readonly name: string
  /** `sequence` is a list of tensors; what is `optional` may be missing. */
  readonly kind: 'tensor' | 'sequence' | 'optional'
  /** Element type; null where the model does not say it. */
  readonly dtype: ElementType | null
  /**
   * Sizes of the dimensions: a number, the name of an open size, or null; null when not even their number is known. Sizes
   * of one name are probably equal; nothing depends on it.
   */
  readonly shape: readonly Dimension[] | null
}

/** A value of a graph. */
export function describeValue({ name, type }: ValueInfo): ModelValue {
  const kind = type?.kind === 'sequence' || type?.kind === 'optional' ? type.kind : 'tensor'
  let inner = type
  while (inner?.kind === 'sequence' || inner?.kind === 'optional') inner = inner.element
  if (inner?.kind !== 'tensor') return { name, kind, dtype: null, shape: null }
  const shape = inner.shape?.map(size => (size instanceof SizeExpression ? null : size))
  return { name, kind, dtype: inner.dtype, shape: shape ?? null }
}
