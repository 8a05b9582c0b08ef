// operand-types.ts: element types of operands that say where or how many: axes, sizes, indices, lengths, conditions.
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../attributes.js'
import type { Call } from './call.js'

/** Places of operands by operator. */
type Places = Readonly<Record<string, readonly number[]>>

const at = (places: readonly number[], names: string): Places =>
  Object.fromEntries(names.split(' ').map(name => [name, places]))

/** Operands of integers. The standard wants i64 for most of them; i32 says the same. */
const integers: Places = {
  ...at([0], 'ConstantOfShape HannWindow HammingWindow BlackmanWindow Loop'),
  ...at(
    [1],
    'Reshape Squeeze Unsqueeze Split Expand Tile TopK CumSum CumProd Trilu CenterCropPad AffineGrid',
  ),
  ...at(
    [1],
    'ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum',
  ),
  ...at([1], 'ReduceSumSquare Gather GatherElements GatherND ScatterElements ScatterND ReverseSequence'),
  ...at([1], 'NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss SequenceAt SequenceErase SplitToSequence'),
  ...at([2], 'TensorScatter RoiAlign NonMaxSuppression SequenceInsert'),
  ...at([3], 'Resize RotaryEmbedding'),
  ...at([4], 'RNN GRU LSTM'),
  ...at([6], 'Attention'),
  ...at([1, 2], 'MaxUnpool Col2Im DFT'),
  ...at([1, 3], 'Pad STFT'),
  ...at([0, 1, 2], 'MelWeightMatrix'),
  ...at([1, 2, 3, 4], 'Slice'),
}

/** Operands of conditions. */
const conditions: Places = { ...at([0], 'If Where'), ...at([1], 'Loop Compress'), ...at([2], 'Dropout') }

function expectType(call: Call, places: Places, allowed: readonly ElementType[]): void {
  const { op } = call.node
  if (!Object.hasOwn(places, op)) return
  for (const i of places[op]!) {
    const dtype = call.dtype(i)
    if (!dtype || allowed.includes(dtype)) continue
    const what = `input ${i} is ${dtype}; it must be ${allowed.join(' or ')}: add a Cast`
    throw new SparkError('ERR_DTYPE', `${describeNode(call.node)}: ${what}`)
  }
}

/**
 * Refuses floats, texts and the like where an operator of the standard wants integers or conditions.
 * @throws SparkError ERR_DTYPE naming the node
 */
export function expectOperandTypes(call: Call): void {
  if (call.node.domain !== '') return
  expectType(call, integers, ['i32', 'i64'])
  expectType(call, conditions, ['bool'])
}
