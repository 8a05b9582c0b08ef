// attention.ts: attention in plain TypeScript, as its formula is written. Sums are taken in double.
import { argumentError, expectInteger, expectNumber } from '../../core/checks.js'
import type { Paced } from '../../core/paced.js'
import type { AttentionInputs, HeadStrides, KernelArgs } from '../kernels.js'
import { expectActivationDType, expectProductCompute } from './compute.js'
import { floatWriter } from './elements.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'

const offsetOf = ([batch, head, row]: HeadStrides, b: number, h: number, r: number): number =>
  b * batch + h * head + r * row

/** Calls body for each query: its batch, head, row, head of the keys, and how many keys it sees. */
function* forEachQuery(
  args: AttentionInputs,
  body: (b: number, h: number, t: number, kvHead: number, seen: number) => void,
): Paced<void> {
  const { batch, heads, kvHeads, queries, keys, causal, causalOffset = 0 } = args
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      for (let t = 0; t < queries; t++) {
        const seen = causal ? Math.max(0, Math.min(keys, t + causalOffset + 1)) : keys
        body(b, h, t, Math.floor((h * kvHeads) / heads), seen)
        yield
      }
    }
  }
}

/**
 * w[s] for the keys that a query sees, and its derivative by q·k. w is rounded as q is: beside a mask of -1e9 nothing is
 * left of a score.
 */
function scores(args: AttentionInputs, b: number, h: number, t: number, kvHead: number, seen: number) {
  const { depth, scale, softcap = 0, q, k, mask, qStrides, kStrides, maskStrides } = args
  const from = offsetOf(qStrides, b, h, t)
  const slopes = new Float64Array(seen)
  const round = q instanceof Float32Array ? Math.fround : Number
  const w = slopes.map((_, s) => {
    const with_ = offsetOf(kStrides, b, kvHead, s)
    let product = 0
    for (let d = 0; d < depth; d++) product += q[from + d]! * k[with_ + d]!
    const capped = softcap ? Math.tanh((scale * product) / softcap) : 0
    slopes[s] = scale * (1 - capped * capped)
    const score = softcap ? softcap * capped : scale * product
    return round(score + (mask ? mask[offsetOf(maskStrides!, b, h, t) + s]! : 0))
  })
  return { w, slopes }
}

/** y = softmax(scale · q·kᵀ + mask) · v */
function* attention(args: KernelArgs['attention']): Paced<void> {
  const { heads, queries, valueDepth, v, vStrides, y, yDtype = 'f32', yStrides, logSum } = args
  const write = floatWriter(yDtype, y)
  yield* forEachQuery(args, (b, h, t, kvHead, seen) => {
    const { w } = scores(args, b, h, t, kvHead, seen)
    const largest = w.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY)
    const weights = w.map(score => (largest === Number.NEGATIVE_INFINITY ? 0 : Math.exp(score - largest)))
    const total = weights.reduce((a, b) => a + b, 0)
    const to = offsetOf(yStrides, b, h, t)
    for (let e = 0; e < valueDepth; e++) {
      let sum = 0
      for (let s = 0; s < seen; s++) sum += weights[s]! * v[offsetOf(vStrides, b, kvHead, s) + e]!
      write(to + e, total === 0 ? 0 : sum / total)
    }
    if (logSum) logSum[(b * heads + h) * queries + t] = largest + Math.log(total)
  })
}

