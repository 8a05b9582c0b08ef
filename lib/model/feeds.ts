// feeds.ts: checks and conversion of the inputs that a caller feeds.
import { inspect } from 'node:util'
import { argumentError, expectAttached } from '../core/checks.js'
import { type ElementArray, type ElementType, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { warn } from '../core/log.js'
import { numel } from '../core/shape.js'
import type { SymbolicDimension, ValueInfo, ValueType } from '../graph/graph.js'
import { type NestedNumbers, Tensor } from '../memory/tensor.js'
import { arrayName } from '../memory/tensor-values.js'
import { copied, type HostTensor, type HostValue, hostTensor } from './values.js'

/**
 * A value for an input: a tensor; a typed array of its elements, row-major, whose shape follows from that of the input
 * when at most one size is open; numbers in nested arrays, rounded to the type of the input; strings; for an input that
 * is a sequence an array of these; null for an optional one that is not there.
 */
export type Feed =
  | Tensor<ElementType>
  | ElementArray
  | NestedNumbers
  | readonly string[]
  | readonly Feed[]
  | null

/** Values by the name of the input. */
export type Feeds = Readonly<Record<string, Feed>>

/**
 * As {@link readFeeds}, in memory of their own, so that a caller may change or transfer its arrays at once.
 * @param copy - of the tensor that is fed to input `i`
 * @throws SparkError as {@link readFeeds}, ERR_OUT_OF_MEMORY
 */
export function copyFeeds(
  inputs: readonly ValueInfo[],
  feeds: Feeds,
  copy: (tensor: HostTensor, i: number) => HostTensor = copied,
): HostValue[] {
  const values = readFeeds(inputs, feeds)
  try {
    return values.map((value, i) => {
      if (value.kind === 'sequence') return { ...value, items: value.items.map(copied) }
      return value.kind === 'tensor' ? copy(value, i) : value
    })
  } catch (cause) {
    throw new SparkError('ERR_OUT_OF_MEMORY', 'the inputs of a run cannot be copied: bind them', { cause })
  }
}

/** Lists of inputs whose sizes have been warned of. */
const warned = new WeakSet<readonly ValueInfo[]>()

/**
 * The values of the inputs, in their order, on the memory of the caller. Sizes of one name that differ are warned of once.
 * @throws SparkError ERR_ARGUMENT for an input that is missing or unknown, ERR_DTYPE for another element type, ERR_SHAPE
 * for a shape that does not fit, ERR_DISPOSED for memory that was detached; each names the input, what it wants and what
 * was given
 */
export function readFeeds(inputs: readonly ValueInfo[], feeds: Feeds): HostValue[] {
  if (feeds === null || typeof feeds !== 'object' || ArrayBuffer.isView(feeds) || feeds instanceof Tensor) {
    throw argumentError('feeds', 'an object with a value for each input by its name', feeds)
  }
  for (const name of Object.keys(feeds)) {
    if (inputs.some(input => input.name === name)) continue
    throw new SparkError('ERR_ARGUMENT', `the model has no input '${name}'; it has ${describeInputs(inputs)}`)
  }
  const sizes: NamedSizes = new Map()
  const values = inputs.map(({ name, type }): HostValue => {
    const given = Object.hasOwn(feeds, name) ? feeds[name] : undefined
    if (given === undefined) {
      if (type?.kind === 'optional') return { kind: 'nothing' }
      throw new SparkError(
        'ERR_ARGUMENT',
        `feeds['${name}'] is missing; the model wants ${describeInputs(inputs)}`,
      )
    }
    const value = readValue(`feeds['${name}']`, type, given)
    if (value.kind === 'tensor' && type?.kind === 'tensor' && type.shape)
      expectSizes(name, type.shape, value, sizes)
    return value
  })
  if (!warned.has(inputs)) warnOfSizes(inputs, sizes)
  return values
}

const describeInputs = (inputs: readonly ValueInfo[]): string =>
  inputs.map(({ name, type }) => `'${name}': ${describeType(type)}`).join(', ') || 'none'

/** A type for people: `f32 [N, 3, 224, 224]`. */
export function describeType(type: ValueType | undefined): string {
  if (!type) return 'unknown'
  switch (type.kind) {
    case 'tensor':
    case 'sparse':
      return type.shape ? `${type.dtype} [${type.shape.map(size => size ?? '?').join(', ')}]` : type.dtype
    case 'map':
      return `map of ${type.key} to ${describeType(type.value)}`
    default:
      return `${type.kind} of ${describeType(type.element)}`
  }
}

function readValue(what: string, type: ValueType | undefined, given: Feed): HostValue {
  if (type?.kind === 'optional')
    return given === null ? { kind: 'nothing' } : readValue(what, type.element, given)
  if (type?.kind === 'sequence') {
    if (!Array.isArray(given)) throw argumentError(what, 'an array of tensors', given)
    const items = given.map((item, i) => readValue(`${what}[${i}]`, type.element, item) as HostTensor)
    const dtype = type.element.kind === 'tensor' ? type.element.dtype : 'f32'
    return { kind: 'sequence', dtype, items }
  }
  if (type?.kind === 'map' || type?.kind === 'sparse') {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${what}: inputs of the type ${describeType(type)} are not supported`,
    )
  }
  return readTensor(what, type?.dtype, type?.shape, given)
}

function readTensor(
  what: string,
  dtype: ElementType | undefined,
  shape: readonly SymbolicDimension[] | undefined,
  given: Feed,
): HostTensor {
  if (given instanceof Tensor || ArrayBuffer.isView(given)) {
    const data = given instanceof Tensor ? given.data : given
    if (ArrayBuffer.isView(data)) expectAttached(what, data)
  }
  if (given instanceof Tensor) {
    if (dtype === undefined || given.dtype === dtype) return hostTensor(given.dtype, given.shape, given.data)
    const tensor = `a tensor of ${given.dtype} [${given.shape.join(', ')}]`
    throw new SparkError(
      'ERR_DTYPE',
      `${what} must be of ${dtype}, got ${tensor}; convert it: tensor.to('${dtype}')`,
    )
  }
  if (dtype === undefined)
    throw argumentError(what, 'a Tensor, because the model does not say its type', given)
  if (dtype === 'string') return readStrings(what, shape, given)
  if (ArrayBuffer.isView(given)) return readArray(what, dtype, shape, given)
  if (given === null || (typeof given !== 'number' && !Array.isArray(given))) {
    throw argumentError(what, `a Tensor, typed array or nested arrays of ${dtype}`, given)
  }
  const tensor = Tensor.from(given as NestedNumbers, { dtype })
  return hostTensor(dtype, tensor.shape, tensor.data)
}

function readStrings(what: string, shape: readonly SymbolicDimension[] | undefined, given: Feed): HostTensor {
  if (!Array.isArray(given) || !given.every(element => typeof element === 'string')) {
    throw argumentError(what, 'an array of strings', given)
  }
  return hostTensor('string', shapeFor(what, shape, given.length), given)
}

function readArray(
  what: string,
  dtype: ElementType,
  shape: readonly SymbolicDimension[] | undefined,
  given: ElementArray,
): HostTensor {
  if (!(given instanceof elementArrayOf(dtype))) {
    const got = `${given.constructor.name}(${given.length})`
    throw new SparkError('ERR_DTYPE', `${what} must be ${arrayName(dtype)} for ${dtype}, got ${got}`)
  }
  // slice() of a Buffer, which is a Uint8Array, would not copy.
  const { buffer, byteOffset, length } = given
  const data = given instanceof Buffer ? new Uint8Array(buffer, byteOffset, length) : given
  return hostTensor(dtype, shapeFor(what, shape, length), data)
}

/** The shape of `count` elements whose sizes are known but for one at most. */
function shapeFor(what: string, shape: readonly SymbolicDimension[] | undefined, count: number): number[] {
  const open = shape?.filter(size => typeof size !== 'number').length ?? Number.POSITIVE_INFINITY
  const wanted = shape ? `[${shape.map(size => size ?? '?').join(', ')}]` : 'unknown'
  if (!shape || open > 1) {
    throw new SparkError(
      'ERR_SHAPE',
      `${what}: the shape ${wanted} does not follow from ${count} elements; give a Tensor with a shape`,
    )
  }
  const rest = numel(shape.filter(size => typeof size === 'number'))
  const missing = count / rest
  if (open === 0 ? count !== rest : !Number.isInteger(missing)) {
    throw new SparkError('ERR_SHAPE', `${what} must have the shape ${wanted}, got ${count} elements`)
  }
  return shape.map(size => (typeof size === 'number' ? size : missing))
}

/** Where each named size occurs, and what it is there. */
type NamedSizes = Map<string, { readonly size: number; readonly input: string }[]>

/** Checks a shape against that of the input, and collects what names of sizes stand for. */
function expectSizes(
  name: string,
  wanted: readonly SymbolicDimension[],
  { shape }: HostTensor,
  sizes: NamedSizes,
): void {
  const fits =
    wanted.length === 0 ||
    (wanted.length === shape.length &&
      wanted.every((size, i) => typeof size !== 'number' || size === shape[i]))
  if (!fits) {
    const expected = wanted.map(size => size ?? '?').join(', ')
    throw new SparkError(
      'ERR_SHAPE',
      `feeds['${name}'] must have the shape [${expected}], got ${inspect(shape)}`,
    )
  }
  for (const [i, size] of wanted.entries()) {
    if (typeof size !== 'string') continue
    const uses = sizes.get(size) ?? []
    sizes.set(size, [...uses, { size: shape[i]!, input: name }])
  }
}

function warnOfSizes(inputs: readonly ValueInfo[], sizes: NamedSizes): void {
  const differing = [...sizes].filter(([, uses]) => uses.some(({ size }) => size !== uses[0]!.size))
  if (differing.length === 0) return
  warned.add(inputs)
  const shown = differing.map(([name, uses]) => {
    const values = uses.map(({ size, input }) => `${size} in '${input}'`).join(', ')
    return `'${name}' is ${values}`
  })
  warn(
    'SPARK_SIZE_NAME',
    `The model gives different sizes one name: ${shown.join('; ')}. It runs with the given sizes`,
  )
}
