// attention-site.ts: where an exported decoder computes the attention of a layer.
import type { Node } from '../../graph/graph.js'
import type { AttentionParts } from './paged-attention.js'

/** Attention of a layer, and the node that gives what it gives. */
export interface AttentionSite extends Omit<AttentionParts, 'window'> {
  /** The node in the place of which PagedAttention comes. */
  readonly node: Node
  /** Names of what is added to scores, or says which keys are seen. */
  readonly masks: readonly string[]
  /** Whether later keys are hidden whatever the masks are. */
  readonly isCausal: boolean
}
