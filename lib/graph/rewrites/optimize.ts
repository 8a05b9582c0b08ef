// optimize.ts: everything that makes a graph cheaper to run and leaves its outputs as they are. Comes after
// differentiation, right before the plan.
import { atOnce, type Paced } from '../../core/paced.js'
import type { Graph } from '../graph.js'
import { mergeCommonSubexpressionsPaced } from './common-subexpressions.js'
import { fuseGelu, fuseHardSigmoid, fuseHardSwish, fuseSwish } from './fuse/activations.js'
import { fuseAttention, joinAttentionHeads } from './fuse/attention.js'
import { fuseBatchNorm, fuseChannels } from './fuse/channels.js'
import { fuseActivation, fuseAdd, fuseGate, fuseLinear } from './fuse/layers.js'
import { fuseNormalization, fuseNormalizationBias } from './fuse/norms.js'
import { fusePadding } from './fuse/padding.js'
import { fuse, GraphView, type Match } from './fuse/pattern.js'
import { fuseSquare } from './fuse/powers.js'
import { fuseLookup, fuseQuantizedLayer } from './fuse/quantized.js'
import { removeDeadPaced } from './remove-dead.js'
import { removeIdentitiesPaced } from './remove-identities.js'

/** What {@link optimize} gives. */
export interface Optimized {
  /** The cheaper graph. */
  readonly graph: Graph
  /** How often each fusion was made, by its name; those that were not are missing. */
  readonly fusions: ReadonlyMap<string, number>
}

/** In their order: what one makes is a part of the next. */
const fusions: readonly (readonly [string, Match])[] = [
  ['gelu', fuseGelu],
  ['swish', fuseSwish],
  ['hard sigmoid', fuseHardSigmoid],
  ['hard swish', fuseHardSwish],
  ['normalization', fuseNormalization],
  ['normalization bias', fuseNormalizationBias],
  ['attention', fuseAttention],
  ['attention heads', joinAttentionHeads],
  ['padding', fusePadding],
  ['batch normalization', fuseBatchNorm],
  ['channels', fuseChannels],
  ['quantized layer', fuseQuantizedLayer],
  ['lookup', fuseLookup],
  ['linear', fuseLinear],
  ['square', fuseSquare],
  ['epilogue', (node, view) => fuseActivation(node, view) ?? fuseGate(node, view) ?? fuseAdd(node, view)],
]

/**
 * Removes what is not needed and fuses what kernels do in one go. Fusions that need sizes are made where they are known:
 * give the graph static input shapes. The graph that comes out may hold operators of our own domain.
 * @param graph - a canonical graph
 */
export function optimize(graph: Graph): Optimized {
  return atOnce(optimizePaced(graph))
}

/** {@link optimize} with pauses. */
export function* optimizePaced(graph: Graph): Paced<Optimized> {
  const living = yield* removeIdentitiesPaced(yield* removeDeadPaced(graph))
  // Values that are left have the names and facts that they had.
  let view = yield* GraphView.of(yield* mergeCommonSubexpressionsPaced(living), graph)
  const counts = new Map<string, number>()
  for (const [name, match] of fusions) {
    const fused = yield* fuse(view, match)
    view = fused.view
    if (fused.count > 0) counts.set(name, fused.count)
  }
  return { graph: view.done(), fusions: counts }
}
