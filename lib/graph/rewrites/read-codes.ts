// read-codes.ts: products that read the codes of quantized weights instead of the floats that they stand for.
import { atOnce, type Paced } from '../../core/paced.js'
import { weightFormats } from '../../weights/formats.js'
import type { Weight } from '../../weights/weight.js'
import { consumersOfPaced } from '../edit.js'
import type { Graph } from '../graph.js'
import { weightConstant } from '../weight-constant.js'
import { type WeightPattern, weightPatternsPaced } from '../weight-pattern.js'
import { removeDeadPaced } from './remove-dead.js'
import { layoutOf } from './round-weights.js'

/**
 * The graph whose products read the codes of weights that it makes of codes and scales, instead of the f32 elements that
 * they stand for, with the same results.
 */
export function readCodes(graph: Graph): Graph {
  return atOnce(readCodesPaced(graph))
}

/** {@link readCodes} with pauses. */
export function* readCodesPaced(graph: Graph): Paced<Graph> {
  const weights = yield* weightPatternsPaced(graph)
  if (weights.size === 0) return graph
  const readers = yield* consumersOfPaced(graph)
  const initializers = new Map(graph.initializers)
  for (const [name, weight] of weights) {
    yield
    const { transposed, sizes } = weight
    const shape = transposed ? [...sizes].reverse() : sizes
    const nodes = readers.get(name) ?? []
    const layout = transposed ? 'columns' : 'rows'
    const fits =
      nodes.length > 0 && nodes.every(node => layoutOf(node, name, { dtype: 'f32', shape }) === layout)
    const codes = fits ? codesOf(graph, weight) : undefined
    if (codes) initializers.set(name, weightConstant(shape, codes, { transposed, exact: true }))
  }
  if (initializers.size === graph.initializers.size) return graph
  const nodes = graph.nodes.filter(({ outputs }) => !outputs.some(name => initializers.has(name)))
  return yield* removeDeadPaced({ ...graph, nodes, initializers })
}

/** Codes and scales of a graph as a weight; undefined for other formats, sizes or an incomplete last block of rows. */
function codesOf(
  graph: Graph,
  { format, constants, shape, sizes, types }: WeightPattern,
): Weight | undefined {
  if ((format !== 'fp8' && format !== 'nvfp4') || types.length > 1 || sizes !== shape) return undefined
  const [rows = 0, cols = 0] = shape
  const [codes, scale, global] = constants.map(name => graph.initializers.get(name)!)
  if (format === 'fp8') {
    return { format: 'f8_e4m3', rows, cols, data: codes!.bytes, rowScale: scale!.data as Float32Array }
  }
  if (cols % weightFormats.nvfp4.block !== 0) return undefined
  const tensorScale = Number(global!.data[0])
  return { format: 'nvfp4', rows, cols, data: codes!.bytes, blockScale: scale!.bytes, tensorScale }
}
