// attribute-defaults.ts: the values of attributes that a node leaves out, by domain and operator.
import { canonicalOpset, type Node, sparkDomain } from './graph.js'

/** Values by attribute. */
type Values = Readonly<Record<string, number | string>>

/** Values by operator and attribute. */
type Operators = Readonly<Record<string, Values>>

/** Hyperparameters of AdamW, with the defaults of PyTorch's `torch.optim.AdamW`. */
const adamw = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 } as const

const conv = { auto_pad: 'NOTSET', group: 1 } as const
const pool = { auto_pad: 'NOTSET', ceil_mode: 0 } as const
const resize = {
  antialias: 0,
  coordinate_transformation_mode: 'half_pixel',
  cubic_coeff_a: -0.75,
  exclude_outside: 0,
  extrapolation_value: 0,
  keep_aspect_ratio_policy: 'stretch',
  mode: 'nearest',
  nearest_mode: 'round_prefer_floor',
} as const
const search = { axis: 0, keepdims: 1, select_last_index: 0 } as const
const reduction = { keepdims: 1, noop_with_empty_axes: 0 } as const
const rowNorm = { axis: -1, epsilon: 1e-5, stash_type: 1 } as const
const scan = { exclusive: 0, reverse: 0 } as const
const window = { output_datatype: 1, periodic: 1 } as const

/** The numbers and strings that ONNX names as defaults at the canonical opset, for the operators that have rules here. */
export const standardDefaults: Operators = {
  AffineGrid: { align_corners: 0 },
  ArgMax: search,
  ArgMin: search,
  Attention: {
    is_causal: 0,
    left_window_size: -1,
    qk_matmul_output_mode: 0,
    right_window_size: -1,
    softcap: 0,
  },
  AveragePool: { ...pool, count_include_pad: 0 },
  BatchNormalization: { epsilon: 1e-5, momentum: 0.9, training_mode: 0 },
  BlackmanWindow: window,
  Cast: { round_mode: 'up', saturate: 1 },
  CastLike: { round_mode: 'up', saturate: 1 },
  CausalConvWithState: { activation: 'none' },
  Celu: { alpha: 1 },
  ConcatFromSequence: { new_axis: 0 },
  Conv: conv,
  ConvInteger: conv,
  ConvTranspose: conv,
  CumProd: scan,
  CumSum: scan,
  DFT: { inverse: 0, onesided: 0 },
  DeformConv: { group: 1, offset_group: 1 },
  DepthToSpace: { mode: 'DCR' },
  DequantizeLinear: { axis: 1, block_size: 0, output_dtype: 0 },
  Elu: { alpha: 1 },
  EyeLike: { k: 0 },
  Flatten: { axis: 1 },
  GRU: { direction: 'forward', layout: 0, linear_before_reset: 0 },
  Gather: { axis: 0 },
  GatherElements: { axis: 0 },
  GatherND: { batch_dims: 0 },
  Gelu: { approximate: 'none' },
  Gemm: { alpha: 1, beta: 1, transA: 0, transB: 0 },
  GlobalLpPool: { p: 2 },
  GridSample: { align_corners: 0, mode: 'linear', padding_mode: 'zeros' },
  GroupNormalization: { epsilon: 1e-5, stash_type: 1 },
  HammingWindow: window,
  HannWindow: window,
  HardSigmoid: { alpha: 0.2, beta: 0.5 },
  Hardmax: { axis: -1 },
  ImageDecoder: { pixel_format: 'RGB' },
  InstanceNormalization: { epsilon: 1e-5 },
  IsInf: { detect_negative: 1, detect_positive: 1 },
  LRN: { alpha: 1e-4, beta: 0.75, bias: 1 },
  LSTM: { direction: 'forward', input_forget: 0, layout: 0 },
  LayerNormalization: rowNorm,
  LeakyRelu: { alpha: 0.01 },
  LinearAttention: { chunk_size: 64, scale: 0, update_rule: 'gated_delta' },
  LogSoftmax: { axis: -1 },
  LpNormalization: { axis: -1, p: 2 },
  LpPool: { ...pool, p: 2 },
  MaxPool: { ...pool, storage_order: 0 },
  MaxRoiPool: { spatial_scale: 1 },
  MelWeightMatrix: { output_datatype: 1 },
  Mod: { fmod: 0 },
  Multinomial: { dtype: 6, sample_size: 1 },
  NegativeLogLikelihoodLoss: { reduction: 'mean' },
  NonMaxSuppression: { center_point_box: 0 },
  OneHot: { axis: -1 },
  Pad: { mode: 'constant' },
  QLinearConv: conv,
  QuantizeLinear: { axis: 1, block_size: 0, output_dtype: 0, precision: 0, saturate: 1 },
  RMSNormalization: rowNorm,
  RNN: { direction: 'forward', layout: 0 },
  RandomNormal: { dtype: 1, mean: 0, scale: 1 },
  RandomNormalLike: { mean: 0, scale: 1 },
  RandomUniform: { dtype: 1, high: 1, low: 0 },
  RandomUniformLike: { high: 1, low: 0 },
  ReduceL1: reduction,
  ReduceL2: reduction,
  ReduceLogSum: reduction,
  ReduceLogSumExp: reduction,
  ReduceMax: reduction,
  ReduceMean: reduction,
  ReduceMin: reduction,
  ReduceProd: reduction,
  ReduceSum: reduction,
  ReduceSumSquare: reduction,
  Reshape: { allowzero: 0 },
  Resize: resize,
  ReverseSequence: { batch_axis: 1, time_axis: 0 },
  RoiAlign: {
    coordinate_transformation_mode: 'half_pixel',
    mode: 'avg',
    output_height: 1,
    output_width: 1,
    sampling_ratio: 0,
    spatial_scale: 1,
  },
  RotaryEmbedding: { interleaved: 0, rotary_embedding_dim: 0 },
  STFT: { onesided: 1 },
  ScatterElements: { axis: 0, reduction: 'none' },
  ScatterND: { reduction: 'none' },
  Selu: { alpha: 1.6732632423543772, gamma: 1.0507009873554805 },
  Shape: { start: 0 },
  Shrink: { bias: 0, lambd: 0.5 },
  Softmax: { axis: -1 },
  SoftmaxCrossEntropyLoss: { reduction: 'mean' },
  Split: { axis: 0 },
  SplitToSequence: { axis: 0, keepdims: 1 },
  SwiGLU: { alpha: 1 },
  Swish: { alpha: 1 },
  TensorScatter: { axis: -2, mode: 'linear' },
  ThresholdedRelu: { alpha: 1 },
  TopK: { axis: -1, largest: 1, sorted: 1 },
  Trilu: { upper: 1 },
  Unique: { sorted: 1 },
  Upsample: { mode: 'nearest' },
}

