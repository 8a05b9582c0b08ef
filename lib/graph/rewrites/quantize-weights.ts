// quantize-weights.ts: stores the weights of matrix products in NVFP4 or FP8, with standard DequantizeLinear nodes.
import { expectKnownOptions, expectOneOf } from '../../core/checks.js'
import { relativeError } from '../../core/difference.js'
import { SparkError } from '../../core/errors.js'
import { type FP8Weight, quantizeFP8 } from '../../precision/fp8.js'
import { type NVFP4Weight, quantizeNVFP4 } from '../../precision/nvfp4.js'
import { decodeWeight } from '../../weights/encode.js'
import { int, intOf, ints } from '../attributes.js'
import { Constant } from '../constant.js'
import { consumersOf, freshNames } from '../edit.js'
import { type Graph, makeNode, type Node } from '../graph.js'

/** Formats of quantized weights. */
export type QuantizedFormat = 'nvfp4' | 'fp8'

/** Options of {@link quantizeWeights}. */
export interface QuantizeWeightsOptions {
  /** Default: nvfp4. */
  readonly format?: QuantizedFormat
  /** Names of the weights. Default: all that {@link quantizableWeights} names. */
  readonly weights?: readonly string[]
}

/**
 * Weights that can be quantized: initializers of f32, [in, out] or [out, in], that only matrix products read; for NVFP4
 * their in features must be a multiple of 16.
 */
export function quantizableWeights(graph: Graph, format: QuantizedFormat = 'nvfp4'): string[] {
  const consumers = consumersOf(graph)
  return [...graph.initializers].flatMap(([name, { dtype, shape, count }]) => {
    const layouts = new Set((consumers.get(name) ?? []).map(node => isTransposed(node, name)))
    const [transposed] = layouts
    if (dtype !== 'f32' || shape.length !== 2 || count === 0 || layouts.size !== 1) return []
    const fits = format === 'fp8' || shape[transposed ? 0 : 1]! % 16 === 0
    return transposed === undefined || !fits ? [] : [name]
  })
}

/** Whether a product reads the weight as [in, out]; undefined for a node that is no product with the weight on the right. */
function isTransposed(node: Node, weight: string): boolean | undefined {
  const { op, domain, inputs } = node
  if (domain !== '' || inputs[1] !== weight || inputs[0] === weight) return undefined
  if (op === 'MatMul') return true
  return op === 'Gemm' ? intOf(node, 'transB') === 0 : undefined
}

/**
 * Stores weights in NVFP4 by ModelOpt's recipe, or in FP8 with a scale for each out feature. An NVFP4 weight becomes
 * codes of f4 [out, in], scales of f8_e4m3 for blocks of 16 in features, and one f32; two `DequantizeLinear` nodes, the
 * second of them blocked, make the weight of them. An FP8 weight has codes of f8_e4m3 [out, in] and scales [out]. What
 * cannot be quantized stays as it is.
 *
 * @throws SparkError ERR_ARGUMENT for a weight of the options that cannot be stored so, ERR_NOT_FINITE
 */
export function quantizeWeights(graph: Graph, options: QuantizeWeightsOptions = {}): Graph {
  return quantize(graph, options, () => undefined)
}

/**
 * As {@link quantizeWeights}, with what it costs: ‖stored − weight‖ / ‖weight‖ by the name of each weight.
 * @throws SparkError as {@link quantizeWeights}
 */
export function quantizeWithLosses(
  graph: Graph,
  options: QuantizeWeightsOptions = {},
): { graph: Graph; losses: ReadonlyMap<string, number> } {
  const losses = new Map<string, number>()
  const quantized = quantize(graph, options, (name, exact, stored) => {
    losses.set(name, relativeError(decodeWeight(stored), exact))
  })
  return { graph: quantized, losses }
}

