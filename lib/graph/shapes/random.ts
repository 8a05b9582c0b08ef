// random.ts: shapes of random tensors and of dropout.
import { sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './context.js'
import { single } from './operands.js'
import { type OperatorTable, sameAs } from './row.js'

const dropout: Rule = ctx => [ctx.type(0), tensorOrUnknown('bool', ctx.shape(0))]

const randomTensor: Rule = ctx => [tensorOrUnknown(ctx.typeAttribute('dtype', 'f32'), ctx.ints('shape'))]

const randomLike: Rule = ctx => [tensorOrUnknown(ctx.typeAttribute('dtype', ctx.dtype(0)), ctx.shape(0))]

const multinomial: Rule = ctx => [
  tensorOrUnknown(ctx.typeAttribute('dtype', 'i32'), [ctx.shape(0)?.[0] ?? null, ctx.int('sample_size')]),
]

/** Rows of random tensors. */
export const randomness: OperatorTable = {
  '': {
    Dropout: { shape: dropout, check: single('ratio', 'training_mode'), conditions: [2] },
    Bernoulli: { shape: randomLike },
    RandomNormal: { shape: randomTensor },
    RandomNormalLike: { shape: randomLike },
    RandomUniform: { shape: randomTensor },
    RandomUniformLike: { shape: randomLike },
    Multinomial: { shape: multinomial },
  },
  [sparkDomain]: {
    DropoutMask: { shape: sameAs(0) },
  },
}
