// growing-state.ts: states that get longer from run to run. They lie in memory with room behind them along one axis, so that
// what a run adds is written there and nothing moves.
import { contiguousStrides, numel } from '../core/shape.js'
import type { Size } from '../core/size.js'
import type { KernelType } from '../kernels/precision-args.js'
import { Buffer, type Operand, type Step } from './program.js'
import { GrowingState, type TensorShape, type Value } from './value.js'
import { collapse } from './views.js'

/** Where the elements of a value are: in which operand, from which one on, and how many lie between neighbours. */
type Piece = readonly [operand: Operand, offset: Size, strides: readonly Size[]]

/** How an input becomes a state. */
export interface StateOptions {
  /** The axis along which it grows; undefined: it does not. */
  readonly axis: number | undefined
  /** The largest size along the axis that its memory has room for. */
  readonly capacity: Size
}

/** What an input that is a state is during compilation, and the step that makes its value, if one does. */
export function stateInput(
  type: TensorShape,
  next: readonly Size[],
  { axis, capacity }: StateOptions,
): { value: Value; steps: Step[] } {
  if (axis === undefined)
    return { value: { ...type, buffer: new Buffer(type.dtype, numel(type.shape), 'state') }, steps: [] }
  return currentValue(new GrowingState(type, next, axis, capacity), type)
}

/** A value of the elements that a state has now. Kernels that take strides read them where they are. */
export function currentValue(
  growing: GrowingState,
  type: TensorShape,
  node?: string,
): { value: Value; steps: Step[] } {
  const buffer = new Buffer(type.dtype, numel(type.shape), 'arena')
  const to = [buffer.write(), 0, contiguousStrides(type.shape)] as const
  const step = stridedCopy(type, [growing.buffer.read(), 0, growing.strides], to)
  return { value: { ...type, buffer, growing }, steps: [{ ...step, node } as Step] }
}

/** The step that makes a value the next one of a state; undefined where it is that already. */
export function storeStep(next: Value, state: Value): Step | undefined {
  const { growing } = state
  if (next.buffer === state.buffer || (growing && next.growing === growing && growing.isExtended))
    return undefined
  const [buffer, strides] = growing
    ? [growing.buffer, growing.strides]
    : [state.buffer, contiguousStrides(next.shape)]
  return stridedCopy(
    next,
    [next.buffer.read(), 0, contiguousStrides(next.shape)],
    [buffer.write(), 0, strides],
  )
}

/** dst[i · strides] = src[i · strides] for the indices of a shape. */
function stridedCopy({ dtype, shape: sizes }: TensorShape, from: Piece, to: Piece): Step {
  const { shape, strides } = collapse(sizes, [from[2], to[2]])
  const [srcStrides, dstStrides] = strides as [Size[], Size[]]
  const args = {
    shape,
    srcStrides,
    dstStrides,
    src: from[0],
    srcOffset: from[1],
    dst: to[0],
    dstOffset: to[1],
  }
  return { op: 'copyStrided', args: { dtype: dtype as KernelType, ...args } }
}
