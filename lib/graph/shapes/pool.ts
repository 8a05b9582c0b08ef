// pool.ts: shapes of pooling.
import { add, isSize, multiply, subtract } from '../../core/size.js'
import { sparkDomain } from '../graph.js'
import { type Rule, type ShapeContext, tensorOrUnknown } from './context.js'
import { type Shape, unknownShape } from './dimensions.js'
import { expectRank } from './operands.js'
import { type Check, type OperatorTable, sameAs } from './row.js'
import { autoPads, outputSize, windows } from './window.js'

function pooled(ctx: ShapeContext): Shape | undefined {
  const x = ctx.shape(0)
  if (!x) return undefined
  return [
    ...x.slice(0, 2),
    ...windows(ctx, x.length - 2, undefined).map((window, i) => outputSize(ctx, x[i + 2]!, window)),
  ]
}

const globalPool: Rule = ctx => {
  const x = ctx.shape(0)
  return [
    tensorOrUnknown(
      ctx.dtype(0),
      x?.map((dim, i) => (i < 2 ? dim : 1)),
    ),
  ]
}

const pool: Rule = ctx => {
  const shape = pooled(ctx)
  return [tensorOrUnknown(ctx.dtype(0), shape), tensorOrUnknown('i64', shape)]
}

const maxUnpool: Rule = ctx => {
  const x = ctx.shape(0)
  if (ctx.has(2))
    return [tensorOrUnknown(ctx.dtype(0), ctx.known(2)?.elements ?? (x && unknownShape(x.length)))]
  const sizes = x && windows(ctx, x.length - 2, undefined)
  return [
    tensorOrUnknown(
      ctx.dtype(0),
      x?.map((dim, i) => {
        if (i < 2) return dim
        const { size, stride, pads } = sizes![i - 2]!
        return isSize(dim) && isSize(size)
          ? add(multiply(subtract(dim, 1), stride), size, -pads[0] - pads[1])
          : null
      }),
    ),
  ]
}

const roiAlign: Rule = ctx => [
  tensorOrUnknown(ctx.dtype(0), [
    ctx.shape(1)?.[0] ?? null,
    ctx.shape(0)?.[1] ?? null,
    ctx.int('output_height'),
    ctx.int('output_width'),
  ]),
]

const maxRoiPool: Rule = ctx => {
  const pooled = ctx.ints('pooled_shape') ?? unknownShape(2)
  return [tensorOrUnknown(ctx.dtype(0), [ctx.shape(1)?.[0] ?? null, ctx.shape(0)?.[1] ?? null, ...pooled])]
}

/** Global pooling needs a batch and channels. */
const expectPlanes: Check = ctx => expectRank(ctx, 2)

/** Rows of pooling. */
export const pooling: OperatorTable = {
  '': {
    AveragePool: { shape: pool, choices: autoPads },
    MaxPool: { shape: pool, choices: autoPads },
    LpPool: { shape: pool, choices: autoPads },
    GlobalAveragePool: { shape: globalPool, check: expectPlanes },
    GlobalMaxPool: { shape: globalPool, check: expectPlanes },
    GlobalLpPool: { shape: globalPool, check: expectPlanes },
    MaxUnpool: { shape: maxUnpool, integers: [1, 2] },
    RoiAlign: { shape: roiAlign, integers: [2] },
    MaxRoiPool: { shape: maxRoiPool },
  },
  [sparkDomain]: {
    AveragePoolGrad: { shape: sameAs(1) },
    MaxPoolGrad: { shape: sameAs(1) },
    GlobalAveragePoolGrad: { shape: sameAs(1) },
  },
}
