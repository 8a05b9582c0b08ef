// elementwise.ts: shapes of operators that treat every element alike.
import type { ElementType } from '../../core/dtype.js'
import { type Rule, tensorOrUnknown } from './call.js'

/** The output is like the first input. */
const sameAsFirst: Rule = call => [call.type(0)]

/** The inputs have one type and broadcast. */
const broadcasting: Rule = call => [tensorOrUnknown(call.commonDtype(), call.broadcast())]

const compare: Rule = call => {
  call.commonDtype([0, 1])
  return [tensorOrUnknown('bool', call.broadcast())]
}

const test: Rule = call => [tensorOrUnknown('bool', call.shape(0))]

/** Operators whose output has the type and shape of their first input. */
const unary =
  'Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh CumProd CumSum Elu Erf Exp Floor Gelu HardSigmoid ' +
  'HardSwish Hardmax Identity InstanceNormalization LRN LeakyRelu Log LogSoftmax LpNormalization ' +
  'MeanVarianceNormalization Mish Neg Not PRelu Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax ' +
  'Softplus Softsign Sqrt SwiGLU Swish Tan Tanh ThresholdedRelu Trilu GroupNormalization RMSNormalization ' +
  'ReverseSequence ScatterElements ScatterND TensorScatter RotaryEmbedding'

const binary = 'Add Sub Mul Div Pow Mod Max Min Sum Mean And Or Xor BitShift BitwiseAnd BitwiseOr BitwiseXor'

const comparisons = 'Equal Greater GreaterOrEqual Less LessOrEqual'

const table = (names: string, rule: Rule): Record<string, Rule> =>
  Object.fromEntries(names.split(' ').map(name => [name, rule]))

/** Rules by operator. */
export const elementwiseRules: Readonly<Record<string, Rule>> = {
  ...table(unary, sameAsFirst),
  ...table(binary, broadcasting),
  ...table(comparisons, compare),
  // The exponent may have another type than the base.
  Pow: call => [tensorOrUnknown(call.dtype(0), call.broadcast())],
  IsInf: test,
  IsNaN: test,
  Where: call => [tensorOrUnknown(call.commonDtype([1, 2]), call.broadcast())],
  Cast: call => [tensorOrUnknown(call.typeAttribute('to'), call.shape(0))],
  BitCast: call => [tensorOrUnknown(call.typeAttribute('to'), call.shape(0))],
  CastLike: call => [tensorOrUnknown(call.dtype(1), call.shape(0))],
  Dropout: call => [call.type(0), tensorOrUnknown('bool', call.shape(0))],
  Bernoulli: call => [tensorOrUnknown(call.typeAttribute('dtype', call.dtype(0)), call.shape(0))],
  RandomNormalLike: call => [tensorOrUnknown(call.typeAttribute('dtype', call.dtype(0)), call.shape(0))],
  RandomUniformLike: call => [tensorOrUnknown(call.typeAttribute('dtype', call.dtype(0)), call.shape(0))],
  EyeLike: call => [tensorOrUnknown(call.typeAttribute('dtype', call.dtype(0)), call.shape(0))],
  RandomNormal: call => [tensorOrUnknown(call.typeAttribute('dtype', 'f32'), call.ints('shape'))],
  RandomUniform: call => [tensorOrUnknown(call.typeAttribute('dtype', 'f32'), call.ints('shape'))],
  QuantizeLinear: call => [
    tensorOrUnknown(quantizedType(call.typeAttribute('output_dtype'), call.dtype(2)), call.shape(0)),
  ],
  DequantizeLinear: call => [
    tensorOrUnknown(call.typeAttribute('output_dtype', call.dtype(1)), call.shape(0)),
  ],
  DynamicQuantizeLinear: call => [
    tensorOrUnknown('u8', call.shape(0)),
    tensorOrUnknown('f32', []),
    tensorOrUnknown('u8', []),
  ],
  BatchNormalization: call => [
    call.type(0),
    tensorOrUnknown(call.dtype(3), call.shape(3)),
    tensorOrUnknown(call.dtype(4), call.shape(4)),
  ],
}

function quantizedType(attribute: ElementType | undefined, zeroPoint: ElementType | undefined): ElementType {
  return attribute ?? zeroPoint ?? 'u8'
}
