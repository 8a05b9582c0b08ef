// demo-inputs.ts: random inputs for models with incomplete input types.
import { type ElementType, elementArrayOf, isBigInteger, isInteger, isWideFloat } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { randomGenerator } from '../core/random.js'
import { numel } from '../core/shape.js'
import { intOf } from '../graph/attributes.js'
import { Constant, type NumericType } from '../graph/constant.js'
import { allNodes } from '../graph/edit.js'
import type { Graph, SymbolicDimension, TensorType } from '../graph/graph.js'
import { type Fact, inferFacts } from '../graph/shape-inference.js'
import { Tensor } from '../memory/tensor.js'
import type { Model } from '../model/model.js'
import type { Batch, BatchTensor } from '../training/dataset.js'

/** Integers and truth values that are inputs without dimensions, such as a sampling rate, by name. */
export type Settings = ReadonlyMap<string, Constant>

/** Random inputs for a model. */
export interface RandomInputs {
  readonly settings: Settings
  /** One batch for each epoch, the same in every run, and again after {@link differentBatches} epochs. */
  readonly batches: (epoch: number) => Batch[]
}

/** Number of different batches. */
export const differentBatches = 5

/** Sizes that are tried for dimensions that a model leaves open, other than the number of samples. */
const triedSizes = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4, 2, 1]
/** Open dimensions of which each may also be 1 while others have a size that is tried. */
const maxAlternatives = 4

/** An input whose elements are random. */
interface Input {
  readonly name: string
  readonly dtype: ElementType
  readonly shape: readonly SymbolicDimension[]
  /** Integers are below this. */
  readonly below: number
}

/** Sizes by key, see {@link keyOf}. */
type Sizes = ReadonlyMap<string, number>

/**
 * One sample in each batch, unless the model fixes another number; sizes that it leaves open are the first ones that it
 * runs with.
 * @throws SparkError ERR_UNSUPPORTED for an input that is not a tensor or has unknown rank; the errors of the run if no sizes fit
 */
export async function randomInputs(model: Model): Promise<RandomInputs> {
  const { graph } = model
  const settings = settingsOf(graph)
  const inputs = variedInputs(graph, settings)
  let failure: unknown
  for (const sizes of sizesToTry(inputs)) {
    const batchOf = (epoch: number): Batch =>
      randomBatch(inputs, sizes, randomGenerator((epoch % differentBatches) + 1))
    try {
      await model.run(feedsOf(model, { ...batchOf(0), ...Object.fromEntries(settings) }))
      return { settings, batches: epoch => [batchOf(epoch)] }
    } catch (error) {
      if (!(error instanceof SparkError)) throw error
      failure ??= error
    }
  }
  const { code, message } = failure as SparkError
  const open = openKeys(inputs).join(', ') || 'none'
  const remedy = `no sizes that were tried for open dimensions (${open}) fit: give batches with --data`
  throw new SparkError(code, `${message}: ${remedy}`, { cause: failure })
}

/** The model with settings as constants, so that branches that they decide are known. */
export function withSettings(graph: Graph, settings: Settings): Graph {
  return {
    ...graph,
    inputs: graph.inputs.filter(({ name }) => !settings.has(name)),
    initializers: new Map([...graph.initializers, ...settings]),
  }
}

/** The feeds of {@link Model.run}. */
export function feedsOf(model: Model, batch: Batch): Record<string, Tensor<ElementType>> {
  const feeds = model.inputs.map(({ name, dtype }) => {
    const { data, shape } = batch[name]!
    return [name, Tensor.of(data as never, shape, dtype as ElementType)] as const
  })
  return Object.fromEntries(feeds)
}

/** Values of all settings: the first number that the model compares one with, else 1. */
export function settingsOf(graph: Graph): Settings {
  const scalars = freeInputs(graph).flatMap(({ name, type }) =>
    type?.kind === 'tensor' && type.shape?.length === 0 && (type.dtype === 'bool' || isInteger(type.dtype))
      ? [[name, type.dtype as NumericType] as const]
      : [],
  )
  if (scalars.length === 0) return new Map()
  const readers = new Readers(graph)
  return new Map(
    scalars.map(([name, dtype]) => {
      const [value = 1] = readers.of(name, 'Equal').flatMap(({ node, read }) => {
        const other = node.inputs.find(input => input !== read)
        const [element] = readers.fact(other)?.known?.elements ?? []
        return typeof element === 'number' ? [element] : []
      })
      const array = elementArrayOf(dtype) as typeof Float32Array
      const convert = isBigInteger(dtype) ? BigInt : Number
      return [name, Constant.from(dtype, [], array.of(convert(value) as number) as never)]
    }),
  )
}

const freeInputs = (graph: Graph) => graph.inputs.filter(({ name }) => !graph.initializers.has(name))

