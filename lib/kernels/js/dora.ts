// dora.ts: the DoRA layer in plain TypeScript, V = W + scale · B·A one row at a time. Formulas are in
// native/backend/dora_args.h.
import { argumentError, expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Paced } from '../../core/paced.js'
import type { DoraKernelArgs, KernelArgs, LowRank, Weight } from '../kernels.js'
import { expectCompute, expectFloatCompute } from './compute.js'
import { addScaled, dot, linear, roundedToNvfp4 } from './linear.js'
import { expectArrays } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'
import { rowReader } from './weight-rows.js'

/** Below this a row norm counts as this, so that a dead row has a finite gain. */
const minNorm = 1e-12

/** out[r] = Σ_c W[r, c]² */
function weightNorm2({ weight, out }: KernelArgs['weightNorm2']): void {
  const row = rowReader(weight)
  for (let o = 0; o < weight.rows; o++) {
    const w = row(o)
    out[o] = dot(w, 0, w, 0, weight.cols)
  }
}

/** row[i] = factor · (B·A)[o, i] + start[i] */
function addLowRank({ rank, a, b }: LowRank, factor: number, o: number, row: Float64Array): void {
  const cols = row.length
  for (let r = 0; r < rank; r++) addScaled(factor * b[o * rank + r]!, a, r * cols, row, 0, cols)
}

/**
 * norm[o] = ‖V[o, :]‖, gain[o] = magnitude[o] / max(norm[o], 1e-12). The factored form of the native kernels would
 * save nothing here, where a row is decoded anyway, so every row is summed densely and none can cancel.
 */
function doraNorm(args: KernelArgs['doraNorm']): void {
  const { weight, magnitude, norm, gain } = args
  const row = rowReader(weight)
  const v = new Float64Array(weight.cols)
  for (let o = 0; o < weight.rows; o++) {
    v.set(row(o))
    addLowRank(args, args.scale, o, v)
    let sum = 0
    for (const value of v) sum += value * value
    norm[o] = Math.sqrt(sum)
    gain[o] = magnitude[o]! / Math.max(norm[o]!, minNorm)
  }
}

/** mask ∘ x, or x without a mask. */
function applyMask(x: Float32Array, mask: Float32Array | undefined, count: number): Float32Array {
  if (!mask) return x
  return x.slice(0, count).map((value, i) => value * mask[i]!)
}

/** y = x·Wᵀ + bias + (gain − 1) ∘ (d·Wᵀ) + gain ∘ scale · (d·Aᵀ)·Bᵀ with d = mask ∘ x */
function* doraForward(args: KernelArgs['doraForward']): Paced<void> {
  const { weight, tokens, x, gain, bias, mask, xa, z, y, rank, scale, a, b } = args
  const { rows, cols } = weight
  const d = applyMask(x, mask, tokens * cols)
  const multiplied = args.compute === 'nvfp4' ? roundedToNvfp4(x, tokens, cols) : d
  for (let t = 0; t < tokens; t++) {
    for (let r = 0; r < rank; r++) xa[t * rank + r] = dot(d, t * cols, a, r * cols, cols)
  }
  const row = rowReader(weight)
  for (let o = 0; o < rows; o++) {
    yield
    const w = row(o)
    const offset = bias ? bias[o]! : 0
    for (let t = 0; t < tokens; t++) {
      const dropped = dot(multiplied, t * cols, w, 0, cols)
      const pre = dropped + scale * dot(xa, t * rank, b, o * rank, rank)
      const base = mask ? dot(x, t * cols, w, 0, cols) - dropped : 0
      if (z) z[t * rows + o] = pre
      y[t * rows + o] = base + gain[o]! * pre + offset
    }
  }
}

/** Row t of y is that of doraForward with adapters[index[t]], or of linear where that is -1. */
function* doraMixed(args: KernelArgs['doraMixed']): Paced<void> {
  const { weight, tokens, x, adapters, index, bias, y } = args
  const { rows, cols } = weight
  for (let i = -1; i < adapters.length; i++) {
    const own = Array.from({ length: tokens }, (_, t) => t).filter(t => index[t] === i)
    if (own.length === 0) continue
    const inputs = new Float32Array(own.length * cols)
    for (const [at, t] of own.entries()) inputs.set(x.subarray(t * cols, (t + 1) * cols), at * cols)
    const outputs = new Float32Array(own.length * rows)
    const shared = { weight, tokens: own.length, x: inputs, bias, y: outputs }
    const adapter = adapters[i]
    if (adapter)
      yield* doraForward({ ...shared, ...adapter, xa: new Float32Array(own.length * adapter.rank) })
    else yield* linear(shared)
    for (const [at, t] of own.entries()) y.set(outputs.subarray(at * rows, (at + 1) * rows), t * rows)
  }
}

