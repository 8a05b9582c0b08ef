// values.ts: values of a graph during a run, on the host.
import { type ElementArray, type ElementType, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import { describeNode } from '../graph/attributes.js'
import type { Constant } from '../graph/constant.js'
import type { Node, ValueType } from '../graph/graph.js'
import { unpackedData } from '../graph/packed.js'

/** A dense tensor on the host. */
export interface HostTensor {
  readonly kind: 'tensor'
  /** Element type. */
  readonly dtype: ElementType
  /** Sizes of the dimensions. */
  readonly shape: readonly number[]
  /** Elements, row-major; those of less than 8 bits in a byte each. */
  readonly data: ElementArray | readonly string[]
}

/** A list of values of one type. */
export interface HostSequence {
  readonly kind: 'sequence'
  /** Element type of an empty one. */
  readonly dtype: ElementType
  readonly items: readonly HostTensor[]
}

/** An optional value that is not there. */
export interface HostNothing {
  readonly kind: 'nothing'
}

/** A value of a graph during a run. */
export type HostValue = HostTensor | HostSequence | HostNothing

/** Values by name during a run; those of the graphs around it are seen, too. */
export class Scope {
  readonly #values = new Map<string, HostValue>()
  readonly #outer: Scope | undefined

  /** A scope inside of another one. */
  constructor(outer?: Scope) {
    this.#outer = outer
  }

  /** A value of this graph or of one around it. */
  get(name: string): HostValue | undefined {
    return this.#values.get(name) ?? this.#outer?.get(name)
  }

  /** Adds a value. */
  set(name: string, value: HostValue): void {
    this.#values.set(name, value)
  }
}

/** A tensor of elements that fit. */
export const hostTensor = (
  dtype: ElementType,
  shape: readonly number[],
  data: ElementArray | readonly string[],
): HostTensor => ({ kind: 'tensor', dtype, shape, data })

/**
 * A tensor of zeros, or of empty texts.
 * @throws SparkError ERR_OUT_OF_MEMORY
 */
export function hostZeros(dtype: ElementType, shape: readonly number[]): HostTensor {
  const count = numel(shape)
  try {
    const data = dtype === 'string' ? new Array<string>(count).fill('') : new (elementArrayOf(dtype))(count)
    return hostTensor(dtype, shape, data)
  } catch (cause) {
    const message = `a tensor of ${dtype} [${shape.join(', ')}] does not fit in memory`
    throw new SparkError('ERR_OUT_OF_MEMORY', message, { cause })
  }
}

/** A tensor of i64 numbers. */
export const hostIntegers = (shape: readonly number[], values: readonly number[]): HostTensor =>
  hostTensor('i64', shape, BigInt64Array.from(values, BigInt))

/** A constant as a value. */
export function hostConstant(constant: Constant): HostTensor {
  const { dtype, shape } = constant
  return hostTensor(dtype, shape, dtype === 'string' ? constant.strings : unpackedData(constant))
}

/** The value with elements of its own: what a plan hands out is overwritten by its next run. */
export function copied<V extends HostValue>(value: V): V {
  return value.kind === 'tensor' ? { ...value, data: value.data.slice() } : value
}

/** What shape inference calls the type of a value. */
export function typeOf(value: HostValue): ValueType | undefined {
  switch (value.kind) {
    case 'tensor':
      return { kind: 'tensor', dtype: value.dtype, shape: value.shape }
    case 'sequence':
      return { kind: 'sequence', element: { kind: 'tensor', dtype: value.dtype } }
    case 'nothing':
      return undefined
  }
}

/**
 * The value as a tensor.
 * @throws SparkError ERR_DTYPE naming the node that wants one
 */
export function expectTensor(node: Node, value: HostValue | undefined): HostTensor {
  if (value?.kind === 'tensor') return value
  throw new SparkError('ERR_DTYPE', `${describeNode(node)} takes a tensor, got ${value?.kind ?? 'nothing'}`)
}

/**
 * The value as a sequence.
 * @throws SparkError ERR_DTYPE naming the node that wants one
 */
export function expectSequence(node: Node, value: HostValue | undefined): HostSequence {
  if (value?.kind === 'sequence') return value
  throw new SparkError('ERR_DTYPE', `${describeNode(node)} takes a sequence, got ${value?.kind ?? 'nothing'}`)
}

/** The elements of a tensor of numbers, as numbers. */
export function numbersOf({ data }: HostTensor): number[] {
  return Array.from(data as ArrayLike<number | bigint>, Number)
}