/** dq, dk and dv of attention. */
function* attentionBackward(args: KernelArgs['attentionBackward']): Paced<void> {
  const { heads, queries, depth, valueDepth, q, k, v, qStrides, kStrides, vStrides, yStrides } = args
  const { y, logSum, dy, dq, dk, dv } = args
  const sums = { q: new Float64Array(q.length), k: new Float64Array(k.length), v: new Float64Array(v.length) }
  yield* forEachQuery(args, (b, h, t, kvHead, seen) => {
    const { w, slopes } = scores(args, b, h, t, kvHead, seen)
    const log = logSum[(b * heads + h) * queries + t]!
    const [atQ, atY] = [offsetOf(qStrides, b, h, t), offsetOf(yStrides, b, h, t)]
    let product = 0
    for (let e = 0; e < valueDepth; e++) product += dy[atY + e]! * y[atY + e]!
    for (let s = 0; s < seen; s++) {
      const weight = log === Number.NEGATIVE_INFINITY ? 0 : Math.exp(w[s]! - log)
      const [atK, atV] = [offsetOf(kStrides, b, kvHead, s), offsetOf(vStrides, b, kvHead, s)]
      let gradient = 0
      for (let e = 0; e < valueDepth; e++) {
        gradient += dy[atY + e]! * v[atV + e]!
        sums.v[atV + e]! += weight * dy[atY + e]!
      }
      const factor = weight * (gradient - product) * slopes[s]!
      for (let d = 0; d < depth; d++) {
        sums.q[atQ + d]! += factor * k[atK + d]!
        sums.k[atK + d]! += factor * q[atQ + d]!
      }
    }
  })
  copyRows(dq, sums.q, qStrides, [args.batch, heads, queries, depth])
  copyRows(dk, sums.k, kStrides, [args.batch, args.kvHeads, args.keys, depth])
  copyRows(dv, sums.v, vStrides, [args.batch, args.kvHeads, args.keys, valueDepth])
}

/** Writes rows where they lie and leaves what is between them. */
function copyRows(
  to: Float32Array | undefined,
  from: Float64Array,
  strides: HeadStrides,
  [batch, heads, rows, width]: readonly [number, number, number, number],
): void {
  if (!to) return
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      for (let r = 0; r < rows; r++) {
        const at = offsetOf(strides, b, h, r)
        to.set(from.subarray(at, at + width), at)
      }
    }
  }
}

const sizeNames = ['batch', 'heads', 'queries', 'keys', 'depth', 'valueDepth'] as const

function expectInputs({ heads, kvHeads, scale, compute }: AttentionInputs): void {
  expectProductCompute(compute)
  expectInteger('kvHeads', kvHeads, 1)
  expectNumber('scale', scale)
  expectFits(heads % kvHeads === 0, `heads is ${heads}, not a multiple of kvHeads, ${kvHeads}`)
}

/** Elements up to the last one of rows of `width`. */
function extent(name: string, strides: HeadStrides, sizes: readonly number[], width: number): number {
  if (!Array.isArray(strides) || strides.length !== 3) {
    throw argumentError(name, 'an array of three strides', strides)
  }
  for (const stride of strides) expectInteger(name, stride, 0)
  if (width === 0 || sizes.includes(0)) return 0
  return strides.reduce((sum, stride, axis) => sum + (sizes[axis]! - 1) * stride, width)
}

function inputArrays(args: AttentionInputs) {
  const { batch, heads, kvHeads, queries, keys, depth, valueDepth, mask, maskStrides } = args
  return {
    q: extent('qStrides', args.qStrides, [batch, heads, queries], depth),
    k: extent('kStrides', args.kStrides, [batch, kvHeads, keys], depth),
    v: extent('vStrides', args.vStrides, [batch, kvHeads, keys], valueDepth),
    y: extent('yStrides', args.yStrides, [batch, heads, queries], valueDepth),
    mask: mask && extent('maskStrides', maskStrides!, [batch, heads, queries], keys),
  }
}

/** Contracts of attention. */
export const attentionRows: KernelRows<'attention' | 'attentionBackward'> = {
  attention: {
    kernel: attention,
    sizes: sizeNames,
    check(args) {
      expectInputs(args)
      expectActivationDType('yDtype', args.yDtype)
    },
    operands(args) {
      const { batch, heads, queries, valueDepth, yDtype = 'f32' } = args
      const inputs = inputArrays(args)
      const isDense = inputs.y === batch * heads * queries * valueDepth
      expectFits(yDtype === 'f32' || isDense, `yStrides leave gaps, which y in ${yDtype} has not`)
      return { ...inputs, y: elements(yDtype, inputs.y), logSum: optional(batch * heads * queries) }
    },
  },
  attentionBackward: {
    kernel: attentionBackward,
    sizes: sizeNames,
    check: expectInputs,
    operands(args) {
      const inputs = inputArrays(args)
      const { q, k, v, y } = inputs
      const logSum = args.batch * args.heads * args.queries
      return { ...inputs, logSum, dy: y, dq: optional(q), dk: optional(k), dv: optional(v) }
    },
  },
}
