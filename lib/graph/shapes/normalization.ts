// normalization.ts: shapes of normalizations.
import { exactDivide, isSize } from '../../core/size.js'
import { sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './context.js'
import { alongAxis, expectBroadcast, expectCount, expectRank } from './operands.js'
import { type Check, type OperatorTable, sameAs, sameAsFirst } from './row.js'

const layerNormalization: Rule = ctx => {
  const x = ctx.shape(0)
  const axis = x && ctx.axis(ctx.int('axis'), x.length)
  const statistics = tensorOrUnknown(
    ctx.typeAttribute('stash_type', 'f32'),
    x?.map((dim, i) => (i < axis! ? dim : 1)),
  )
  return [ctx.type(0), statistics, statistics]
}

const batchNormalization: Rule = ctx => [
  ctx.type(0),
  tensorOrUnknown(ctx.dtype(3), ctx.shape(3)),
  tensorOrUnknown(ctx.dtype(4), ctx.shape(4)),
]

/** Operands with an element for each channel of the first one. */
const perChannel =
  (...names: readonly string[]): Check =>
  ctx => {
    expectRank(ctx, 1)
    const x = ctx.shape(0)
    const channels = x && (x.length === 1 ? 1 : x[1])
    for (const [i, name] of names.entries()) expectCount(ctx, i + 1, name, channels, 'one for each channel')
  }

const expectGroups: Check = ctx => {
  expectRank(ctx, 2)
  perChannel('scale', 'bias')(ctx)
  const [channels, groups] = [ctx.shape(0)?.[1], ctx.int('num_groups')]
  if (groups < 1 || (isSize(channels) && exactDivide(channels, groups) === undefined))
    throw ctx.fail(`num_groups ${groups} does not divide ${channels ?? '?'} channels`)
}

const expectRowParameters: Check = ctx => {
  alongAxis(ctx)
  expectBroadcast(ctx, 1, 'scale', ctx.shape(0))
  expectBroadcast(ctx, 2, 'bias', ctx.shape(0))
}

const expectChannelWindow: Check = ctx => {
  expectRank(ctx, 2)
  if (ctx.int('size') < 1) throw ctx.fail(`size is ${ctx.int('size')}; it must be at least 1`)
}

/** Rows of normalizations. */
export const normalizations: OperatorTable = {
  '': {
    LayerNormalization: { shape: layerNormalization, check: expectRowParameters },
    RMSNormalization: { shape: sameAsFirst, check: expectRowParameters },
    GroupNormalization: { shape: sameAsFirst, check: expectGroups },
    InstanceNormalization: { shape: sameAsFirst, check: perChannel('scale', 'bias') },
    BatchNormalization: { shape: batchNormalization, check: perChannel('scale', 'bias', 'mean', 'variance') },
    LpNormalization: { shape: sameAsFirst, check: alongAxis, choices: { p: [1, 2] } },
    MeanVarianceNormalization: { shape: sameAsFirst },
    LRN: { shape: sameAsFirst, check: expectChannelWindow },
  },
  [sparkDomain]: {
    NormalizationGrad: { shape: sameAs(1, 2, 2) },
    BatchNormalizationGrad: { shape: sameAs(1, 2, 2) },
  },
}
