// verify-cases.ts: one call of every operation on odd sizes, for `dgx-spark verify` and the kernel tests.
import type { DType, DTypeArray } from '../core/dtype.js'
import type { KernelArgs, KernelOp, Kernels, StoredWeight } from './kernels.js'

/** One operation with seeded inputs and empty outputs. */
export interface VerifyCase<Op extends KernelOp = KernelOp> {
  readonly op: Op
  /** What is special about it: formats, sizes. */
  readonly variant: string
  /** Arguments with fresh outputs; the same inputs at every call. */
  readonly args: () => KernelArgs[Op]
  /** Names of the outputs among the arguments. */
  readonly outputs: readonly string[]
  /** Allowed max|a - b| / max|b|; 0 means bit-equal. */
  readonly tolerance: number
}

const tokens = 5
const rows = 33
const cols = 48 // nvfp4 needs a multiple of 16
const rank = 3

/** f32 sums in another order: a few ulp times the square root of the length. */
const sumTolerance = 5e-6

/** Seeded values in [-1, 1). */
function values(count: number, seed: number): Float32Array {
  let state = seed * 2654435761 || 1
  return Float32Array.from({ length: count }, () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) / 2 ** 31 - 1
  })
}

const f32 = (count: number): Float32Array => new Float32Array(count)

function verifyCase<Op extends KernelOp>(
  op: Op,
  variant: string,
  outputs: readonly (keyof KernelArgs[Op] & string)[],
  tolerance: number,
  args: () => KernelArgs[Op],
): VerifyCase {
  return { op, variant, outputs, tolerance, args } as unknown as VerifyCase
}

/** The weight of the cases in each storage format, made by `reference`. */
export function verifyWeights(reference: Kernels): StoredWeight[] {
  const data = values(rows * cols, 11)
  const cast = (dtype: 'f16' | 'bf16'): StoredWeight => {
    const dst = new Uint16Array(data.length)
    const args = {
      srcDtype: 'f32' as const,
      dstDtype: dtype,
      count: data.length,
      saturate: true,
      src: data,
      dst,
    }
    reference.runSync('cast', args)
    return { dtype, rows, cols, data: dst }
  }
  const codes = new Uint8Array(rows * cols)
  const rowScale = f32(rows)
  reference.runSync('fp8Quantize', {
    srcDtype: 'f32',
    rows,
    cols,
    blockRows: 1,
    blockCols: cols,
    src: data,
    codes,
    scale: rowScale,
  })
  const packed = new Uint8Array((rows * cols) / 2)
  const blockScale = new Uint8Array((rows * cols) / 16)
  const tensorScale = Math.fround(1 / 2688)
  reference.runSync('nvfp4Quantize', {
    srcDtype: 'f32',
    rows,
    cols,
    tensorScale,
    src: data,
    packed,
    blockScale,
  })
  return [
    { dtype: 'f32', rows, cols, data },
    cast('f16'),
    cast('bf16'),
    { dtype: 'f8_e4m3', rows, cols, data: codes, rowScale },
    { dtype: 'nvfp4', rows, cols, data: packed, blockScale, tensorScale },
  ]
}

/** Every operation in every storage format. */
export function verifyCases(reference: Kernels): VerifyCase[] {
  const weights = verifyWeights(reference)
  return [
    ...castCases(reference),
    ...quantizerCases(weights),
    ...weights.flatMap(weight => [...linearCases(weight), ...doraCases(reference, weight)]),
    ...trainingCases(),
  ]
}

function castCases(reference: Kernels): VerifyCase[] {
  const formats: DType[] = ['f32', 'f16', 'bf16', 'f8_e4m3', 'f8_e5m2']
  const count = 1031
  const wide = values(count, 1).map((value, i) => value * 2 ** ((i % 61) - 30))
  const encoded = (dtype: DType): DTypeArray => {
    const dst = emptyArray(dtype, count)
    reference.runSync('cast', { srcDtype: 'f32', dstDtype: dtype, count, saturate: true, src: wide, dst })
    return dst
  }
  return formats.flatMap(from => {
    const src = encoded(from)
    return formats.map(to =>
      verifyCase('cast', `${from} to ${to}`, ['dst'], 0, () => ({
        srcDtype: from,
        dstDtype: to,
        count,
        saturate: true,
        src,
        dst: emptyArray(to, count),
      })),
    )
  })
}

function emptyArray(dtype: DType, count: number): DTypeArray {
  if (dtype === 'f32') return new Float32Array(count)
  return dtype === 'f16' || dtype === 'bf16' ? new Uint16Array(count) : new Uint8Array(count)
}

function quantizerCases(weights: readonly StoredWeight[]): VerifyCase[] {
  const src = values(rows * cols, 2)
  const nvfp4 = weights.find(weight => weight.dtype === 'nvfp4')!
  const shape = `${rows}x${cols}`
  return [
    verifyCase('amax', 'f32', ['out'], 0, () => ({ dtype: 'f32', count: src.length, src, out: f32(1) })),
    ...(['modelopt', 'te', 'mse'] as const).map(recipe =>
      verifyCase('nvfp4Quantize', `${shape} ${recipe}`, ['packed', 'blockScale'], 0, () => ({
        srcDtype: 'f32',
        rows,
        cols,
        recipe,
        tensorScale: Math.fround(1 / 2688),
        encodeScale: 2688,
        src,
        packed: new Uint8Array(src.length / 2),
        blockScale: new Uint8Array(src.length / 16),
      })),
    ),
    verifyCase('nvfp4Dequantize', shape, ['dst'], 0, () => ({
      rows,
      cols,
      tensorScale: nvfp4.tensorScale!,
      packed: nvfp4.data as Uint8Array,
      blockScale: nvfp4.blockScale!,
      dst: f32(rows * cols),
    })),
    ...[
      [1, cols],
      [16, 16],
      [rows, cols],
    ].map(([blockRows, blockCols]) =>
      verifyCase('fp8Quantize', `${shape} by ${blockRows}x${blockCols}`, ['codes', 'scale'], 0, () => ({
        srcDtype: 'f32',
        rows,
        cols,
        blockRows: blockRows!,
        blockCols: blockCols!,
        src,
        codes: new Uint8Array(src.length),
        scale: f32(Math.ceil(rows / blockRows!) * Math.ceil(cols / blockCols!)),
      })),
    ),
  ]
}

