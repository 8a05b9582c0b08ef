// round-weights.ts: precision modes as a rewrite of weights (docs/numerics.md).
import { type Precision, warnIfExperimental } from '../../core/config.js'
import { SparkError } from '../../core/errors.js'
import { atOnce, type Paced } from '../../core/paced.js'
import { transpose } from '../../core/transpose.js'
import { Tensor } from '../../memory/tensor.js'
import type { NVFP4Recipe } from '../../precision/kernel-args.js'
import { quantizeNVFP4 } from '../../precision/nvfp4.js'
import { storeWeight } from '../../weights/encode.js'
import { isBlockFormat, type WeightFormat, weightFormats } from '../../weights/formats.js'
import type { LazyWeight, Release } from '../../weights/lazy-weight.js'
import type { Weight } from '../../weights/weight.js'
import { givenInt, intOf } from '../attributes.js'
import { Constant } from '../constant.js'
import { consumersOfPaced } from '../edit.js'
import type { Graph, Node } from '../graph.js'
import { carryFacts } from '../kept-facts.js'
import { weightConstant } from '../weight-constant.js'
import { decodedWeightsPaced } from './decoded-weights.js'
import { weightInput } from './fold-layouts.js'
import { removeDeadPaced } from './remove-dead.js'

/** Whether a node is a convolution of so few filters in a group that its kernels are loops over weights of f32. */
function isLooped(node: Node, { shape }: Constant): boolean {
  const groups = givenInt(node, 'group') ?? 1
  return groups > 1 && shape[0]! / groups <= 3
}

