// opsets.ts: the first version of the ONNX standard that has each canonical operator in its canonical form.
import type { ElementType } from '../core/dtype.js'
import { allNodes } from './edit.js'
import { canonicalOpset, type Graph, type Node, type ValueType } from './graph.js'
import type { Fact } from './shape-inference.js'

/** Versions that brought element types, or attributes. */
type Versions = Readonly<Record<string, number>>

interface Entry {
  /** First version with the form that the canonical one has. */
  readonly since: number
  /** First versions that take these element types. */
  readonly types: Versions
  /** First versions with these attributes. */
  readonly attributes: Versions
}

const f8 = (version: number): Versions => ({
  f8_e4m3: version,
  f8_e4m3fnuz: version,
  f8_e5m2: version,
  f8_e5m2fnuz: version,
})
const integers = (version: number): Versions => ({ i8: version, i16: version, u8: version, u16: version })
const small: Versions = { i4: 21, u4: 21, f4: 23, f8_e8m0: 24, i2: 25, u2: 25 }
const any19: Versions = { bf16: 13, ...f8(19), ...small }
const any21: Versions = { bf16: 13, ...f8(21), ...small }
const bf13: Versions = { bf16: 13 }
const bf22: Versions = { bf16: 22 }
const wide13: Versions = { bf16: 13, i32: 12, i64: 12, u32: 12, u64: 12, ...integers(12) }

/** Operators that share a row: names, first version, types, attributes. */
const rows: readonly (readonly [names: string, since: number, types?: Versions, attributes?: Versions])[] = [
  ['Not And Or Xor MaxRoiPool RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial', 7],
  ['Abs Ceil Exp Floor Log Neg Reciprocal Sqrt Sigmoid Tanh MatMul LRN Transpose', 7, bf13],
  ['Sin Cos Tan Asin Acos Atan Elu Selu HardSigmoid Softplus Softsign InstanceNormalization', 7, bf22],
  ['GlobalAveragePool GlobalMaxPool GlobalLpPool LpNormalization', 7, bf22],
  ['Add Sub Mul Div', 7, { bf16: 13, ...integers(14) }],
  ['Relu', 7, { bf16: 13, i32: 14, i64: 14, i8: 14, i16: 14 }],
  ['LeakyRelu PRelu', 7, { bf16: 16, i32: 9, i64: 9, u32: 9, u64: 9 }],
  ['Pow', 7, { ...wide13, bf16: 15 }],
  ['Greater Less', 7, { bf16: 13, i32: 9, i64: 9, u32: 9, u64: 9, ...integers(9) }],
  ['Equal', 11, { bf16: 13, string: 19 }],
  ['Max Min', 8, wide13],
  ['Sum Mean', 8, bf13],
  ['Gemm', 7, { bf16: 13, i32: 9, i64: 9, u32: 9, u64: 9 }],
  ['Cast', 7, { ...any19, string: 9 }, { saturate: 19, round_mode: 24 }],
  ['Reshape', 7, any19, { allowzero: 14 }],
  ['Shape', 7, any19, { start: 15, end: 15 }],
  ['Identity Size', 7, any19],
  ['Concat Gather', 11, bf13],
  ['Tile', 7, bf13],
  ['Flatten', 11, any21],
  ['DepthToSpace SpaceToDepth', 11, bf13],
  ['RNN GRU LSTM', 7, bf22, { layout: 14 }],
  ['Expand', 8, bf13],
  ['MaxPool', 8, { ...bf22, i8: 12, u8: 12 }, { dilations: 10, ceil_mode: 10 }],
  ['AveragePool', 7, bf22, { ceil_mode: 10, dilations: 19 }],
  ['LpPool', 11, bf22, { ceil_mode: 18, dilations: 18 }],
  ['BatchNormalization', 9, { bf16: 14 }, { training_mode: 14 }],
  ['Erf Sign NonZero MeanVarianceNormalization', 9, bf13],
  ['IsNaN', 9, { bf16: 13, ...f8(20) }],
  ['Sinh Cosh Asinh Acosh Atanh EyeLike', 9, bf22],
  ['Where', 9, { bf16: 16 }],
  ['ConstantOfShape', 9, { bf16: 20, ...f8(20), ...small }],
  ['Shrink Compress MaxUnpool TfIdfVectorizer', 9],
  ['Slice', 10, bf13],
  ['IsInf', 10, { bf16: 20, f16: 20, ...f8(20) }],
  ['Mod', 10, bf13],
  [
    'TopK',
    10,
    { bf16: 24, i32: 11, i64: 11, u32: 11, u64: 11, ...integers(11) },
    { largest: 11, sorted: 11 },
  ],
  ['ThresholdedRelu', 10, bf22],
  ['ReverseSequence NonMaxSuppression StringNormalizer MatMulInteger ConvInteger QLinearConv', 10],
  ['QLinearMatMul', 10, { f16: 21, bf16: 21, ...f8(21) }],
  [
    'QuantizeLinear',
    10,
    { f16: 19, bf16: 19, ...f8(19), i16: 21, u16: 21, ...small },
    { axis: 13, saturate: 19, block_size: 21, output_dtype: 21, precision: 23 },
  ],
  [
    'DequantizeLinear',
    10,
    { f16: 19, bf16: 19, ...f8(19), i16: 21, u16: 21, ...small },
    { axis: 13, block_size: 21, output_dtype: 23 },
  ],
  ['Conv ConvTranspose Round Det', 11, bf22],
  ['ArgMax ArgMin', 11, bf13, { select_last_index: 12 }],
  ['Clip', 11, wide13],
  ['Pad', 11, any21],
  ['CumSum', 11, { bf16: 14 }],
  ['GatherElements', 11, bf13],
  ['GatherND', 11, bf13, { batch_dims: 12 }],
  ['ScatterElements ScatterND', 11, bf13, { reduction: 18 }],
  ['OneHot BitShift Unique DynamicQuantizeLinear', 11],
  ['Range', 11, { bf16: 27, f16: 27 }],
  ['If Loop Scan', 11, any19],
  [
    'SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength ConcatFromSequence',
    11,
  ],
  ['SplitToSequence', 11, { bf16: 24 }],
  ['Celu', 12, { f16: 28, bf16: 28, f64: 28 }],
  ['Einsum', 12],
  ['Dropout', 12, { bf16: 13, ...f8(22) }],
  ['GreaterOrEqual LessOrEqual', 12, { bf16: 16 }],
  ['ReduceMax ReduceMin', 11, { bf16: 13, i8: 12, u8: 12, bool: 20 }, { noop_with_empty_axes: 18 }],
  [
    'ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSumSquare',
    11,
    bf13,
    { noop_with_empty_axes: 18 },
  ],
  ['ReduceSum', 11, bf13, { noop_with_empty_axes: 13 }],
  ['Softmax LogSoftmax Hardmax', 13],
  ['SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss', 13],
  ['Resize', 13, {}, { antialias: 18, axes: 18, keep_aspect_ratio_policy: 18 }],
  ['Squeeze Unsqueeze', 13, any21],
  ['Split', 13, {}, { num_outputs: 18 }],
  ['Trilu', 14],
  ['HardSwish', 14, bf22],
  ['CastLike', 15, any19, { round_mode: 24 }],
  ['Bernoulli', 15, bf22],
  ['Optional', 15],
  ['RoiAlign', 16, bf22],
  ['LayerNormalization SequenceMap STFT BlackmanWindow HammingWindow HannWindow MelWeightMatrix', 17],
  [
    'BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im OptionalHasElement OptionalGetElement',
    18,
  ],
  ['Mish', 18, bf22],
  ['DeformConv', 19, bf22],
  ['GridSample', 20, bf22],
  ['AffineGrid DFT Gelu ImageDecoder RegexFullMatch StringConcat StringSplit', 20],
  ['GroupNormalization', 21],
  ['Attention RMSNormalization RotaryEmbedding', 23],
  ['Swish TensorScatter', 24],
  ['BitCast CumProd', 26],
  ['CausalConvWithState LinearAttention', 27],
  ['SwiGLU', 28],
]

