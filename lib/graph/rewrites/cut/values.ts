// values.ts: what is known of the values that pass a cut: their types, and the elements of small ones.
import { elementBytes } from '../../../core/dtype.js'
import { SparkError } from '../../../core/errors.js'
import { isSize, multiply, type Size } from '../../../core/size.js'
import { SizeScope } from '../../../core/size-scope.js'
import { Constant } from '../../constant.js'
import type { Graph, SymbolicDimension, TensorType, ValueInfo, ValueType } from '../../graph.js'
import { type Fact, inferFacts, integersOf } from '../../shape-inference.js'

/** Sizes of inputs by name. */
export type InputShapes = Readonly<Record<string, readonly number[]>>

/** Examples of open sizes; no two are equal, so that none is taken for another. */
const firstExample = 17

/** Facts for sizes of inputs; what initializers hold that a run may change is not known. */
export function factsOf(graph: Graph, shapes: InputShapes = {}): ReadonlyMap<string, Fact> {
  const fed = new Set(graph.overridable?.map(({ name }) => name))
  const open: ValueInfo[] = []
  const initializers = new Map<string, Constant>()
  for (const [name, constant] of graph.initializers)
    if (!fed.has(name) && !graph.updates?.has(name)) initializers.set(name, constant)
    else open.push({ name, type: { kind: 'tensor', dtype: constant.dtype, shape: constant.shape } })
  if (open.length === 0) return inferFacts(graph, { shapes })
  return inferFacts({ ...graph, inputs: [...graph.inputs, ...open], initializers }, { shapes })
}

/** {@link factsOf} where no run feeds initializers; without `shapes` open sizes are symbols, one for each name. */
export function symbolicFacts(whole: Graph, shapes: InputShapes | undefined): ReadonlyMap<string, Fact> {
  const graph = { ...whole, overridable: [] }
  if (shapes) return factsOf(graph, shapes)
  const names = openSizes(graph.inputs)
  const all = factsWith(graph, names)
  if (all) return all
  // One size may follow from another one: those that fit together are symbols, the others are unknown.
  const fitting: string[] = []
  let facts = factsOf(graph)
  for (const name of names) {
    const next = factsWith(graph, [...fitting, name])
    if (!next) continue
    fitting.push(name)
    facts = next
  }
  return facts
}

/** Name of an open size: its own, or that of its place. */
const nameOf = (input: string, size: SymbolicDimension, axis: number): string | undefined =>
  size === null ? `${input}.${axis}` : typeof size === 'string' ? size : undefined

const openSizes = (inputs: readonly ValueInfo[]): string[] => [
  ...new Set(
    inputs.flatMap(({ name, type }) =>
      type?.kind === 'tensor'
        ? (type.shape ?? []).flatMap((size, axis) => nameOf(name, size, axis) ?? [])
        : [],
    ),
  ),
]

/** Facts where these open sizes are symbols; undefined where they do not fit together. */
function factsWith(graph: Graph, names: readonly string[]): ReadonlyMap<string, Fact> | undefined {
  const scope = new SizeScope()
  const symbols = new Map(names.map((name, i) => [name, scope.symbol(name, firstExample + 2 * i)]))
  const inputs = graph.inputs.map(({ name, type }): ValueInfo => {
    if (type?.kind !== 'tensor' || !type.shape) return { name, ...(type && { type }) }
    const shape = type.shape.map((size, axis) => symbols.get(nameOf(name, size, axis) ?? '') ?? size)
    return { name, type: { ...type, shape } }
  })
  try {
    return factsOf({ ...graph, inputs })
  } catch (error) {
    if (error instanceof SparkError && error.code === 'ERR_SHAPE') return undefined
    throw error
  }
}

/** Bytes of a tensor; undefined where a size is not known. */
export function bytesOf(type: ValueType | undefined): Size | undefined {
  if (type?.kind !== 'tensor' || !type.shape?.every(isSize) || type.dtype === 'string') return undefined
  const count = multiply(...(type.shape as readonly Size[]))
  if (typeof count === 'number') return elementBytes(type.dtype, count)
  // Elements of less than a byte: as many bytes as there are for an even number of them.
  return multiply(count, elementBytes(type.dtype, 8) / 8)
}

/** The constant that a value always is, where that is known: integers that shapes are computed from. */
export function knownConstantOf(fact: Fact | undefined): Constant | undefined {
  const elements = integersOf(fact?.known)
  const dtype = fact?.type?.kind === 'tensor' ? fact.type.dtype : undefined
  if (!elements?.every(Number.isSafeInteger) || (dtype !== 'i64' && dtype !== 'i32')) return undefined
  const data = dtype === 'i64' ? BigInt64Array.from(elements, BigInt) : Int32Array.from(elements)
  const { shape } = fact!.known!
  return shape.every(size => typeof size === 'number')
    ? Constant.from(dtype, shape as number[], data)
    : undefined
}

/** A type as an input has it: sizes that are computed are unknown. */
export const inputType = ({ shape, ...type }: TensorType): TensorType =>
  shape ? { ...type, shape: shape.map(size => (typeof size === 'object' ? null : size)) } : type