function quantize(
  graph: Graph,
  options: QuantizeWeightsOptions,
  onWeight: (name: string, exact: Float32Array, stored: NVFP4Weight | FP8Weight) => void,
): Graph {
  expectKnownOptions('options', options, ['format', 'weights'])
  const { format = 'nvfp4' } = options
  expectOneOf('options.format', format, ['nvfp4', 'fp8'])
  const possible = new Set(quantizableWeights(graph, format))
  const weights = options.weights ?? [...possible]
  const wrong = weights.find(name => !possible.has(name))
  if (wrong !== undefined) {
    const rule =
      'f32 initializers that only matrix products read, for nvfp4 with a multiple of 16 in features'
    throw new SparkError('ERR_ARGUMENT', `'${wrong}' cannot be stored in ${format}: that takes ${rule}`)
  }
  const [fresh, consumers] = [freshNames(graph), consumersOf(graph)]
  const initializers = new Map(graph.initializers)
  const added: Node[] = []
  for (const name of weights) {
    const transposed = isTransposed(consumers.get(name)![0]!, name)!
    const rows = transposed ? fresh(`${name}_rows`) : name
    const made = dequantizeNodes(format, name, rows, fresh)
    const [values, shape] = rowsOf(graph.initializers.get(name)!, transposed)
    const matrix = format === 'fp8' ? quantizeFP8(values, shape) : quantizeNVFP4(values, shape)
    onWeight(name, values, matrix)
    initializers.delete(name)
    for (const [key, value] of matrixConstants(made.constants, matrix)) initializers.set(key, value)
    for (const node of made.nodes) added.push(node)
    if (transposed) added.push(makeNode('Transpose', [rows], [name], { attributes: { perm: ints([1, 0]) } }))
  }
  return { ...graph, initializers, nodes: [...added, ...graph.nodes] }
}

/** The nodes that make the value `rows`, and the names of the initializers they read. */
function dequantizeNodes(
  format: QuantizedFormat,
  name: string,
  rows: string,
  fresh: (base: string) => string,
): { constants: readonly string[]; nodes: readonly Node[] } {
  const [codes, scale] = [fresh(`${name}_${format === 'fp8' ? 'f8' : 'f4'}`), fresh(`${name}_scale`)]
  if (format === 'fp8') {
    const attributes = { axis: int(0) }
    return {
      constants: [codes, scale],
      nodes: [makeNode('DequantizeLinear', [codes, scale], [rows], { attributes })],
    }
  }
  const [global, blocks] = [fresh(`${name}_scale_2`), fresh(`${name}_blocks`)]
  const attributes = { axis: int(1), block_size: int(16) }
  return {
    constants: [codes, scale, global],
    nodes: [
      makeNode('DequantizeLinear', [scale, global], [blocks]),
      makeNode('DequantizeLinear', [codes, blocks], [rows], { attributes }),
    ],
  }
}

/** The initializers of a weight, by the given names: codes and scales, and for NVFP4 the tensor scale. */
export function matrixConstants(
  names: readonly string[],
  weight: NVFP4Weight | FP8Weight,
): [name: string, constant: Constant][] {
  const { rows, cols, data } = weight
  const constants =
    weight.format === 'f8_e4m3'
      ? [Constant.from('f8_e4m3', [rows, cols], data), Constant.from('f32', [rows], weight.rowScale)]
      : [
          Constant.from('f4', [rows, cols], data),
          Constant.from('f8_e4m3', [rows, cols / 16], weight.blockScale),
          Constant.f32(weight.tensorScale),
        ]
  return constants.map((constant, i) => [names[i]!, constant])
}

/** The weight as [out, in]. */
function rowsOf({ shape, data }: Constant, transposed: boolean): [Float32Array, readonly [number, number]] {
  const [first, second] = shape as [number, number]
  const values = data as Float32Array
  if (!transposed) return [values, [first, second]]
  const rows = new Float32Array(values.length)
  for (let i = 0; i < first; i++) {
    for (let j = 0; j < second; j++) rows[j * first + i] = values[i * second + j]!
  }
  return [rows, [second, first]]
}
