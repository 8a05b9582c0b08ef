// passes.ts: the forward and backward pass of a DoRA layer as kernel calls.
import { argumentError, expectAttached, expectOneOf, expectShape } from '../../core/checks.js'
import { type DType, isHalf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { FloatCompute, Kernels, LowRank, StoredWeight } from '../../kernels/kernels.js'
import { Tensor } from '../../memory/tensor.js'
import type { DoRAGradients } from './options.js'
import type { Step, Work } from './prepared-calls.js'

/** The adapter at one moment, with the row norms that belong to it. */
export interface Snapshot extends LowRank {
  readonly magnitude: Float32Array
  readonly norm: Float32Array
  readonly gain: Float32Array
}

/**
 * The adapter with the parameters A, B and magnitude: `last`, or a copy and the step that computes its gain when a byte
 * has changed. Passes work on the copy, so a gain is never stale and a backward pass fits its forward pass.
 */
export function takeSnapshot(
  parameters: readonly Float32Array[],
  last: Snapshot | null,
  frozen: { weight: StoredWeight; weightNorm2: Float32Array; rank: number; scale: number },
): { snapshot: Snapshot; steps: readonly Step[] } {
  const [a, b, magnitude] = parameters as [Float32Array, Float32Array, Float32Array]
  if (last && sameBytes(a, last.a) && sameBytes(b, last.b) && sameBytes(magnitude, last.magnitude)) {
    return { snapshot: last, steps: [] }
  }
  const { rank, scale, weight, weightNorm2 } = frozen
  const copies = { a: a.slice(), b: b.slice(), magnitude: magnitude.slice() }
  const [norm, gain] = [new Float32Array(weight.rows), new Float32Array(weight.rows)]
  const snapshot = { rank, scale, ...copies, norm, gain }
  return { snapshot, steps: [['doraNorm', { ...snapshot, weight, weightNorm2 }]] }
}

function sameBytes(a: Float32Array, b: Float32Array): boolean {
  const bytes = (array: Float32Array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
  return Buffer.compare(bytes(a), bytes(b)) === 0
}

/** What a training pass leaves for the backward pass. */
export interface Activations {
  /** Counts the passes of a layer. */
  readonly pass: number
  /** Shape and dtype of the layer's input. */
  readonly shape: readonly number[]
  readonly dtype: DType
  readonly x: Float32Array
  readonly mask: Float32Array | undefined
  readonly xa: Float32Array
  readonly z: Float32Array
  readonly snapshot: Snapshot
}

/**
 * The elements of an argument as f32, as {@link ownFloats} gives them.
 * @throws SparkError ERR_ARGUMENT, ERR_DTYPE or ERR_SHAPE
 */
export function floats(name: string, tensor: Tensor, shape: readonly number[]): Float32Array {
  expectFloatTensor(name, tensor)
  expectShape(name, tensor.shape, shape)
  return ownFloats(tensor)
}

/**
 * The elements as f32 in an array nobody else has: a caller may write into its tensor, or transfer its memory to
 * another thread, while a kernel reads the copy.
 */
export function ownFloats(tensor: Tensor): Float32Array {
  const values = tensor.toFloat32()
  return values === tensor.data ? values.slice() : values
}

function expectFloatTensor(name: string, tensor: Tensor): void {
  if (!(tensor instanceof Tensor)) throw argumentError(name, 'a Tensor', tensor)
  expectAttached(name, tensor.data)
  expectOneOf(`${name}.dtype`, tensor.dtype, ['f32', 'f16', 'bf16'])
}

function maskFor(mask: Tensor, { shape }: Tensor): Float32Array {
  expectFloatTensor('options.mask', mask)
  return ownFloats(mask.reshape(shape))
}

/** Throws unless the tensor is [..., features]. */
export function expectInput(name: string, tensor: Tensor, features: number): void {
  expectFloatTensor(name, tensor)
  if (tensor.shape.at(-1) !== features) {
    const shape = tensor.shape.join(', ')
    throw new SparkError('ERR_SHAPE', `${name} must have shape [..., ${features}], got [${shape}]`)
  }
}

/** Formats of weights whose codes are numbers of a type of 16 bits. */
const codesIn: Partial<Record<DType, readonly string[]>> = {
  bf16: ['bf16', 'f8_e4m3', 'i8', 'nvfp4'],
  f16: ['f16'],
}

/**
 * What a layer forms its products of: on a GPU, activations of 16 bits and a weight whose codes they hold are multiplied
 * as they are, on tensor cores.
 */
export function computeOf(
  backend: Kernels['backend'],
  weight: StoredWeight,
  ...[x, ...others]: readonly DType[]
): FloatCompute {
  if (backend !== 'cuda' || !others.every(dtype => dtype === x)) return 'f32'
  return isHalf(x) && codesIn[x]?.includes(weight.dtype) ? x : 'f32'
}

/** y = x · Wᵀ + bias, in the dtype of x. */
export function linearWork<D extends DType>(
  backend: Kernels['backend'],
  weight: StoredWeight,
  bias: Float32Array | undefined,
  x: Tensor<D>,
): Work<Tensor<D>> {
  expectInput('x', x, weight.cols)
  const tokens = x.size / weight.cols
  const y = new Float32Array(tokens * weight.rows)
  return {
    steps: [
      ['linear', { weight, tokens, x: ownFloats(x), bias, compute: computeOf(backend, weight, x.dtype), y }],
    ],
    finish: () => output(x, weight.rows, y),
  }
}

/** The output of a layer for the input `x`. */
export function output<D extends DType>(x: Tensor<D>, features: number, y: Float32Array): Tensor<D> {
  return Tensor.from(y, { shape: [...x.shape.slice(0, -1), features] }).to(x.dtype)
}

/** The forward pass; `keep` gets the activations of a training pass, once they are computed. */
export function forwardWork<D extends DType>(
  backend: Kernels['backend'],
  weight: StoredWeight,
  bias: Float32Array | undefined,
  snapshot: Snapshot,
  input: Tensor<D>,
  training: {
    pass: number
    mask: Tensor | undefined
    /** A mask that a step before this one fills, where none is given. */
    drawn: Float32Array | undefined
    keep(saved: Activations): void
  } | null,
): Work<Tensor<D>> {
  expectInput('x', input, weight.cols)
  const { rank, scale, a, b, gain } = snapshot
  const { rows, cols } = weight
  const tokens = input.size / cols
  const x = ownFloats(input)
  const mask = training?.mask ? maskFor(training.mask, input) : training?.drawn
  const xa = new Float32Array(tokens * rank)
  const z = training ? new Float32Array(tokens * rows) : undefined
  const y = new Float32Array(tokens * rows)
  const compute = computeOf(backend, weight, input.dtype)
  return {
    steps: [['doraForward', { weight, rank, scale, a, b, tokens, x, gain, bias, mask, xa, z, y, compute }]],
    finish() {
      if (training && z)
        training.keep({
          pass: training.pass,
          shape: input.shape,
          dtype: input.dtype,
          x,
          mask,
          xa,
          z,
          snapshot,
        })
      return output(input, rows, y)
    },
  }
}

/** The backward pass that belongs to `saved`. */
export function backwardWork(
  backend: Kernels['backend'],
  weight: StoredWeight,
  saved: Activations,
  dy: Tensor,
  wanted: { exactNorm: boolean; input: boolean; bias: boolean },
): Work<DoRAGradients> {
  const { shape, dtype, x, mask, xa, z, snapshot } = saved
  const { rows, cols } = weight
  const { rank, magnitude } = snapshot
  expectFloatTensor('dy', dy)
  expectShape('dy', dy.shape, [...shape.slice(0, -1), rows])
  const dx = wanted.input ? new Float32Array(x.length) : undefined
  const dbias = wanted.bias ? new Float32Array(rows) : undefined
  const da = new Float32Array(rank * cols)
  const db = new Float32Array(rows * rank)
  const dmagnitude = new Float32Array(magnitude.length)
  const tokens = x.length / cols
  const outputs = { dx, da, db, dmagnitude, dbias }
  const { exactNorm } = wanted
  const compute = computeOf(backend, weight, dtype, dy.dtype)
  return {
    steps: [
      [
        'doraBackward',
        { ...snapshot, weight, tokens, exactNorm, x, mask, dy: ownFloats(dy), xa, z, ...outputs, compute },
      ],
    ],
    finish: () => ({
      ...(dx && { x: Tensor.from(dx, { shape }).to(dtype) }),
      a: Tensor.from(da, { shape: [rank, cols] }),
      b: Tensor.from(db, { shape: [rows, rank] }),
      magnitude: Tensor.from(dmagnitude),
      ...(dbias && { bias: Tensor.from(dbias) }),
    }),
  }
}
