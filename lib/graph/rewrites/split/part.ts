// part.ts: what a rank computes of a node.
import { type Size, sameSize } from '../../../core/size.js'
import type { Attributes, Node } from '../../graph.js'
import type { SplitFacts } from './facts.js'
import type { Layout } from './layout.js'

/** What a rank computes of a node. */
export interface Part {
  /** For each input its part, or undefined where the whole is read. */
  readonly inputs: readonly (Layout | undefined)[]
  /** For each output its part, or undefined for a whole one. */
  readonly outputs: readonly (Layout | undefined)[]
  /** Attributes in the place of those of the node. */
  readonly attributes?: Attributes
  /** Integers in the place of an input, such as the shape of a Reshape. */
  readonly constants?: ReadonlyMap<number, readonly number[]>
  /** One element in the place of that of an input of integers that is known at run time only. */
  readonly element?: { readonly input: number; readonly at: number; readonly value: number }
  /** Whether weights are cut by out features, or heads by rank: what makes a region worth its sums. */
  readonly isGain?: boolean
}

/** Output `o` in parts as `layout` says; undefined where that is impossible. */
export type SplitRule = (node: Node, o: number, layout: Layout, facts: SplitFacts) => Part | undefined

/** Rules by operator. */
export type SplitRules = Readonly<Record<string, SplitRule>>

/** The part of an input that is broadcast to an output of `rank` dimensions; null where its sizes do not say. */
export function broadcastPart(
  shape: readonly (Size | undefined)[] | undefined,
  rank: number,
  layout: Layout,
  size: Size,
): Layout | undefined | null {
  if (!shape) return null
  const axis = layout.axis - (rank - shape.length)
  const own = axis < 0 ? 1 : shape[axis]
  if (own === undefined) return null
  if (own === 1) return undefined
  return sameSize(own, size) ? { ...layout, axis } : null
}
