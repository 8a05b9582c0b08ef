// tensor-movements.ts: slices and joins of tensors, which copy elements and compute nothing.
import { argumentError, expectInteger, expectKnownOptions } from '../core/checks.js'
import type { ElementType, TypedArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { sliceBounds } from '../graph/shapes/dimensions.js'
import { Tensor } from '../memory/tensor.js'
import { concatAlong, sliceAlong, stackAlong, takeAlong } from './host/axes.js'
import { type HostTensor, hostTensor } from './values.js'

/** Options of {@link Tensor.slice}. */
export interface SliceOptions {
  /** Dimensions that the positions are for. Default: the first ones. */
  readonly axes?: readonly number[]
  /** Distances between elements; negative ones go backwards. Default: 1. */
  readonly steps?: readonly number[]
}

/** Throws ERR_ARGUMENT unless `axis` is a dimension of the tensor, which may be counted from the last. */
export function expectAxis(name: string, axis: number, { shape }: Tensor<ElementType>): void {
  const rank = Math.max(shape.length, 1)
  expectInteger(name, axis, -rank, rank - 1)
}

const hostOf = ({ dtype, shape, data }: Tensor<ElementType>): HostTensor => hostTensor(dtype, shape, data)

const tensorOf = <D extends ElementType>(
  { shape, data }: HostTensor,
  { dtype, backend }: Tensor<D>,
): Tensor<D> => Tensor.of(data as TypedArrayOf<D>, shape, dtype, backend)

/** Checks one list of positions, of which `Infinity` is behind the end. */
function expectPositions(name: string, given: number | readonly number[]): readonly number[] {
  const list = typeof given === 'number' ? [given] : given
  const isPosition = (value: unknown): boolean =>
    Number.isInteger(value) || Math.abs(value as number) === Infinity
  if (!Array.isArray(list) || !list.every(isPosition))
    throw argumentError(name, 'an integer or a list of integers', given)
  return list
}

function expectLength(name: string, list: readonly number[], count: number): void {
  if (list.length !== count) throw argumentError(name, `a list of ${count} integers, as many as starts`, list)
}

/** Indices of a slice with a step. */
function steppedIndices(size: number, start: number, end: number, step: number): number[] {
  const [first, last] = sliceBounds(size, start, end, step)
  const count = Math.max(0, Math.ceil((last - first) / step))
  return Array.from({ length: count }, (_, i) => first + i * step)
}

function slice<D extends ElementType>(
  this: Tensor<D>,
  starts: number | readonly number[],
  ends?: number | readonly number[],
  options: SliceOptions = {},
): Tensor<D> {
  expectKnownOptions('options', options, ['axes', 'steps'])
  const first = expectPositions('starts', starts)
  const { axes = first.map((_, i) => i), steps = first.map(() => 1) } = options
  const last =
    ends === undefined ? steps.map(step => (step > 0 ? 1 : -1) * Infinity) : expectPositions('ends', ends)
  for (const [name, list] of Object.entries({ ends: last, 'options.axes': axes, 'options.steps': steps }))
    expectLength(name, expectPositions(name, list), first.length)
  let value = hostOf(this as Tensor<ElementType>)
  for (const [i, given] of axes.entries()) {
    if (this.shape.length <= i || this.shape.length === 0)
      throw new SparkError(
        'ERR_SHAPE',
        `starts has ${first.length} entries, but the tensor ${this.shape.length} dimensions`,
      )
    expectAxis(`options.axes[${i}]`, given, this as Tensor<ElementType>)
    const axis = given < 0 ? given + this.shape.length : given
    if (steps[i] === 0) throw argumentError(`options.steps[${i}]`, 'an integer other than 0', 0)
    const [size, step] = [value.shape[axis]!, steps[i]!]
    if (step !== 1) value = takeAlong(value, axis, steppedIndices(size, first[i]!, last[i]!, step))
    else {
      const [from, to] = sliceBounds(size, first[i]!, last[i]!, 1)
      value = sliceAlong(value, axis, [from, Math.max(from, to)])
    }
  }
  return tensorOf(axes.length === 0 ? { ...value, data: value.data.slice() } : value, this)
}

const joined = (name: 'concat' | 'stack') =>
  function <D extends ElementType>(
    this: Tensor<D>,
    others: Tensor<D> | readonly Tensor<D>[],
    axis = 0,
  ): Tensor<D> {
    const list = others instanceof Tensor ? [others] : others
    const all = Array.isArray(list) ? [this, ...list] : []
    const wrong = all.findIndex(tensor => !(tensor instanceof Tensor))
    if (all.length === 0 || wrong >= 0) throw argumentError('others', 'a tensor or a list of tensors', others)
    const other = all.find(({ dtype }) => dtype !== this.dtype)
    if (other) {
      const remedy = `convert it: tensor.to('${this.dtype}')`
      throw new SparkError(
        'ERR_DTYPE',
        `tensors of ${this.dtype} and ${other.dtype} cannot be joined; ${remedy}`,
      )
    }
    const rank = this.shape.length + Number(name === 'stack')
    if (rank === 0) throw new SparkError('ERR_SHAPE', 'single numbers cannot be joined by concat; use stack')
    expectInteger('axis', axis, -rank, rank - 1)
    const at = axis < 0 ? axis + rank : axis
    const parts = all.map(tensor => hostOf(tensor as Tensor<ElementType>))
    return tensorOf(name === 'stack' ? stackAlong(parts, at) : concatAlong(parts, at), this)
  }

/** Methods of {@link Tensor}. */
export const movements = { slice, concat: joined('concat'), stack: joined('stack') }
