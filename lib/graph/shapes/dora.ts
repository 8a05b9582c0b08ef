// dora.ts: shapes of DoRA layers.
import { sparkDomain } from '../graph.js'
import type { Rule } from './call.js'
import { compatible } from './dimensions.js'
import { f32, type OperatorTable, rowsOf, sameAs } from './row.js'

/** x, W, A, B, magnitude, bias, mask → y, xa, z, norm, gain */
const dora: Rule = call => {
  const [x, w, a] = [call.shape(0), call.shape(1), call.shape(2)]
  const rows = rowsOf(call, 1)
  if (x && w && !compatible(x.at(-1)!, w[1]!))
    throw call.fail(`x has ${x.at(-1)} features, the weight ${w[1]}`)
  const lead = x?.slice(0, -1)
  const [y, xa] = [lead && [...lead, ...rows], lead && [...lead, a?.[0] ?? null]]
  return f32(y, xa, y, rows, rows)
}

const doraGrad: Rule = call => [...sameAs(1, 3, 4, 5)(call), ...f32(rowsOf(call, 2))]

const doraWeight: Rule = call => [call.type(0), ...f32(rowsOf(call, 0), rowsOf(call, 0))]

const doraWeightGrad: Rule = call => [...sameAs(2, 3)(call), ...f32(rowsOf(call, 1))]

/** Rows of DoRA layers. */
export const doraLayers: OperatorTable = {
  [sparkDomain]: {
    DoRA: { shape: dora },
    DoRAGrad: { shape: doraGrad },
    DoRAWeight: { shape: doraWeight },
    DoRAWeightGrad: { shape: doraWeightGrad },
  },
}
