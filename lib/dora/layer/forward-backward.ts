// forward-backward.ts: forward and backward passes of a DoRA layer as kernel calls.
import { argumentError, expectAttached, expectOneOf, expectShape } from '../../core/checks.js'
import type { DType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Compute, FloatCompute, Kernels, LowRank, Weight } from '../../kernels/kernels.js'
import { productCompute } from '../../kernels/precision-policy.js'
import { Tensor } from '../../memory/tensor.js'
import type { KernelCall, KernelCalls } from './kernel-calls.js'
import type { DoRAGradients } from './layer-types.js'

/** A copy of the adapter's parameters with the row norms and gains computed from them. */
export interface Snapshot extends LowRank {
  readonly magnitude: Float32Array
  readonly norm: Float32Array
  readonly gain: Float32Array
}

/**
 * A snapshot of the parameters A, B and magnitude: `last` if they equal it byte for byte, else a copy and the call that
 * computes its gain. Passes work on the snapshot, so a gain is never stale and a backward pass matches its forward pass.
 */
export function takeSnapshot(
  parameters: readonly Float32Array[],
  last: Snapshot | null,
  frozen: { weight: Weight; weightNorm2: Float32Array; rank: number; scale: number },
): { snapshot: Snapshot; calls: readonly KernelCall[] } {
  const [a, b, magnitude] = parameters as [Float32Array, Float32Array, Float32Array]
  if (last && sameBytes(a, last.a) && sameBytes(b, last.b) && sameBytes(magnitude, last.magnitude)) {
    return { snapshot: last, calls: [] }
  }
  const { rank, scale, weight, weightNorm2 } = frozen
  const copies = { a: a.slice(), b: b.slice(), magnitude: magnitude.slice() }
  const norm = new Float32Array(weight.rows)
  const gain = new Float32Array(weight.rows)
  const snapshot = { rank, scale, ...copies, norm, gain }
  return { snapshot, calls: [['doraNorm', { ...snapshot, weight, weightNorm2 }]] }
}

function sameBytes(a: Float32Array, b: Float32Array): boolean {
  const bytes = (array: Float32Array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
  return Buffer.compare(bytes(a), bytes(b)) === 0
}

/** Values that a training pass keeps for the backward pass. */
export interface Activations {
  /** Number of the forward pass, counted per layer. */
  readonly pass: number
  /** Shape of the input. */
  readonly shape: readonly number[]
  /** Element type of the input. */
  readonly dtype: DType
  readonly x: Float32Array
  readonly mask: Float32Array | undefined
  readonly xa: Float32Array
  readonly z: Float32Array
  readonly snapshot: Snapshot
}

/**
 * Checks a tensor argument and copies its elements: see {@link ownFloats}.
 * @throws SparkError ERR_ARGUMENT, ERR_DTYPE or ERR_SHAPE
 */
export function floats(name: string, tensor: Tensor, shape: readonly number[]): Float32Array {
  expectFloatTensor(name, tensor)
  expectShape(name, tensor.shape, shape)
  return ownFloats(tensor)
}

/**
 * A copy of the elements in f32: the caller may write to its tensor, or transfer its memory to another thread, while a
 * kernel reads the copy.
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

/** The precision of a layer's products, which round neither activations of these types nor the weight. */
export function computeOf(
  backend: Kernels['backend'],
  { format }: Pick<Weight, 'format'>,
  ...activations: readonly DType[]
): FloatCompute {
  const operands = [...activations.map(exactIn => ({ exactIn })), { format }]
  return productCompute({ backend, mode: 'fp32', multipliesBf16: false }, { kind: 'exact', operands })
}

/** Where a layer is computed, and what the rows of inference passes are rounded to. */
export interface LayerTarget {
  readonly backend: Kernels['backend']
  readonly activations: 'f32' | 'nvfp4'
}

/** The precision of an inference pass. */
function inferenceCompute({ backend, activations }: LayerTarget, weight: Weight, dtype: DType): Compute {
  const rounds = activations === 'nvfp4' && weight.format === 'nvfp4'
  return rounds ? 'nvfp4' : computeOf(backend, weight, dtype)
}

/** y = x · Wᵀ + bias, in the dtype of x. */
export function linearCalls<D extends DType>(
  target: LayerTarget,
  weight: Weight,
  bias: Float32Array | undefined,
  x: Tensor<D>,
): KernelCalls<Tensor<D>> {
  expectInput('x', x, weight.cols)
  const tokens = x.size / weight.cols
  const y = new Float32Array(tokens * weight.rows)
  const compute = inferenceCompute(target, weight, x.dtype)
  return {
    calls: [['linear', { weight, tokens, x: ownFloats(x), bias, compute, y }]],
    result: () => output(x, weight.rows, y),
  }
}

/** Wraps an output in the shape and dtype that belong to the input `x`. */
export function output<D extends DType>(x: Tensor<D>, features: number, y: Float32Array): Tensor<D> {
  return Tensor.from(y, { shape: [...x.shape.slice(0, -1), features] }).to(x.dtype)
}

/** The forward pass. A training pass hands its activations to `keep` when they are computed. */
export function forwardCalls<D extends DType>(
  target: LayerTarget,
  weight: Weight,
  bias: Float32Array | undefined,
  snapshot: Snapshot,
  input: Tensor<D>,
  training: {
    pass: number
    mask: Tensor | undefined
    /** Mask filled by an earlier call, unless `mask` is given. */
    drawn: Float32Array | undefined
    keep(saved: Activations): void
  } | null,
): KernelCalls<Tensor<D>> {
  expectInput('x', input, weight.cols)
  const { rank, scale, a, b, gain } = snapshot
  const { rows, cols } = weight
  const tokens = input.size / cols
  const x = ownFloats(input)
  const mask = training?.mask ? maskFor(training.mask, input) : training?.drawn
  const xa = new Float32Array(tokens * rank)
  const z = training ? new Float32Array(tokens * rows) : undefined
  const y = new Float32Array(tokens * rows)
  const compute = training
    ? computeOf(target.backend, weight, input.dtype)
    : inferenceCompute(target, weight, input.dtype)
  return {
    calls: [['doraForward', { weight, rank, scale, a, b, tokens, x, gain, bias, mask, xa, z, y, compute }]],
    result() {
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
export function backwardCalls(
  backend: Kernels['backend'],
  weight: Weight,
  saved: Activations,
  dy: Tensor,
  wanted: { exactNorm: boolean; input: boolean; bias: boolean },
): KernelCalls<DoRAGradients> {
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
    calls: [
      [
        'doraBackward',
        { ...snapshot, weight, tokens, exactNorm, x, mask, dy: ownFloats(dy), xa, z, ...outputs, compute },
      ],
    ],
    result: () => ({
      ...(dx && { x: Tensor.from(dx, { shape }).to(dtype) }),
      a: Tensor.from(da, { shape: [rank, cols] }),
      b: Tensor.from(db, { shape: [rows, rank] }),
      magnitude: Tensor.from(dmagnitude),
      ...(dbias && { bias: Tensor.from(dbias) }),
    }),
  }
}
