// weight-pattern.ts: the nodes that make a weight of initializers: DequantizeLinear, Cast, Reshape and Transpose.
import { type DType, type DTypeArray, isDType, isHalf } from '../core/dtype.js'
import { atOnce, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { decode, encode } from '../precision/casts.js'
import { dequantizeFP8, quantizeFP8 } from '../precision/fp8.js'
import { dequantizeNVFP4, quantizeNVFP4 } from '../precision/nvfp4.js'
import { intOf, intsOf } from './attributes.js'
import { Constant, type NumericType } from './constant.js'
import { producersOfPaced } from './edit.js'
import { elementTypeOf } from './element-types.js'
import type { Graph, Node } from './graph.js'
import { matrixConstants } from './rewrites/quantize-weights.js'
import { decodeScaled, encodeScaled, fitsCodes, type ScaledCodes } from './scaled-codes.js'

/** A weight that nodes make of initializers. */
export interface WeightPattern {
  /**
   * `nvfp4` and `fp8` as `quantizeWeights` writes them, `scaled` whatever else `DequantizeLinear` makes of codes, `cast` an
   * initializer of floats that is only cast.
   */
  readonly format: 'nvfp4' | 'fp8' | 'scaled' | 'cast'
  /** Initializers: codes and scales, then for NVFP4 the tensor scale, for `scaled` the zero points if there are any. */
  readonly constants: readonly string[]
  /** Shape of the codes; NVFP4 has a scale for 16 columns. */
  readonly shape: readonly number[]
  /** Shape of the value, or of its transpose where it is transposed; that of the codes unless they were reshaped. */
  readonly sizes: readonly number[]
  /** Whether the value is the transpose of a matrix of `sizes`. */
  readonly transposed: boolean
  /** Element types that the numbers are rounded to one after the other: the last one is that of the value. */
  readonly types: readonly ('f32' | 'f16' | 'bf16')[]
  /** The axis of several scales of `scaled`. */
  readonly axis: number
  /** Codes that share a scale of `scaled` along the axis; 0: all. */
  readonly block: number
}

/** Values of a graph that nodes make of initializers as weights, by name. */
export function weightPatterns(graph: Graph): Map<string, WeightPattern> {
  return atOnce(weightPatternsPaced(graph))
}

/** {@link weightPatterns} with pauses. */
export function* weightPatternsPaced(graph: Graph): Paced<Map<string, WeightPattern>> {
  const producers = yield* producersOfPaced(graph)
  const found = new Map<string, WeightPattern>()
  for (const node of graph.nodes) {
    yield
    const weight = madeBy(graph, producers, node, found)
    if (weight) found.set(node.outputs[0]!, weight)
  }
  return found
}

function madeBy(
  graph: Graph,
  producers: ReadonlyMap<string, Node>,
  node: Node,
  found: ReadonlyMap<string, WeightPattern>,
): WeightPattern | undefined {
  if (node.domain !== '') return undefined
  const source = found.get(node.inputs[0] ?? '')
  switch (node.op) {
    case 'DequantizeLinear':
      return dequantized(graph, producers, node)
    case 'Cast':
      return cast(graph, node, source)
    case 'Identity':
      return source
    case 'Transpose': {
      const isSwap = (intsOf(node, 'perm') ?? [1, 0])[0] === 1
      return source?.sizes.length === 2 ? { ...source, transposed: source.transposed !== isSwap } : undefined
    }
    case 'Reshape': {
      const sizes = source && !source.transposed ? reshaped(graph, node, source.sizes) : undefined
      return source && sizes && { ...source, sizes }
    }
    default:
      return undefined
  }
}

/** What a Reshape by a constant makes of sizes; undefined for what fits only another number of elements. */
function reshaped(graph: Graph, node: Node, from: readonly number[]): readonly number[] | undefined {
  const constant = graph.initializers.get(node.inputs[1] ?? '')
  if (constant?.dtype !== 'i64') return undefined
  const copies = intOf(node, 'allowzero') === 0
  const wanted = Array.from(constant.data as BigInt64Array, (size, i) =>
    size === 0n && copies ? (from[i] ?? 0) : Number(size),
  )
  const rest = numel(from) / numel(wanted.filter(size => size !== -1))
  const sizes = wanted.map(size => (size === -1 ? rest : size))
  return numel(sizes) === numel(from) && sizes.every(Number.isInteger) ? sizes : undefined
}

/** Roundings of a weight that are followed; exporters write one or two. */
const maxRoundings = 8

const isFloatType = (dtype: string): boolean => isHalf(dtype) || dtype === 'f32'

/** A weight of floats as another type of floats. */
function cast(graph: Graph, node: Node, source: WeightPattern | undefined): WeightPattern | undefined {
  const [name = ''] = node.inputs
  const to = elementTypeOf(intOf(node, 'to'), 'Cast: to') as 'f32'
  const constant = graph.initializers.get(name)
  if (!isFloatType(to)) return undefined
  if (source && source.types.length >= maxRoundings) return undefined
  if (source) return { ...source, types: [...source.types, to] }
  if (!constant || !isDType(constant.dtype)) return undefined
  const plain = { transposed: false, axis: 0, block: 0 }
  const { shape } = constant
  return { format: 'cast', constants: [name], shape, sizes: shape, types: [to], ...plain }
}

function dequantized(
  graph: Graph,
  producers: ReadonlyMap<string, Node>,
  node: Node,
): WeightPattern | undefined {
  const [name = '', scaleName = '', zeroName = ''] = node.inputs
  const [codes, scale, zero] = [name, scaleName, zeroName].map(input => graph.initializers.get(input))
  if (!codes) return undefined
  const { shape } = codes
  if (!scale) return nvfp4Weight(graph, codes, producers.get(scaleName), node)
  const axis = (intOf(node, 'axis') + shape.length) % Math.max(shape.length, 1)
  const block = intOf(node, 'block_size')
  const number = intOf(node, 'output_dtype')
  const type = (number === 0 ? scale.dtype : elementTypeOf(number, 'output_dtype')) as 'f32'
  const made = { shape, sizes: shape, transposed: false, types: [type], axis, block }
  const isPerRow = shape.length === 2 && axis === 0 && scale.shape.join() === `${shape[0]}` && block === 0
  if (codes.dtype === 'f8_e4m3' && isPerRow && zeroName === '' && scale.dtype === 'f32' && type === 'f32') {
    return { format: 'fp8', constants: [name, scaleName], ...made }
  }
  const isKnown =
    (zeroName === '' || zero) && isFloatType(type) && fitsCodes({ codes, scale, zero, axis, block })
  const constants = [name, scaleName, ...(zero ? [zeroName] : [])]
  return isKnown ? { format: 'scaled', constants, ...made } : undefined
}

/** Codes of f4 with scales that are dequantized themselves. */
function nvfp4Weight(
  graph: Graph,
  { dtype, shape }: Constant,
  blocks: Node | undefined,
  node: Node,
): WeightPattern | undefined {
  const isBlocked = intOf(node, 'axis') === 1 && intOf(node, 'block_size') === 16
  if (dtype !== 'f4' || shape.length !== 2 || !isBlocked || node.inputs[2]) return undefined
  if (blocks?.op !== 'DequantizeLinear' || blocks.domain !== '' || blocks.inputs[2]) return undefined
  const [blockName, globalName] = blocks.inputs as [string, string]
  const [block, global] = [graph.initializers.get(blockName), graph.initializers.get(globalName)]
  if (block?.dtype !== 'f8_e4m3' || global?.dtype !== 'f32' || global.count !== 1) return undefined
  const constants = [node.inputs[0]!, blockName, globalName]
  const sizes = { shape, sizes: shape, transposed: false }
  return { format: 'nvfp4', constants, ...sizes, types: ['f32'], axis: 1, block: 16 }
}

/** The numbers of the codes, in their order, as f32. */
export function dequantize(graph: Graph, weight: WeightPattern): Float32Array {
  return weight.types.reduce(
    (values, type) => (type === 'f32' ? values : decode(encode(values, type), type)),
    numbersOf(graph, weight),
  )
}

function numbersOf(graph: Graph, weight: WeightPattern): Float32Array {
  const [codes, scale, global] = constantsOf(graph, weight)
  const [rows = 0, cols = 0] = weight.shape
  switch (weight.format) {
    case 'fp8':
      return dequantizeFP8({
        format: 'f8_e4m3',
        rows,
        cols,
        data: codes!.bytes,
        rowScale: scale!.data as Float32Array,
      })
    case 'nvfp4': {
      const tensorScale = Number(global!.data[0])
      const sizes = { format: 'nvfp4', rows, cols } as const
      return dequantizeNVFP4({ ...sizes, data: codes!.bytes, blockScale: scale!.bytes, tensorScale })
    }
    case 'scaled':
      return decodeScaled(scaledCodes(graph, weight))
    default:
      return decode(codes!.data as DTypeArray, codes!.dtype as DType)
  }
}

const constantsOf = (graph: Graph, { constants }: WeightPattern): Constant[] =>
  constants.map(name => graph.initializers.get(name)!)

function scaledCodes(graph: Graph, weight: WeightPattern): ScaledCodes {
  const [codes, scale, zero] = constantsOf(graph, weight)
  return { codes: codes!, scale: scale!, zero, axis: weight.axis, block: weight.block }
}

/** Initializers that stand for new numbers in the order of the codes, by the names of the old ones. */
export function requantize(graph: Graph, weight: WeightPattern, values: Float32Array): Map<string, Constant> {
  const { format, constants, shape } = weight
  if (format === 'scaled') {
    const { codes, scale, zero } = encodeScaled(scaledCodes(graph, weight), values)
    const made = [codes, scale, ...(zero ? [zero] : [])]
    return new Map(made.map((constant, i) => [constants[i]!, constant]))
  }
  if (format === 'cast') {
    const dtype = graph.initializers.get(constants[0]!)!.dtype as DType
    return new Map([[constants[0]!, Constant.from(dtype as NumericType, shape, encode(values, dtype))]])
  }
  const matrix = format === 'fp8' ? quantizeFP8(values, shape) : quantizeNVFP4(values, shape)
  return new Map(matrixConstants(constants, matrix))
}
