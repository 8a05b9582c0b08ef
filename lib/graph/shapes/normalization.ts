// normalization.ts: shapes of normalizations.
import { sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './call.js'
import { alongAxis, expectBroadcast, expectCount, expectRank } from './operands.js'
import { type Check, type OperatorTable, sameAs, sameAsFirst } from './row.js'

const layerNormalization: Rule = call => {
  const x = call.shape(0)
  const axis = x && call.axis(call.int('axis', -1), x.length)
  const statistics = tensorOrUnknown(
    call.typeAttribute('stash_type', 'f32'),
    x?.map((dim, i) => (i < axis! ? dim : 1)),
  )
  return [call.type(0), statistics, statistics]
}

const batchNormalization: Rule = call => [
  call.type(0),
  tensorOrUnknown(call.dtype(3), call.shape(3)),
  tensorOrUnknown(call.dtype(4), call.shape(4)),
]

/** Operands with an element for each channel of the first one. */
const perChannel =
  (...names: readonly string[]): Check =>
  call => {
    expectRank(call, 1)
    const x = call.shape(0)
    const channels = x && (x.length === 1 ? 1 : x[1])
    for (const [i, name] of names.entries()) expectCount(call, i + 1, name, channels, 'one for each channel')
  }

const expectGroups: Check = call => {
  expectRank(call, 2)
  perChannel('scale', 'bias')(call)
  const [channels, groups] = [call.shape(0)?.[1], call.int('num_groups', 1)]
  if (groups < 1 || (typeof channels === 'number' && channels % groups !== 0))
    throw call.fail(`num_groups ${groups} does not divide ${channels ?? '?'} channels`)
}

const expectRowParameters: Check = call => {
  alongAxis(-1)(call)
  expectBroadcast(call, 1, 'scale', call.shape(0))
  expectBroadcast(call, 2, 'bias', call.shape(0))
}

const expectChannelWindow: Check = call => {
  expectRank(call, 2)
  if (call.int('size', 1) < 1) throw call.fail(`size is ${call.int('size', 1)}; it must be at least 1`)
}

/** Rows of normalizations. */
export const normalizations: OperatorTable = {
  '': {
    LayerNormalization: { shape: layerNormalization, check: expectRowParameters },
    RMSNormalization: { shape: sameAsFirst, check: expectRowParameters },
    GroupNormalization: { shape: sameAsFirst, check: expectGroups },
    InstanceNormalization: { shape: sameAsFirst, check: perChannel('scale', 'bias') },
    BatchNormalization: { shape: batchNormalization, check: perChannel('scale', 'bias', 'mean', 'variance') },
    LpNormalization: { shape: sameAsFirst, check: alongAxis(-1), choices: { p: [1, 2] } },
    MeanVarianceNormalization: { shape: sameAsFirst },
    LRN: { shape: sameAsFirst, check: expectChannelWindow },
  },
  [sparkDomain]: {
    NormalizationGrad: { shape: sameAs(1, 2, 2) },
    BatchNormalizationGrad: { shape: sameAs(1, 2, 2) },
  },
}