/** Options of {@link roundWeights}. */
export interface RoundingOptions {
  readonly mode: Precision
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
export function roundWeights(graph: Graph, options: RoundingOptions): Graph {
  return atOnce(roundWeightsPaced(graph, options))
}

/** {@link roundWeights} with pauses. */
export function* roundWeightsPaced(
  graph: Graph,
  { mode, recipe = 'modelopt', keep = [] }: RoundingOptions,
): Paced<Graph> {
  if (mode === 'fp32') return graph
  warnIfExperimental(mode)
  const readers = yield* consumersOfPaced(graph)
  const decoded = yield* decodedWeightsPaced(graph, readers)
  const initializers = new Map(graph.initializers)
  const kept = new Set(keep)
  for (const [name, weight] of [...graph.initializers, ...decoded]) {
    yield
    const own = kept.has(name) ? undefined : asInFile(weight, mode)
    if (own) {
      initializers.set(name, own)
      continue
    }
    const nodes = readers.get(name) ?? []
    const [layout, ...others] = nodes.map(node => layoutOf(node, name, weight))
    const fits = layout !== undefined && others.every(other => other === layout)
    // What codes of 8 bits or fewer stand for is not rounded to others.
    const isWide = kept.has(name) || (decoded.has(name) && mode !== 'fp16')
    const format = isWide ? 'bf16' : mode
    const stored = fits ? roundedWeight(name, weight, layout, format, recipe) : undefined
    if (stored) kept.delete(name)
    const looped = nodes.some(node => isLooped(node, weight))
    initializers.set(name, stored ? constantOf(weight, stored, layout!, looped) : weight.detached())
  }
  const [unknown] = kept
  if (unknown !== undefined) {
    throw new SparkError('ERR_ARGUMENT', `options.keep: '${unknown}' is no weight that ${mode} rounds`)
  }
  if (decoded.size === 0) return carryFacts(graph, { ...graph, initializers })
  const nodes = graph.nodes.filter(({ outputs }) => !outputs.some(name => decoded.has(name)))
  return carryFacts(graph, yield* removeDeadPaced({ ...graph, nodes, initializers }))
}

/** Whether the rows of a weight, each an output of the product, are its first or its last dimension. */
export type RowLayout = 'rows' | 'columns'

/** How a product reads a weight; undefined for other readers. */
export function layoutOf(
  node: Node,
  name: string,
  { dtype, shape }: Pick<Constant, 'dtype' | 'shape'>,
): RowLayout | undefined {
  const isWeight = node.inputs.every((input, i) => (input === name) === (i === weightInput(node)))
  if (!isWeight || dtype !== 'f32' || shape.length < 2) return undefined
  if (node.op.startsWith('Conv') || node.op === 'DoRAWeight') return 'rows'
  if (shape.length !== 2) return undefined
  const inRows = node.op === 'DoRA' || (node.op === 'Gemm' && intOf(node, 'transB') !== 0)
  return inRows ? 'rows' : 'columns'
}

/**
 * A weight that its file holds in the format of the mode, or in fewer bits: as it is there, while products round activations
 * as the mode does.
 */
function asInFile(constant: Constant, mode: Precision): Constant | undefined {
  const { weight, shape, byteLength } = constant
  if (!weight?.exact) return undefined
  const { format } = weight.shared
  const own = modeFormats[mode]
  const isNarrower = isBlockFormat(format) || (own && shape.length === 2 && codesInBf16.includes(format))
  if (format !== own && !isNarrower) return undefined
  return Constant.lazy('f32', shape, {
    byteLength,
    read: () => constant.bytes,
    weight: { ...weight, exact: false },
  })
}

/** The formats of modes that leave a number as it is where its format holds it. */
const modeFormats: Readonly<Partial<Record<Precision, WeightFormat>>> = { fp16: 'f16', bf16: 'bf16' }

/** Formats whose codes products take as they are, since bf16 holds each of them. */
const codesInBf16: readonly WeightFormat[] = ['f8_e4m3', 'nvfp4']

/** What {@link storeWeight} makes of floats. */
const roundedFormats: Readonly<Record<Precision, WeightFormat>> = {
  fp32: 'f32',
  fp16: 'f16',
  bf16: 'bf16',
  fp8: 'f8_e4m3',
  nvfp4: 'nvfp4',
}

/** The weight in the format of `mode`, rounded when it is read where it is in a file; undefined where the format cannot hold its rows. */
function roundedWeight(
  name: string,
  constant: Constant,
  layout: RowLayout,
  mode: Precision,
  recipe: NVFP4Recipe,
): Weight | LazyWeight | undefined {
  const { shape, count, load } = constant
  const rows = layout === 'rows' ? shape[0]! : shape[1]!
  const cols = count / rows
  if (count === 0 || (mode === 'nvfp4' && cols % weightFormats.nvfp4.block !== 0)) return undefined
  const round = (values: Float32Array, release?: Release): Weight => {
    const matrix = layout === 'rows' ? values : transpose(values, cols, rows)
    const weight =
      mode === 'nvfp4'
        ? quantizeNVFP4(matrix, [rows, cols], { recipe })
        : Tensor.from(matrix, { shape: [rows, cols] })
    const stored = storeWeight(weight, mode, `weight '${name}'`)
    for (const { buffer } of new Set([values, matrix])) release?.(buffer as ArrayBuffer)
    return stored
  }
  const read = (): Weight => round(constant.data as Float32Array)
  if (!load) return read()
  const format = roundedFormats[mode]
  return { format, rows, cols, read, load: async release => round(elementsOf(await load()), release) }
}

/** Elements in memory that nobody else has. */
const elementsOf = ({ buffer, byteOffset, byteLength }: Uint8Array): Float32Array =>
  new Float32Array(buffer, byteOffset, byteLength / Float32Array.BYTES_PER_ELEMENT)

/** The weight as a constant of f32. */
function constantOf(
  weight: Constant,
  stored: Weight | LazyWeight,
  layout: RowLayout,
  looped: boolean,
): Constant {
  const constant = weightConstant(weight.shape, stored, { transposed: layout === 'columns' })
  return looped ? Constant.from('f32', constant.shape, constant.data) : constant
}