/**
 * Values of attributes that ONNX requires, or leaves optional without a default, and of those that a rule for several
 * operators reads where one of them lacks the attribute.
 */
const fallbacks: Operators = {
  Attention: { kv_num_heads: 1, q_num_heads: 1 },
  AveragePool: { storage_order: 0 },
  BitShift: { direction: '' },
  Cast: { to: 1 },
  Concat: { axis: 0 },
  ConcatFromSequence: { axis: 0 },
  Conv: { activation: 'none', ceil_mode: 0, residual_first: 0 },
  ConvInteger: { ceil_mode: 0 },
  DeformConv: { auto_pad: 'NOTSET', ceil_mode: 0 },
  DepthToSpace: { blocksize: 1 },
  Einsum: { equation: '' },
  GRU: { clip: 0, hidden_size: 0, input_forget: 0 },
  GlobalAveragePool: { keepdims: 1 },
  GroupNormalization: { num_groups: 1 },
  LRN: { size: 1 },
  LSTM: { clip: 0, hidden_size: 0, linear_before_reset: 0 },
  LinearAttention: { kv_num_heads: 1, q_num_heads: 1 },
  MatMul: { alpha: 1, beta: 1, transA: 0, transB: 0 },
  MatMulInteger: { transA: 0 },
  MaxPool: { count_include_pad: 0 },
  QLinearConv: { ceil_mode: 0 },
  RNN: { clip: 0, hidden_size: 0, input_forget: 0, linear_before_reset: 0 },
  RotaryEmbedding: { num_heads: 1 },
  Scan: { num_scan_inputs: 0 },
  SequenceEmpty: { dtype: 1 },
  SimplifiedLayerNormalization: { axis: -1, epsilon: 1e-5 }, // from ONNX Runtime, in the standard domain
  SpaceToDepth: { blocksize: 1 },
}