function linearCases(weight: StoredWeight): VerifyCase[] {
  const x = values(tokens * cols, 3)
  const dy = values(tokens * rows, 4)
  const bias = values(rows, 5)
  return [
    verifyCase('linear', weight.dtype, ['y'], sumTolerance, () => ({
      weight,
      tokens,
      x,
      bias,
      y: f32(tokens * rows),
    })),
    verifyCase('linearBackward', weight.dtype, ['dx', 'dweight', 'dbias'], sumTolerance, () => ({
      weight,
      tokens,
      x,
      dy,
      dx: f32(tokens * cols),
      dweight: f32(rows * cols),
      dbias: f32(rows),
    })),
    verifyCase('weightNorm2', weight.dtype, ['out'], sumTolerance, () => ({ weight, out: f32(rows) })),
  ]
}

function doraCases(reference: Kernels, weight: StoredWeight): VerifyCase[] {
  const adapter = { weight, rank, scale: 0.5, a: values(rank * cols, 6), b: values(rows * rank, 7) }
  const weightNorm2 = f32(rows)
  reference.runSync('weightNorm2', { weight, out: weightNorm2 })
  const magnitude = weightNorm2.map(square => 1.25 * Math.sqrt(square))
  const norm = f32(rows)
  const gain = f32(rows)
  reference.runSync('doraNorm', { ...adapter, weightNorm2, magnitude, norm, gain })
  const x = values(tokens * cols, 8)
  const bias = values(rows, 9)
  const mask = values(tokens * cols, 10).map(value => (value > 0 ? 2 : 0))
  const variant = (text: string): string => [weight.dtype, text].filter(Boolean).join(', ')

  const forward = (masked: Float32Array | undefined): KernelArgs['doraForward'] => ({
    ...{ ...adapter, tokens, x, gain, bias, mask: masked },
    ...{ xa: f32(tokens * rank), z: f32(tokens * rows), y: f32(tokens * rows) },
  })
  const backward = (masked: Float32Array | undefined, exactNorm: boolean): KernelArgs['doraBackward'] => {
    const saved = forward(masked)
    reference.runSync('doraForward', saved)
    return {
      ...{ ...adapter, tokens, exactNorm, x, mask: masked, dy: values(tokens * rows, 12) },
      ...{ xa: saved.xa, z: saved.z!, norm, gain, magnitude },
      ...{ dx: f32(tokens * cols), da: f32(rank * cols), db: f32(rows * rank) },
      ...{ dmagnitude: f32(rows), dbias: f32(rows) },
    }
  }
  const gradients = ['dx', 'da', 'db', 'dmagnitude', 'dbias'] as const
  const merged = values(rows * cols, 13)
  return [
    verifyCase('doraNorm', variant(''), ['norm', 'gain'], sumTolerance, () => ({
      ...{ ...adapter, weightNorm2, magnitude },
      ...{ norm: f32(rows), gain: f32(rows) },
    })),
    verifyCase('doraForward', variant(''), ['xa', 'z', 'y'], sumTolerance, () => forward(undefined)),
    verifyCase('doraForward', variant('dropout'), ['xa', 'z', 'y'], sumTolerance, () => forward(mask)),
    verifyCase('doraBackward', variant('detached'), gradients, sumTolerance, () =>
      backward(undefined, false),
    ),
    verifyCase('doraBackward', variant('exact'), gradients, sumTolerance, () => backward(undefined, true)),
    verifyCase('doraBackward', variant('dropout'), gradients, sumTolerance, () => backward(mask, false)),
    verifyCase('doraMerge', variant(''), ['merged'], sumTolerance, () => ({
      ...{ ...adapter, gain },
      merged: f32(rows * cols),
    })),
    verifyCase('doraUnmerge', variant(''), ['restored'], sumTolerance, () => ({
      ...{ rows, cols, rank, scale: 0.5, a: adapter.a, b: adapter.b, merged, gain },
      restored: f32(rows * cols),
    })),
  ]
}

function trainingCases(): VerifyCase[] {
  const classes = 11
  const count = 1031
  return [
    verifyCase('softmaxCrossEntropy', `${tokens}x${classes}`, ['loss', 'dlogits'], sumTolerance, () => ({
      tokens,
      classes,
      logits: values(tokens * classes, 14).map(value => 20 * value),
      labels: Int32Array.from({ length: tokens }, (_, t) => (3 * t) % classes),
      loss: f32(1),
      dlogits: f32(tokens * classes),
    })),
    verifyCase('adamw', 'step 3', ['param', 'm', 'v'], sumTolerance, () => ({
      ...{ count, step: 3, lr: 1e-2, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0.01 },
      ...{ grad: values(count, 15), param: values(count, 16), m: values(count, 17) },
      v: values(count, 18).map(Math.abs),
    })),
  ]
}
