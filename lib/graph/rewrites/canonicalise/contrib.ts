// contrib.ts: operators of the domain com.microsoft, as exporters and optimizers emit them, in standard operators.

import type { Upgrade } from './context.js'
import { contribAttention } from './contrib-attention.js'
import { contribBlocks } from './contrib-blocks.js'
import { contribChannelsLast } from './contrib-channels-last.js'
import { contribExperts } from './contrib-experts.js'
import { contribFused } from './contrib-fused.js'
import { contribPaged } from './contrib-paged.js'
import { contribQuantized } from './contrib-quantized.js'
import { contribQuantizedExperts } from './contrib-quantized-experts.js'
import { contribWeights } from './contrib-weights.js'

/** Upgrades by operator. */
export const contribUpgrades: Readonly<Record<string, Upgrade>> = {
  ...contribFused,
  ...contribBlocks,
  ...contribChannelsLast,
  ...contribAttention,
  ...contribExperts,
  ...contribPaged,
  ...contribQuantized,
  ...contribQuantizedExperts,
  ...contribWeights,
}
