// precision.ts: precision modes as a rewrite of weights (docs/numerics.md).
import { type Precision, warnIfExperimental } from '../../core/config.js'
import { intOf } from '../../graph/attributes.js'
import { Constant } from '../../graph/constant.js'
import { consumersOf } from '../../graph/edit.js'
import type { Graph, Node } from '../../graph/graph.js'
import { Tensor } from '../../memory/tensor.js'
import { decodeWeight, storeWeight } from '../stored-weight.js'

/** Elements of a block of NVFP4, along a row. */
const blockSize = 16

/**
 * The graph whose products read their weights as `mode` rounds them. Everything else, activations and normalizations
 * and softmax among them, stays in f32.
 * @throws SparkError ERR_RANGE for a weight that fp16 cannot hold, ERR_NOT_FINITE for one that a quantizer cannot take
 */
export function withPrecision(graph: Graph, mode: Precision): Graph {
  if (mode === 'fp32') return graph
  warnIfExperimental(mode)
  const readers = consumersOf(graph)
  const initializers = new Map(graph.initializers)
  for (const [name, weight] of graph.initializers) {
    const nodes = readers.get(name) ?? []
    const [layout, ...others] = nodes.map(node => layoutOf(node, name, weight))
    if (!layout || others.some(other => other !== layout)) continue
    const rounded = roundedWeight(name, weight, layout, mode)
    if (rounded) initializers.set(name, rounded)
  }
  return { ...graph, initializers }
}

/** Whether the rows of a weight, each an output of the product, are its first or its last dimension. */
type Layout = 'rows' | 'columns'

/** How a product reads a weight; undefined for other readers. */
function layoutOf(node: Node, name: string, { dtype, shape }: Constant): Layout | undefined {
  const isWeight = node.inputs[1] === name && node.inputs[0] !== name && node.inputs[2] !== name
  if (!isWeight || dtype !== 'f32' || node.domain !== '' || shape.length < 2) return undefined
  if (node.op === 'Conv' || node.op === 'ConvTranspose') return 'rows'
  if (shape.length !== 2) return undefined
  if (node.op === 'Gemm') return intOf(node, 'transB', 0) ? 'rows' : 'columns'
  return node.op === 'MatMul' ? 'columns' : undefined
}

/** The weight in the format of `mode`, decoded when it is read; undefined where the format cannot hold its rows. */
function roundedWeight(
  name: string,
  weight: Constant,
  layout: Layout,
  mode: Precision,
): Constant | undefined {
  const { shape, count, byteLength } = weight
  const rows = layout === 'rows' ? shape[0]! : shape[1]!
  const cols = count / rows
  if (count === 0 || (mode === 'nvfp4' && cols % blockSize !== 0)) return undefined
  const data = weight.data as Float32Array
  const matrix = layout === 'rows' ? data : transposed(data, cols, rows)
  const stored = storeWeight(Tensor.from(matrix, { shape: [rows, cols] }), mode, `weight '${name}'`)
  const read = (): Uint8Array => {
    const values = decodeWeight(stored)
    return new Uint8Array((layout === 'rows' ? values : transposed(values, rows, cols)).buffer)
  }
  return Constant.lazy('f32', shape, { byteLength, read })
}

function transposed(values: Float32Array, rows: number, cols: number): Float32Array {
  const result = new Float32Array(values.length)
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) result[c * rows + r] = values[r * cols + c]!
  return result
}
