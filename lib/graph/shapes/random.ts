// random.ts: shapes of random tensors and of dropout.
import { sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './call.js'
import { single } from './operands.js'
import { type OperatorTable, sameAs } from './row.js'

const dropout: Rule = call => [call.type(0), tensorOrUnknown('bool', call.shape(0))]

const randomTensor: Rule = call => [tensorOrUnknown(call.typeAttribute('dtype', 'f32'), call.ints('shape'))]

const randomLike: Rule = call => [tensorOrUnknown(call.typeAttribute('dtype', call.dtype(0)), call.shape(0))]

const multinomial: Rule = call => [
  tensorOrUnknown(call.typeAttribute('dtype', 'i32'), [
    call.shape(0)?.[0] ?? null,
    call.int('sample_size', 1),
  ]),
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