function variedInputs(graph: Graph, settings: Settings): Input[] {
  const readers = new Readers(graph)
  return freeInputs(graph)
    .filter(({ name }) => !settings.has(name))
    .map(({ name, type }) => {
      const { dtype, shape } = type?.kind === 'tensor' ? type : ({} as Partial<TensorType>)
      if (dtype && shape) return { name, dtype, shape, below: readers.rowsSelectedBy(name) ?? 2 }
      const why = dtype ? 'does not say how many dimensions it has' : 'is no tensor'
      throw new SparkError('ERR_UNSUPPORTED', `input '${name}' ${why}: give batches with --data`)
    })
}

/** The key of an open dimension; unnamed first dimensions share the key of the number of samples. */
const keyOf = (input: string, axis: number, dim: SymbolicDimension): string =>
  (typeof dim === 'string' ? dim : undefined) ?? (axis === 0 ? 'samples' : `${input}, dimension ${axis}`)

/** The key of the number of samples: the first dimension of the first input that has dimensions. */
function samplesKey(inputs: readonly Input[]): string | number {
  const first = inputs.find(({ shape }) => shape.length > 0)
  const dim = first?.shape[0] ?? null
  return typeof dim === 'number' ? dim : keyOf('', 0, dim)
}

/** The keys of open dimensions other than the number of samples. */
function openKeys(inputs: readonly Input[]): string[] {
  const keys = inputs.flatMap(({ name, shape }) =>
    shape.flatMap((dim, axis) => (typeof dim === 'number' ? [] : [keyOf(name, axis, dim)])),
  )
  return [...new Set(keys)].filter(key => key !== samplesKey(inputs))
}

/** One size for all open dimensions, then the same with some of them 1, for each size that is tried. */
function* sizesToTry(inputs: readonly Input[]): Generator<Sizes> {
  const keys = openKeys(inputs)
  const alternatives = keys.length > 0 && keys.length <= maxAlternatives ? 2 ** keys.length - 1 : 1
  for (const size of keys.length > 0 ? triedSizes : [1]) {
    for (let ones = 0; ones < (size === 1 ? 1 : alternatives); ones++) {
      yield new Map(keys.map((key, i) => [key, (ones >> i) & 1 ? 1 : size]))
    }
  }
}

function randomBatch(inputs: readonly Input[], sizes: Sizes, random: () => number): Batch {
  const samples = samplesKey(inputs)
  const fields = inputs.map(({ name, dtype, shape: dims, below }): [string, BatchTensor] => {
    const keys = dims.map((dim, axis) => (typeof dim === 'number' ? dim : keyOf(name, axis, dim)))
    const shape = keys.map(key => (typeof key === 'number' ? key : (sizes.get(key) ?? 1)))
    const one = (): number => (isWideFloat(dtype) ? 2 * random() - 1 : Math.floor(below * random()))
    const elements = Array.from({ length: numel(shape) }, one)
    const { data } = Tensor.from(elements, { dtype: dtype as NumericType, shape })
    const named = keys.indexOf(samples)
    const count = typeof samples === 'number' ? samples : 1
    const axis = named < 0 ? shape.findIndex((size, i) => dims[i] === null && size === count) : named
    return [name, { data, shape, axis: axis < 0 ? null : axis }]
  })
  return Object.fromEntries(fields)
}

/** Operators that hand on elements of their first input. */
const movers = /^(Cast|Identity|Reshape|Squeeze|Unsqueeze|Flatten|Transpose|Slice|Expand|Split)$/

/** Follows values to the nodes that read them, in subgraphs, too. */
class Readers {
  readonly #graph: Graph
  readonly #facts: ReadonlyMap<string, Fact>

  constructor(graph: Graph) {
    this.#graph = graph
    this.#facts = inferFacts(graph)
  }

  /** The inferred fact of a value. */
  fact(name: string | undefined): Fact | undefined {
    return this.#facts.get(name ?? '')
  }

  /** The nodes of an operator that read a value, or what only moves its elements, under the name they read. */
  of(name: string, op: string) {
    const names = new Set([name])
    const found = []
    for (const node of allNodes(this.#graph)) {
      const read = node.inputs.find(input => names.has(input))
      if (read === undefined) continue
      if (node.op === op) found.push({ node, read })
      if (movers.test(node.op) && node.inputs[0] === read)
        for (const output of node.outputs) names.add(output)
    }
    return found
  }

  /** Rows of the smallest table that a value selects from. */
  rowsSelectedBy(name: string): number | undefined {
    const rows = this.of(name, 'Gather').flatMap(({ node, read }) => {
      const type = node.inputs[1] === read ? this.fact(node.inputs[0])?.type : undefined
      const size = type?.kind === 'tensor' ? type.shape?.at(intOf(node, 'axis')) : undefined
      return typeof size === 'number' ? [size] : []
    })
    return rows.length === 0 ? undefined : Math.min(...rows)
  }
}
