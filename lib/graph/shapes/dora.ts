// dora.ts: shapes of DoRA layers.
import { sparkDomain } from '../graph.js'
import type { Rule } from './context.js'
import { compatible } from './dimensions.js'
import { f32, type OperatorTable, rowsOf, sameAs } from './row.js'

/** x, W, A, B, magnitude, bias, mask → y, xa, z, norm, gain */
const dora: Rule = ctx => {
  const [x, w, a] = [ctx.shape(0), ctx.shape(1), ctx.shape(2)]
  const rows = rowsOf(ctx, 1)
  if (x && w && !compatible(x.at(-1)!, w[1]!))
    throw ctx.fail(`x has ${x.at(-1)} features, the weight ${w[1]}`)
  const lead = x?.slice(0, -1)
  const [y, xa] = [lead && [...lead, ...rows], lead && [...lead, a?.[0] ?? null]]
  return f32(y, xa, y, rows, rows)
}

const doraGrad: Rule = ctx => [...sameAs(1, 3, 4, 5)(ctx), ...f32(rowsOf(ctx, 2))]

const doraWeight: Rule = ctx => [ctx.type(0), ...f32(rowsOf(ctx, 0), rowsOf(ctx, 0))]

const doraWeightGrad: Rule = ctx => [...sameAs(2, 3)(ctx), ...f32(rowsOf(ctx, 1))]

/** Rows of DoRA layers. */
export const doraLayers: OperatorTable = {
  [sparkDomain]: {
    DoRA: { shape: dora },
    DoRAGrad: { shape: doraGrad },
    DoRAWeight: { shape: doraWeight },
    DoRAWeightGrad: { shape: doraWeightGrad },
  },
}
