// rounded-weights.ts: precision modes as a rewrite of weights (docs/numerics.md).
import { type Precision, warnIfExperimental } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { type Paced, Pacer } from '../core/paced.js'
import { transpose } from '../core/transpose.js'
import { intOf } from '../graph/attributes.js'
import { Constant, type StoredMatrix } from '../graph/constant.js'
import { consumersOfPaced } from '../graph/edit.js'
import type { Graph, Node } from '../graph/graph.js'
import { type QuantizedWeight, quantizedWeightsPaced } from '../graph/quantized-weight.js'
import { weightInput } from '../graph/rewrites/fold-layouts.js'
import { removeDeadPaced } from '../graph/rewrites/remove-dead.js'
import { holdWeight } from '../kernels/held-weight.js'
import type { Kernels, StoredWeight } from '../kernels/kernels.js'
import { decodeWeight, storeWeight } from '../kernels/stored-weight.js'
import { Tensor } from '../memory/tensor.js'
import type { NVFP4Recipe } from '../precision/kernel-args.js'
import { quantizeNVFP4 } from '../precision/nvfp4.js'
import { foldWeights } from './fold-weights.js'

/** Elements of a block of NVFP4, along a row. */
const blockSize = 16

/** Whether a node is a convolution of so few filters in a group that its kernels are loops over weights of f32. */
function isLooped(node: Node, { shape }: Constant): boolean {
  const groups = intOf(node, 'group', 1)
  return groups > 1 && shape[0]! / groups <= 3
}

/** Options of {@link withPrecision}. */
export interface RoundingOptions {
  /** Of nvfp4. Default: modelopt. */
  readonly recipe?: NVFP4Recipe
  /** Names of weights that fp8 and nvfp4 hold in bf16. Default: none. */
  readonly keep?: readonly string[]
}

/**
 * The graph whose products read their weights as `mode` rounds them. Everything else, activations and normalizations
 * and softmax among them, stays in f32.
 * @throws SparkError ERR_RANGE for a weight that fp16 cannot hold, ERR_NOT_FINITE for one that a quantizer cannot take,
 * ERR_ARGUMENT for a name in `keep` of no weight that `mode` rounds
 */
export async function withPrecision(
  graph: Graph,
  mode: Precision,
  { recipe = 'modelopt', keep = [] }: RoundingOptions = {},
  pacer = new Pacer(),
): Promise<Graph> {
  if (mode === 'fp32') return graph
  warnIfExperimental(mode)
  const folded = await foldWeights(graph, pacer)
  const readers = await pacer.do(consumersOfPaced(folded))
  const initializers = new Map(folded.initializers)
  const kept = new Set(keep)
  for (const [name, weight] of folded.initializers) {
    await pacer.pause()
    const nodes = readers.get(name) ?? []
    const [layout, ...others] = nodes.map(node => layoutOf(node, name, weight))
    const fits = layout !== undefined && others.every(other => other === layout)
    const format = kept.has(name) ? 'bf16' : mode
    const stored = fits ? storedWeight(name, weight, layout, format, recipe) : undefined
    if (stored) kept.delete(name)
    const looped = nodes.some(node => isLooped(node, weight))
    initializers.set(name, stored ? constantOf(weight, stored, layout!, looped) : weight.detached())
  }
  const [unknown] = kept
  if (unknown !== undefined) {
    throw new SparkError('ERR_ARGUMENT', `options.keep: '${unknown}' is no weight that ${mode} rounds`)
  }
  return { ...folded, initializers }
}

/** Whether the rows of a weight, each an output of the product, are its first or its last dimension. */
type Layout = 'rows' | 'columns'

/** How a product reads a weight; undefined for other readers. */
function layoutOf(
  node: Node,
  name: string,
  { dtype, shape }: Pick<Constant, 'dtype' | 'shape'>,
): Layout | undefined {
  const isWeight = node.inputs.every((input, i) => (input === name) === (i === weightInput(node)))
  if (!isWeight || dtype !== 'f32' || shape.length < 2) return undefined
  if (node.op.startsWith('Conv') || node.op === 'DoRAWeight') return 'rows'
  if (shape.length !== 2) return undefined
  const inRows = node.op === 'DoRA' || (node.op === 'Gemm' && intOf(node, 'transB', 0) !== 0)
  return inRows ? 'rows' : 'columns'
}

