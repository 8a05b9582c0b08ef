// loss.ts: shapes of losses.
import { stringOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import { type Rule, showShape, tensorOrUnknown } from './context.js'
import { expectCount, expectRank, expectShape } from './operands.js'
import { type Check, type Choices, type OperatorTable, sameAs } from './row.js'

/** The losses give one number, or one for every element of the labels. */
const loss: Rule = ctx => {
  const whole = stringOf(ctx.node, 'reduction') !== 'none'
  return [tensorOrUnknown(ctx.dtype(0), whole ? [] : ctx.shape(1)), ctx.type(0)]
}

/**
 * Labels have the sizes of the scores without their classes, which have weights. The batch is left to the kernel: where a
 * model has it written into it, a training may use another one.
 */
const expectLabels: Check = ctx => {
  expectRank(ctx, 2)
  const x = ctx.shape(0)
  if (!x) return
  const labels = ctx.shape(1)
  if (labels && labels.length !== x.length - 1) {
    const wanted = `class numbers ${showShape([x[0]!, ...x.slice(2)])} for scores ${showShape(x)}`
    throw ctx.fail(
      `its labels are ${showShape(labels)}; they must be ${wanted}: take the argMax of one-hot rows`,
    )
  }
  expectShape(ctx, 1, 'the shape of the labels (class indices)', [null, ...x.slice(2)])
  expectCount(ctx, 2, 'the shape of its weights', x[1], 'one for each class')
}

/** Ways to combine the losses of samples. */
const lossReductions: Choices = { reduction: ['none', 'mean', 'sum'] }

/** Rows of losses. */
export const losses: OperatorTable = {
  '': {
    NegativeLogLikelihoodLoss: { shape: loss, check: expectLabels, integers: [1], choices: lossReductions },
    SoftmaxCrossEntropyLoss: { shape: loss, check: expectLabels, integers: [1], choices: lossReductions },
  },
  [sparkDomain]: {
    SoftmaxCrossEntropyLossGrad: { shape: sameAs(1) },
  },
}