const table = new Map<string, Entry>(
  rows.flatMap(([names, since, types = {}, attributes = {}]) =>
    names.split(' ').map((name): [string, Entry] => [name, { since, types, attributes }]),
  ),
)

/** What depends on more than types and attributes. */
const conditions: Readonly<Record<string, (node: Node) => number>> = {
  Gemm: node => ((node.inputs[2] ?? '') === '' ? 11 : 7),
  Pad: node => ((node.inputs[3] ?? '') === '' ? (modeOf(node, 'mode') === 'wrap' ? 19 : 11) : 18),
  Resize: node => (modeOf(node, 'coordinate_transformation_mode') === 'half_pixel_symmetric' ? 19 : 13),
  Attention: node => ((node.inputs[6] ?? '') === '' ? 23 : 24),
  ReduceSum: node => (node.inputs.length > 1 ? 13 : 11),
}

function modeOf({ attributes }: Node, name: string): string {
  const attribute = attributes[name]
  return attribute?.type === 'string' ? attribute.value : ''
}

function nodeOpset(node: Node, types: readonly (ElementType | undefined)[]): number {
  const entry = table.get(node.op)
  if (!entry) return canonicalOpset
  const versions = [entry.since, conditions[node.op]?.(node) ?? 0]
  if (node.op.startsWith('Reduce') && node.op !== 'ReduceSum' && node.inputs.length > 1) versions.push(18)
  for (const name of Object.keys(node.attributes))
    versions.push(Object.hasOwn(entry.attributes, name) ? entry.attributes[name]! : 0)
  // An unknown type could be any of them.
  for (const type of types) versions.push(...(type ? [entry.types[type] ?? 0] : Object.values(entry.types)))
  return versions.reduce((most, version) => Math.max(most, version), 0)
}

/**
 * The lowest version of the ONNX standard that has all operators of a canonical graph, with the types they are used
 * on. Never below 7, the oldest that runtimes still promise to run.
 * @param facts - what shape inference found
 */
export function lowestOpset(graph: Graph, facts: ReadonlyMap<string, Fact>): number {
  let opset = 7
  for (const node of allNodes(graph)) {
    if (node.domain !== '') continue
    const names = [...node.inputs, ...node.outputs].filter(name => name !== '')
    opset = Math.max(
      opset,
      nodeOpset(
        node,
        names.map(name => elementTypeOf(facts.get(name)?.type)),
      ),
    )
  }
  return opset
}

function elementTypeOf(type: ValueType | undefined): ElementType | undefined {
  if (type?.kind === 'sequence' || type?.kind === 'optional') return elementTypeOf(type.element)
  return type?.kind === 'tensor' || type?.kind === 'sparse' ? type.dtype : undefined
}
