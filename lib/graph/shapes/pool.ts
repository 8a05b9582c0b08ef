// pool.ts: shapes of pooling.
import { sparkDomain } from '../graph.js'
import { type Call, type Rule, tensorOrUnknown } from './call.js'
import { type Shape, unknownShape } from './dimensions.js'
import { expectRank } from './operands.js'
import { type Check, type OperatorTable, sameAs } from './row.js'
import { autoPads, outputSize, windows } from './window.js'

function pooled(call: Call): Shape | undefined {
  const x = call.shape(0)
  if (!x) return undefined
  return [
    ...x.slice(0, 2),
    ...windows(call, x.length - 2, undefined).map((window, i) => outputSize(call, x[i + 2]!, window)),
  ]
}

const globalPool: Rule = call => {
  const x = call.shape(0)
  return [
    tensorOrUnknown(
      call.dtype(0),
      x?.map((dim, i) => (i < 2 ? dim : 1)),
    ),
  ]
}

const pool: Rule = call => {
  const shape = pooled(call)
  return [tensorOrUnknown(call.dtype(0), shape), tensorOrUnknown('i64', shape)]
}

const maxUnpool: Rule = call => {
  const x = call.shape(0)
  if (call.has(2))
    return [tensorOrUnknown(call.dtype(0), call.known(2)?.elements ?? (x && unknownShape(x.length)))]
  const sizes = x && windows(call, x.length - 2, undefined)
  return [
    tensorOrUnknown(
      call.dtype(0),
      x?.map((dim, i) => {
        if (i < 2) return dim
        const { size, stride, pads } = sizes![i - 2]!
        return typeof dim === 'number' && typeof size === 'number'
          ? (dim - 1) * stride + size - pads[0] - pads[1]
          : null
      }),
    ),
  ]
}

const roiAlign: Rule = call => [
  tensorOrUnknown(call.dtype(0), [
    call.shape(1)?.[0] ?? null,
    call.shape(0)?.[1] ?? null,
    call.int('output_height', 1),
    call.int('output_width', 1),
  ]),
]

const maxRoiPool: Rule = call => {
  const pooled = call.ints('pooled_shape') ?? unknownShape(2)
  return [tensorOrUnknown(call.dtype(0), [call.shape(1)?.[0] ?? null, call.shape(0)?.[1] ?? null, ...pooled])]
}

/** Global pooling needs a batch and channels. */
const expectPlanes: Check = call => expectRank(call, 2)

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