const broadcast = { before: 7, broadcast: 0 } as const
const flattened = { before: 13, axis: 1 } as const

/** Defaults of opsets below `before`, where they differ from those of the canonical opset or the attribute is gone. */
export const earlierDefaults: Readonly<Record<string, Values & { readonly before: number }>> = {
  Add: broadcast,
  And: broadcast,
  BatchNormalization: { before: 14, spatial: 1 },
  Cast: { before: 6, to: '' },
  Concat: { before: 4, axis: 1 },
  DFT: { before: 20, axis: 1 },
  Div: broadcast,
  Dropout: { before: 12, ratio: 0.5 },
  Equal: broadcast,
  Greater: broadcast,
  GridSample: { before: 20, mode: 'bilinear' },
  Hardmax: flattened,
  Less: broadcast,
  LogSoftmax: flattened,
  MeanVarianceNormalization: { before: 9, across_channels: 0, normalize_variance: 1 },
  Mul: broadcast,
  Or: broadcast,
  Pad: { before: 11, value: 0 },
  Pow: broadcast,
  RoiAlign: { before: 16, coordinate_transformation_mode: 'output_half_pixel' },
  Selu: { before: 6, alpha: 1.6732, gamma: 1.0507 },
  Softmax: flattened,
  Sub: broadcast,
  Xor: broadcast,
}

/** Operators of ONNX training. */
const trainingDefaults: Operators = {
  Adagrad: { decay_factor: 0, epsilon: 1e-6, norm_coefficient: 0 },
  Adam: { alpha: 0.9, beta: 0.999, epsilon: 1e-6, norm_coefficient: 0, norm_coefficient_post: 0 },
  Momentum: { alpha: 0, beta: 0, mode: 'standard', norm_coefficient: 0 },
}

const matMul = { alpha: 1, transA: 0, transB: 0, transBatchA: 0, transBatchB: 0 } as const
const selfAttention = { mask_filter_value: -1e4, num_heads: 1, unidirectional: 0 } as const
const groupNorm = { activation: 0, channels_last: 1, epsilon: 1e-5, groups: 1 } as const
const mixture = {
  activation_alpha: 1,
  activation_beta: 0,
  activation_type: 'relu',
  k: 1,
  normalize_routing_weights: 0,
  swiglu_fusion: 0,
  use_sparse_mixer: 0,
} as const
const weightSizes = { N: 0, K: 0 } as const

/** Operators of ONNX Runtime (ContribOperators.md), with 0 or 1 where it requires a number. */
const contribDefaults: Operators = {
  Attention: selfAttention,
  EmbedLayerNormalization: { epsilon: 1e-12 },
  FusedConv: { activation: '' },
  FusedGemm: { activation: '' },
  FusedMatMul: matMul,
  GatherBlockQuantized: { bits: 4, block_size: 128, gather_axis: 0, quantize_axis: 1 },
  GroupNorm: groupNorm,
  GroupQueryAttention: {
    do_rotary: 0,
    kv_num_heads: 1,
    local_window_size: -1,
    num_heads: 1,
    rotary_interleaved: 0,
    smooth_softmax: 0,
  },
  MatMulBlockQuantizedFp4Weight: { block_size: 16 },
  MatMulBlockQuantizedFp8Weight: { block_size: 128 },
  MatMulBnb4: { ...weightSizes, block_size: 0, quant_type: 1, transB: 1 },
  MatMulNBits: { ...weightSizes, bits: 4, block_size: 32, weight_prepacked: 0 },
  MoE: { ...mixture, num_shared_experts: 0 },
  MultiHeadAttention: selfAttention,
  PagedAttention: {
    do_rotary: 0,
    kv_num_heads: 1,
    local_window_size: -1,
    num_heads: 1,
    qk_norm_epsilon: 1e-6,
    rotary_interleaved: 0,
    softcap: 0,
  },
  QAttention: selfAttention,
  QGemm: { transB: 0 },
  QLinearAveragePool: { channels_last: 0 },
  QLinearConcat: { axis: 0 },
  QLinearConv: { channels_last: 0 },
  QLinearGlobalAveragePool: { channels_last: 0 },
  QLinearLeakyRelu: { alpha: 0.01 },
  QLinearSoftmax: { axis: -1, opset: 13 },
  QMoE: { ...mixture, block_size: 0, expert_weight_bits: 4, quant_type: 'int', weights_prepacked: -1 },
  QuickGelu: { alpha: 1.702 },
  RotaryEmbedding: { interleaved: 0, num_heads: 0, rotary_embedding_dim: 0 },
  SimplifiedLayerNormalization: { axis: -1, epsilon: 1e-5 },
  SkipGroupNorm: groupNorm,
  SkipLayerNormalization: { epsilon: 1e-12 },
  SkipSimplifiedLayerNormalization: { epsilon: 1e-12 },
  TransposeMatMul: matMul,
}

