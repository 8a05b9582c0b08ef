// read-codes.ts: products that read the codes of quantized weights instead of the floats that they stand for.
import { atOnce, type Paced } from '../../core/paced.js'
import { weightFormats } from '../../weights/formats.js'
import { SharedWeight } from '../../weights/shared-weight.js'
import { arraysOf, type Weight } from '../../weights/weight.js'
import { intOf } from '../attributes.js'
import type { Constant } from '../constant.js'
import { consumersOfPaced, producersOfPaced } from '../edit.js'
import { type Graph, type Node, sparkDomain } from '../graph.js'
import { scaledWeight } from '../scaled-weight.js'
import { sharedConstant } from '../weight-constant.js'
import { type WeightPattern, weightPatternsPaced } from '../weight-pattern.js'
import { removeDeadPaced } from './remove-dead.js'
import { layoutOf, type RowLayout } from './round-weights.js'

/**
 * The graph whose products and gathers of rows read the codes of weights that it makes of codes and scales, instead of the
 * f32 elements that they stand for, with the same results. Weights of the same codes are kept once.
 */
export function readCodes(graph: Graph): Graph {
  return atOnce(readCodesPaced(graph))
}

/** {@link readCodes} with pauses. */
export function* readCodesPaced(graph: Graph): Paced<Graph> {
  const patterns = yield* weightPatternsPaced(graph)
  if (patterns.size === 0) return graph
  const [readers, producers] = [yield* consumersOfPaced(graph), yield* producersOfPaced(graph)]
  const initializers = new Map(graph.initializers)
  const known = new SharedWeights()
  for (const [name, pattern] of patterns) {
    yield
    const nodes = readers.get(name) ?? []
    const layout = layoutFor(nodes, name, pattern)
    const meetsCodes = nodes.some(
      ({ inputs: [x = ''] }) => x !== name && producers.get(x)?.op === 'DequantizeLinear',
    )
    // Layers of quantized operands become those of bytes.
    if (!layout || (pattern.format === 'scaled' && pattern.block === 0 && meetsCodes)) continue
    const weight = codesOf(graph, pattern, layout)
    if (!weight) continue
    const use = { transposed: layout === 'columns', exact: true }
    initializers.set(name, sharedConstant(shapeOf(pattern), known.of(weight), use))
  }
  if (initializers.size === graph.initializers.size) return graph
  const nodes = graph.nodes.filter(({ outputs }) => !outputs.some(name => initializers.has(name)))
  return yield* removeDeadPaced({ ...graph, nodes, initializers })
}

const shapeOf = ({ transposed, sizes }: WeightPattern): readonly number[] =>
  transposed ? [...sizes].reverse() : sizes

/** How all readers of a value read it as a weight; undefined where one of them does not. */
function layoutFor(nodes: readonly Node[], name: string, pattern: WeightPattern): RowLayout | undefined {
  const constant = { dtype: 'f32', shape: shapeOf(pattern) } as const
  const isScaled = pattern.format === 'scaled'
  const [layout, ...others] = nodes.map(node =>
    isScaled ? blockLayoutOf(node, name, constant) : layoutOf(node, name, constant),
  )
  return others.every(other => other === layout) ? layout : undefined
}

/** How the kernels that read blocks read a weight: products, gathers of rows and layers of experts. */
function blockLayoutOf(
  node: Node,
  name: string,
  constant: Pick<Constant, 'dtype' | 'shape'>,
): RowLayout | undefined {
  const { domain, op, inputs } = node
  const isInput = (i: number): boolean => inputs.every((input, at) => (input === name) === (at === i))
  const rank = constant.shape.length
  if (domain === sparkDomain && op === 'ExpertLinear') return rank === 3 && isInput(1) ? 'rows' : undefined
  if (domain !== '' || rank !== 2) return undefined
  if (op === 'Gather') return isInput(0) && intOf(node, 'axis') === 0 ? 'rows' : undefined
  return op === 'MatMul' || op === 'Gemm' ? layoutOf(node, name, constant) : undefined
}

/** Codes and scales of a graph as a weight; undefined for other formats, sizes or an incomplete last block of rows. */
function codesOf(graph: Graph, pattern: WeightPattern, layout: RowLayout): Weight | undefined {
  const { format, constants, shape, sizes, types, axis, block, transposed } = pattern
  if (types.join() !== 'f32' || sizes !== shape) return undefined
  const [codes, scale, third] = constants.map(name => graph.initializers.get(name)!)
  const isByRows = transposed === (layout === 'columns')
  if (format === 'scaled')
    return scaledWeight({ codes: codes!, scale: scale!, zero: third, axis, block }, !isByRows)
  const [rows = 0, cols = 0] = shape
  if (!isByRows) return undefined
  if (format === 'fp8') {
    return { format: 'f8_e4m3', rows, cols, data: codes!.bytes, rowScale: scale!.data as Float32Array }
  }
  if (format !== 'nvfp4' || cols % weightFormats.nvfp4.block !== 0) return undefined
  const tensorScale = Number(third!.data[0])
  return { format: 'nvfp4', rows, cols, data: codes!.bytes, blockScale: scale!.bytes, tensorScale }
}

/** Weights of a graph, of which equal ones are one: a table of tokens and the layer of logits often have the same codes. */
class SharedWeights {
  readonly #known = new Map<string, SharedWeight[]>()

  of(weight: Weight): SharedWeight {
    const { format, rows, cols } = weight
    const key = `${format} ${rows} ${cols}`
    const same = this.#known.get(key)?.find(({ kept }) => sameWeight(kept, weight))
    if (same) return same
    const shared = new SharedWeight(weight)
    this.#known.set(key, [...(this.#known.get(key) ?? []), shared])
    return shared
  }
}

/** Whether weights of one format and shape have the same arrays and scale. */
function sameWeight(a: Weight, b: Weight): boolean {
  const [others, scaleOf] = [arraysOf(b), (weight: Weight) => 'tensorScale' in weight && weight.tensorScale]
  return (
    scaleOf(a) === scaleOf(b) &&
    arraysOf(a).every(([, array], i) => bytesOf(array).equals(bytesOf(others[i]![1])))
  )
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array | Uint8Array): Buffer =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength)