/** The weight in the format of `mode`; undefined where the format cannot hold its rows. */
function storedWeight(
  name: string,
  { shape, count, data }: Constant,
  layout: Layout,
  mode: Precision,
  recipe: NVFP4Recipe,
): StoredWeight | undefined {
  const rows = layout === 'rows' ? shape[0]! : shape[1]!
  const cols = count / rows
  if (count === 0 || (mode === 'nvfp4' && cols % blockSize !== 0)) return undefined
  const values = data as Float32Array
  const matrix = layout === 'rows' ? values : transpose(values, cols, rows)
  const weight =
    mode === 'nvfp4'
      ? quantizeNVFP4(matrix, [rows, cols], { recipe })
      : Tensor.from(matrix, { shape: [rows, cols] })
  return storeWeight(weight, mode, `weight '${name}'`)
}

/** The weight as a constant of f32. */
function constantOf(weight: Constant, stored: StoredWeight, layout: Layout, looped: boolean): Constant {
  const constant = storedConstant(weight.shape, { weight: stored, transposed: layout === 'columns' })
  return looped ? Constant.from('f32', constant.shape, constant.data) : constant
}

/** A constant of f32 that is decoded when somebody reads its elements. */
function storedConstant(shape: readonly number[], stored: StoredMatrix): Constant {
  const { weight, transposed } = stored
  const { rows, cols } = weight
  const read = (): Uint8Array => {
    const values = decodeWeight(weight)
    return new Uint8Array((transposed ? transpose(values, rows, cols) : values).buffer)
  }
  return Constant.lazy('f32', shape, { byteLength: 4 * rows * cols, read, stored })
}

/**
 * The graph with the weights of precision modes in the layout that kernels of the CPU stream. Filters of bf16 stay rows: what a
 * convolution reads is up to its plan.
 */
export async function packWeights(graph: Graph, kernels: Kernels, pacer = new Pacer()): Promise<Graph> {
  if (![...graph.initializers.values()].some(({ stored }) => stored)) return graph
  const readers = await pacer.do(consumersOfPaced(graph))
  const initializers = new Map(graph.initializers)
  for (const [name, { shape, stored }] of graph.initializers) {
    if (!stored || stored.weight.packed) continue
    if (stored.weight.dtype === 'bf16' && readers.get(name)?.every(({ op }) => op === 'Conv')) continue
    await pacer.pause()
    const { weight } = await holdWeight(kernels, stored.weight)
    initializers.set(name, storedConstant(shape, { ...stored, weight }))
  }
  return { ...graph, initializers }
}

/**
 * The graph whose products read the codes of weights that it makes of codes and scales, instead of the f32 numbers that
 * they stand for, with the same results.
 */
export function* withStoredCodes(graph: Graph): Paced<Graph> {
  const weights = yield* quantizedWeightsPaced(graph)
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
    const stored = fits ? codesOf(graph, weight) : undefined
    if (stored) initializers.set(name, storedConstant(shape, { weight: stored, transposed, exact: true }))
  }
  if (initializers.size === graph.initializers.size) return graph
  const nodes = graph.nodes.filter(({ outputs }) => !outputs.some(name => initializers.has(name)))
  return yield* removeDeadPaced({ ...graph, nodes, initializers })
}

/** Codes and scales of a graph as a stored weight; undefined for other formats, sizes or an incomplete last block of rows. */
function codesOf(
  graph: Graph,
  { format, constants, shape, sizes, types }: QuantizedWeight,
): StoredWeight | undefined {
  if ((format !== 'fp8' && format !== 'nvfp4') || types.length > 1 || sizes !== shape) return undefined
  const [rows = 0, cols = 0] = shape
  const [codes, scale, global] = constants.map(name => graph.initializers.get(name)!)
  if (format === 'fp8') {
    return { dtype: 'f8_e4m3', rows, cols, data: codes!.bytes, rowScale: scale!.data as Float32Array }
  }
  if (cols % blockSize !== 0) return undefined
  const tensorScale = Number(global!.data[0])
  return { dtype: 'nvfp4', rows, cols, data: codes!.bytes, blockScale: scale!.bytes, tensorScale }
}
