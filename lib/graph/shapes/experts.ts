// experts.ts: shapes of mixtures of experts.
import { sparkDomain } from '../graph.js'
import { type Rule, showShape } from './context.js'
import { compatible } from './dimensions.js'
import { expectShape } from './operands.js'
import { f32, type OperatorTable } from './row.js'

/** x [N, I] or [N, k, I], weight [E, O, I], choice [N, k], bias [E, O] → [N, k, O] */
const expertLinear: Rule = ctx => {
  const [x, weight, choice] = [ctx.shape(0), ctx.shape(1), ctx.shape(2)]
  if (weight && weight.length !== 3)
    throw ctx.fail(`the weight is ${showShape(weight)}; it must be [experts, out features, in features]`)
  if (choice && choice.length !== 2)
    throw ctx.fail(`the choice is ${showShape(choice)}; it must be [tokens, experts of a token]`)
  if (weight) expectShape(ctx, 3, 'bias', weight.slice(0, 2))
  if (!x || !weight || !choice) return f32(undefined)
  const expected = x.length === 3 ? [...choice, weight[2]!] : [choice[0]!, weight[2]!]
  if (x.length !== expected.length || !x.every((size, i) => compatible(size, expected[i]!)))
    throw ctx.fail(`x is ${showShape(x)}; it must be ${showShape(expected)}`)
  return f32([...choice, weight[1]!])
}

/** Rows of mixtures of experts. */
export const expertLayers: OperatorTable = {
  [sparkDomain]: { ExpertLinear: { shape: expertLinear, integers: [2] } },
}