/** Gradients of a loss given dy; see `DoraBackwardArgs` in native/backend/dora_args.h. */
function doraBackward(args: KernelArgs['doraBackward']): void {
  const { weight, tokens, x, mask, dy, xa, z, norm, gain, magnitude, rank, scale, a, b } = args
  const { rows, cols } = weight
  const d = applyMask(x, mask, tokens * cols)
  const row = rowReader(weight)
  const q = new Float64Array(tokens * rank)
  const dropped = new Float64Array(args.dx ? tokens * cols : 0)
  const base = new Float64Array(args.dx && mask ? tokens * cols : 0)
  const da = new Float64Array(rank * cols)
  const db = new Float64Array(rows * rank)
  for (let o = 0; o < rows; o++) {
    const w = row(o)
    let magnitudeSum = 0
    let biasSum = 0
    for (let t = 0; t < tokens; t++) {
      const gradient = dy[t * rows + o]!
      const dz = gradient * gain[o]!
      magnitudeSum += gradient * z[t * rows + o]!
      biasSum += gradient
      addScaled(dz, b, o * rank, q, t * rank, rank)
      addScaled(scale * dz, xa, t * rank, db, o * rank, rank)
      if (mask && args.dx) addScaled(gradient, w, 0, base, t * cols, cols)
      if (args.dx) addScaled(mask ? dz - gradient : dz, w, 0, dropped, t * cols, cols)
    }
    args.dmagnitude[o] = magnitudeSum / Math.max(norm[o]!, minNorm)
    if (args.dbias) args.dbias[o] = biasSum
  }
  for (let t = 0; t < tokens; t++) {
    for (let r = 0; r < rank; r++) {
      const factor = scale * q[t * rank + r]!
      addScaled(factor, d, t * cols, da, r * cols, cols)
      if (args.dx) addScaled(factor, a, r * cols, dropped, t * cols, cols)
    }
  }
  if (args.exactNorm) subtractNormGradient(weight, args, norm, magnitude, args.dmagnitude, da, db)
  args.dx?.set(mask ? base.map((value, i) => value + mask[i]! * dropped[i]!) : dropped)
  args.da.set(da)
  args.db.set(db)
}

/** db −= s · c ∘ (V·Aᵀ), da −= s · (c ∘ B)ᵀ·V with c = magnitude · dmagnitude / norm² */
function subtractNormGradient(
  weight: Weight,
  lowRank: LowRank,
  norm: Float32Array,
  magnitude: Float32Array,
  dmagnitude: Float32Array,
  da: Float64Array,
  db: Float64Array,
): void {
  const { rank, scale, a, b } = lowRank
  const { rows, cols } = weight
  const row = rowReader(weight)
  const v = new Float64Array(cols)
  for (let o = 0; o < rows; o++) {
    v.set(row(o))
    addLowRank(lowRank, scale, o, v)
    const c = (magnitude[o]! * dmagnitude[o]!) / Math.max(norm[o]!, minNorm) ** 2
    for (let r = 0; r < rank; r++) {
      const factor = scale * c * b[o * rank + r]!
      let va = 0
      for (let i = 0; i < cols; i++) {
        va += v[i]! * a[r * cols + i]!
        da[r * cols + i]! -= factor * v[i]!
      }
      db[o * rank + r]! -= scale * c * va
    }
  }
}

/** merged[o, i] = gain[o] · (W[o, i] + scale · (B·A)[o, i]) */
function doraMerge(args: KernelArgs['doraMerge']): void {
  const { weight, gain, merged } = args
  const row = rowReader(weight)
  const v = new Float64Array(weight.cols)
  for (let o = 0; o < weight.rows; o++) {
    v.set(row(o))
    addLowRank(args, args.scale, o, v)
    for (let i = 0; i < weight.cols; i++) merged[o * weight.cols + i] = gain[o]! * v[i]!
  }
}

/** Gradients of {@link doraMerge}; see `DoraMergeBackwardArgs` in native/backend/dora_args.h. */
function doraMergeBackward(args: KernelArgs['doraMergeBackward']): void {
  const { weight, exactNorm, dmerged, norm, gain, dv, dmagnitude, rank, scale, a, b } = args
  const { rows, cols } = weight
  const row = rowReader(weight)
  const v = new Float64Array(cols)
  const da = new Float64Array(rank * cols)
  for (let o = 0; o < rows; o++) {
    v.set(row(o))
    addLowRank(args, args.scale, o, v)
    const length = Math.max(norm[o]!, minNorm)
    let sum = 0
    for (let i = 0; i < cols; i++) sum += dmerged[o * cols + i]! * v[i]!
    dmagnitude[o] = sum / length
    const radial = exactNorm ? sum / length ** 2 : 0
    for (let i = 0; i < cols; i++) v[i] = gain[o]! * (dmerged[o * cols + i]! - radial * v[i]!)
    for (let r = 0; r < rank; r++) {
      let va = 0
      for (let i = 0; i < cols; i++) {
        va += v[i]! * a[r * cols + i]!
        da[r * cols + i]! += scale * b[o * rank + r]! * v[i]!
      }
      args.db[o * rank + r] = scale * va
    }
    dv.set(v, o * cols)
  }
  args.da.set(da)
}