const dora = { norm_gradient: 'detached', scale: 1 } as const

/** Our own operators. */
const sparkDefaults: Operators = {
  AdamW: adamw,
  AllReduce: {},
  AttentionGrad: { is_causal: 0, kv_num_heads: 1, q_num_heads: 1, softcap: 0 },
  AveragePoolGrad: { ...pool, count_include_pad: 0 },
  BatchNormalizationGrad: { epsilon: 1e-5 },
  ConcatGrad: { axis: 0 },
  ConvGrad: conv,
  ConvTransposeGrad: conv,
  DoRA: dora,
  DoRAGrad: dora,
  DoRAWeight: dora,
  DoRAWeightGrad: dora,
  DropoutMask: { ratio: 0, stream: 0 },
  EinsumGrad: { equation: '' },
  FusedConv: { ...conv, activation: 'none', ceil_mode: 0, residual_first: 0 },
  FusedLinear: { activation: 'none', transB: 0 },
  FusedMatMul: { transA: 0, transB: 0 },
  GatherGrad: { axis: 0 },
  GeluGrad: { approximate: 'none' },
  MaxPoolGrad: { ...pool, count_include_pad: 0, storage_order: 0 },
  NormalizationGrad: { axis: -1, epsilon: 1e-5, num_groups: 1, of: 'LayerNormalization' },
  PagedAttention: {
    kv_num_heads: 1,
    local_window_size: -1,
    norm_epsilon: 1e-6,
    num_heads: 1,
    rotary_interleaved: 0,
    softcap: 0,
  },
  PadGrad: { mode: 'constant' },
  QLinearGemm: { transB: 0 },
  QLinearMean: { axis: 2, keepdims: 1 },
  ReduceExtremeGrad: { noop_with_empty_axes: 0, of: 'max' },
  ReduceMeanGrad: { noop_with_empty_axes: 0 },
  ReduceSumGrad: { noop_with_empty_axes: 0 },
  ResizeGrad: resize,
  SoftmaxCrossEntropyLossGrad: { reduction: 'mean' },
}

/** Domains other than the standard one. */
const defaults: Readonly<Record<string, Operators>> = {
  'ai.onnx.preview.training': trainingDefaults,
  'com.microsoft': contribDefaults,
  [sparkDomain]: sparkDefaults,
}

/** The value in one table. */
function lookUp(operators: Operators | undefined, op: string, name: string): number | string | undefined {
  const values = operators && Object.hasOwn(operators, op) ? operators[op] : undefined
  return values && Object.hasOwn(values, name) ? values[name] : undefined
}

/** The value of attribute `name` for a node without it, at an opset of its domain; undefined if there is no such value. */
export function defaultOf(
  { domain, op }: Node,
  name: string,
  opset: number = canonicalOpset,
): number | string | undefined {
  if (domain === '') {
    const earlier = lookUp(earlierDefaults, op, 'before') ?? 0
    const value = opset < Number(earlier) ? lookUp(earlierDefaults, op, name) : undefined
    return value ?? lookUp(standardDefaults, op, name) ?? lookUp(fallbacks, op, name)
  }
  return lookUp(Object.hasOwn(defaults, domain) ? defaults[domain] : undefined, op, name)
}

/** Hyperparameters of AdamW as options. */
interface AdamWSettings {
  readonly beta1: number
  readonly beta2: number
  readonly epsilon: number
  readonly weightDecay: number
}

/** The hyperparameters that are given, and the defaults of the others. */
export function withAdamWDefaults(
  given: {
    readonly [Name in keyof AdamWSettings]?: number | undefined
  },
): AdamWSettings {
  const { beta1 = adamw.beta1, beta2 = adamw.beta2, epsilon = adamw.epsilon } = given
  return { beta1, beta2, epsilon, weightDecay: given.weightDecay ?? adamw.weight_decay }
}
