// quantized-weight.ts: weights that a graph makes of codes and scales, as `quantizeWeights` and other exporters write them.
import { dequantizeFP8, quantizeFP8 } from '../precision/fp8.js'
import { dequantizeNVFP4, quantizeNVFP4 } from '../precision/nvfp4.js'
import { intOf } from './attributes.js'
import type { Constant } from './constant.js'
import { producersOf } from './edit.js'
import type { Graph, Node } from './graph.js'
import { matrixConstants } from './rewrites/quantize-weights.js'

/** A weight of codes and scales. */
export interface QuantizedWeight {
  /** Its format. */
  readonly format: 'nvfp4' | 'fp8'
  /** Initializers: codes and scales, and for NVFP4 the tensor scale. */
  readonly constants: readonly string[]
  /** Rows of the codes. */
  readonly rows: number
  /** Columns of the codes: NVFP4 has a scale for 16 of them. */
  readonly cols: number
  /** Whether the value is the transpose of the codes. */
  readonly transposed: boolean
}

/** Values of a graph that are quantized weights, by name. */
export function quantizedWeights(graph: Graph): Map<string, QuantizedWeight> {
  const producers = producersOf(graph)
  const found = new Map<string, QuantizedWeight>()
  for (const node of graph.nodes) {
    const [output] = node.outputs
    const weight = dequantized(graph, producers, node)
    if (weight) found.set(output!, weight)
    const source = node.op === 'Transpose' && node.domain === '' ? found.get(node.inputs[0]!) : undefined
    if (source) found.set(output!, { ...source, transposed: !source.transposed })
  }
  return found
}

function dequantized(
  graph: Graph,
  producers: ReadonlyMap<string, Node>,
  node: Node,
): QuantizedWeight | undefined {
  if (node.op !== 'DequantizeLinear' || node.domain !== '' || node.inputs[2]) return undefined
  const [name, scaleName] = node.inputs as [string, string]
  const [codes, scale] = [graph.initializers.get(name), graph.initializers.get(scaleName)]
  const [rows = 0, cols = 0] = codes?.shape ?? []
  if (codes?.shape.length !== 2) return undefined
  const weight = { rows, cols, transposed: false }
  if (codes.dtype === 'f8_e4m3') {
    const isPerRow =
      scale?.dtype === 'f32' && scale.shape.join() === `${rows}` && intOf(node, 'axis', 1) === 0
    return isPerRow ? { format: 'fp8', constants: [name, scaleName], ...weight } : undefined
  }
  const blocks = producers.get(scaleName)
  const isBlocked = intOf(node, 'axis', 1) === 1 && intOf(node, 'block_size', 0) === 16
  if (codes.dtype !== 'f4' || !isBlocked || blocks?.op !== 'DequantizeLinear' || blocks.inputs[2])
    return undefined
  const [blockName, globalName] = blocks.inputs as [string, string]
  const [block, global] = [graph.initializers.get(blockName), graph.initializers.get(globalName)]
  if (block?.dtype !== 'f8_e4m3' || global?.dtype !== 'f32' || global.count !== 1) return undefined
  return { format: 'nvfp4', constants: [name, blockName, globalName], ...weight }
}

/** The numbers of the codes, [rows, cols]. */
export function dequantize(graph: Graph, { format, constants, rows, cols }: QuantizedWeight): Float32Array {
  const [codes, scale, global] = constants.map(name => graph.initializers.get(name)!)
  if (format === 'fp8') {
    return dequantizeFP8({ codes: codes!.bytes, rowScale: scale!.data as Float32Array, rows, cols })
  }
  const tensorScale = Number(global!.data[0])
  return dequantizeNVFP4({ packed: codes!.bytes, blockScale: scale!.bytes, tensorScale, rows, cols })
}

/** Codes and scales of new numbers [rows, cols], by the names of the old ones. */
export function requantize(
  { format, constants, rows, cols }: QuantizedWeight,
  values: Float32Array,
): Map<string, Constant> {
  const shape = [rows, cols]
  const matrix = format === 'fp8' ? quantizeFP8(values, shape) : quantizeNVFP4(values, shape)
  return new Map(matrixConstants(constants, matrix))
}