/** restored[o, i] = merged[o, i] / gain[o] − scale · (B·A)[o, i] */
function doraUnmerge(args: KernelArgs['doraUnmerge']): void {
  const { rows, cols, merged, gain, restored } = args
  const w = new Float64Array(cols)
  for (let o = 0; o < rows; o++) {
    for (let i = 0; i < cols; i++) w[i] = merged[o * cols + i]! / gain[o]!
    addLowRank(args, -args.scale, o, w)
    restored.set(w, o * cols)
  }
}

const lowRank = (rank: number, rows: number, cols: number) => ({ a: rank * cols, b: rows * rank })

function expectForward({ compute, weight, mask }: KernelArgs['doraForward']): void {
  expectCompute(compute, weight)
  if (compute !== 'nvfp4' || !mask) return
  throw new SparkError('ERR_UNSUPPORTED', 'compute nvfp4 has no dropout: leave the mask out, or use bf16')
}

const maxMixedAdapters = 64

function expectMixed({ weight: { rows, cols }, tokens, adapters, index }: KernelArgs['doraMixed']): void {
  if (!Array.isArray(adapters)) throw argumentError('adapters', 'an array', adapters)
  if (adapters.length > maxMixedAdapters) {
    throw argumentError('adapters', `at most ${maxMixedAdapters} adapters`, adapters.length)
  }
  for (const [i, adapter] of adapters.entries()) {
    expectInteger(`adapters[${i}].rank`, adapter.rank, 0)
    expectArrays(`adapters[${i}].`, adapter, { ...lowRank(adapter.rank, rows, cols), gain: rows })
  }
  for (let t = 0; t < tokens; t++) {
    if (index[t]! < -1 || index[t]! >= adapters.length) {
      throw new SparkError(
        'ERR_ARGUMENT',
        `index[${t}] is ${index[t]}; there are ${adapters.length} adapters`,
      )
    }
  }
}

/** Contracts of the operations of DoRA layers. */
export const doraRows: KernelRows<keyof DoraKernelArgs> = {
  weightNorm2: {
    kernel: weightNorm2,
    operands: ({ weight: { rows } }) => ({ out: rows }),
  },
  doraNorm: {
    kernel: doraNorm,
    sizes: ['rank'],
    operands: ({ weight: { rows, cols }, rank }) => ({
      ...lowRank(rank, rows, cols),
      weightNorm2: rows,
      magnitude: rows,
      norm: rows,
      gain: rows,
    }),
  },
  doraForward: {
    kernel: doraForward,
    sizes: ['tokens', 'rank'],
    check: expectForward,
    operands: ({ weight: { rows, cols }, rank, tokens }) => ({
      ...lowRank(rank, rows, cols),
      x: tokens * cols,
      gain: rows,
      bias: optional(rows),
      mask: optional(tokens * cols),
      xa: tokens * rank,
      z: optional(tokens * rows),
      y: tokens * rows,
    }),
  },
  doraMixed: {
    kernel: doraMixed,
    sizes: ['tokens'],
    operands: ({ weight: { rows, cols }, tokens }) => ({
      x: tokens * cols,
      index: elements('i32', tokens),
      bias: optional(rows),
      y: tokens * rows,
    }),
    checkElements: expectMixed,
  },
  doraBackward: {
    kernel: doraBackward,
    sizes: ['tokens', 'rank'],
    check: expectFloatCompute,
    operands: ({ weight: { rows, cols }, rank, tokens }) => ({
      ...lowRank(rank, rows, cols),
      x: tokens * cols,
      mask: optional(tokens * cols),
      dy: tokens * rows,
      xa: tokens * rank,
      z: tokens * rows,
      norm: rows,
      gain: rows,
      magnitude: rows,
      dx: optional(tokens * cols),
      da: rank * cols,
      db: rows * rank,
      dmagnitude: rows,
      dbias: optional(rows),
    }),
  },
  doraMerge: {
    kernel: doraMerge,
    sizes: ['rank'],
    operands: ({ weight: { rows, cols }, rank }) => ({
      ...lowRank(rank, rows, cols),
      gain: rows,
      merged: rows * cols,
    }),
  },
  doraMergeBackward: {
    kernel: doraMergeBackward,
    sizes: ['rank'],
    operands: ({ weight: { rows, cols }, rank }) => ({
      ...lowRank(rank, rows, cols),
      dmerged: rows * cols,
      norm: rows,
      gain: rows,
      dv: rows * cols,
      da: rank * cols,
      db: rows * rank,
      dmagnitude: rows,
    }),
  },
  doraUnmerge: {
    kernel: doraUnmerge,
    sizes: ['rows', 'cols', 'rank'],
    operands: ({ rows, cols, rank }) => ({
      ...lowRank(rank, rows, cols),
      merged: rows * cols,
      gain: rows,
      restored: rows * cols,
    }),
  },
}
