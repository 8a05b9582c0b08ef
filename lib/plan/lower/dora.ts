// dora.ts: DoRA layers: the linear one, and the effective weight of the others.

import { numel } from '../../core/shape.js'
import { multiply, type Size } from '../../core/size.js'
import { sparkDomain } from '../../graph/graph.js'
import { roundedCompute } from '../../kernels/precision-policy.js'
import type { Compute } from '../../kernels/weight-args.js'
import type { Weight } from '../../weights/weight.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { computeOf, exactCompute, weightOf } from './matmul.js'
import type { LowerTable } from './table.js'

/** Adapter A, B and scale; inputs `a` and `a + 1` of the node. */
export function lowRankOf(ctx: Lowering, a: number): { rank: Size; scale: number; a: Operand; b: Operand } {
  return { rank: ctx.shape(a)[0]!, scale: ctx.number('scale'), a: ctx.read(a), b: ctx.read(a + 1) }
}

/** Adds norm and gain of the weight that is input `w`, followed by A, B and magnitude. */
export function addNorm(ctx: Lowering, w: number, norm: Operand, gain: Operand): void {
  const weight = weightOf(ctx, w)
  const squares = ctx.scratch(weight.rows)
  ctx.step('weightNorm2', { weight, out: squares.write() })
  const magnitude = ctx.read(w + 3)
  ctx.step('doraNorm', {
    weight,
    ...lowRankOf(ctx, w + 1),
    weightNorm2: squares.read(),
    magnitude,
    norm,
    gain,
  })
}

/** The precision of a layer in inference: dropout goes with rows that are not rounded to codes. */
function adaptedCompute(ctx: Lowering, weight: Pick<Weight, 'format'>): Compute {
  const rounds = ctx.input(1).weight?.activations === 'nvfp4' && !ctx.has(6)
  return (rounds && roundedCompute(ctx.target, 'nvfp4', weight.format)) || computeOf(ctx, weight, 'adapter')
}

/** x, W, A, B, magnitude, bias, dropout mask → y, and for the backward pass xa, z, norm, gain */
function dora(ctx: Lowering): void {
  const weight = weightOf(ctx, 1)
  const tokens = numel(ctx.shape(0).slice(0, -1))
  const lowRank = lowRankOf(ctx, 2)
  const hasGradient = [1, 2, 3, 4].some(i => ctx.wants(i))
  const xa = ctx.resultOrScratch(1, multiply(tokens, lowRank.rank))
  const [norm, gain] = [ctx.resultOrScratch(3, weight.rows), ctx.resultOrScratch(4, weight.rows)]
  addNorm(ctx, 1, norm, gain)
  ctx.step('doraForward', {
    weight,
    ...lowRank,
    tokens,
    x: ctx.read(0),
    gain: gain.buffer.read(),
    bias: ctx.optional(5),
    mask: ctx.optional(6),
    xa,
    z: ctx.result(2),
    y: ctx.write(),
    compute: hasGradient ? exactCompute(ctx, [0, 1]) : adaptedCompute(ctx, weight),
  })
}

/** dy, x, W, A, B, magnitude, xa, z, norm, gain, dropout mask → dx, dA, dB, dmagnitude, dbias */
function doraGrad(ctx: Lowering): void {
  const weight = weightOf(ctx, 2)
  const { a, b, ...scaling } = lowRankOf(ctx, 3)
  ctx.step('doraBackward', {
    weight,
    a,
    b,
    ...scaling,
    tokens: numel(ctx.shape(1).slice(0, -1)),
    exactNorm: ctx.text('norm_gradient') === 'exact',
    dy: ctx.read(0),
    x: ctx.read(1),
    magnitude: ctx.read(5),
    xa: ctx.read(6),
    z: ctx.read(7),
    norm: ctx.read(8),
    gain: ctx.read(9),
    mask: ctx.optional(10),
    dx: ctx.result(0),
    da: ctx.resultOrScratch(1, a.count),
    db: ctx.resultOrScratch(2, b.count),
    dmagnitude: ctx.resultOrScratch(3, weight.rows),
    dbias: ctx.result(4),
    compute: exactCompute(ctx, [0, 1, 2]),
  })
}

/** W, A, B, magnitude → the weight of a plain layer that computes the same, and norm and gain for its gradient */
function doraWeight(ctx: Lowering): void {
  const [weight, lowRank] = [weightOf(ctx, 0), lowRankOf(ctx, 1)]
  const [norm, gain] = [ctx.resultOrScratch(1, weight.rows), ctx.resultOrScratch(2, weight.rows)]
  addNorm(ctx, 0, norm, gain)
  // In training a mode rounds by casts; and with the codes of a file nothing is rounded.
  const isExact = ctx.wants(1) || ctx.wants(2) || ctx.input(0).weight?.exact
  const adapted = isExact ? undefined : weight.format
  ctx.step('doraMerge', { weight, ...lowRank, gain: gain.buffer.read(), merged: ctx.write(0, { adapted }) })
}

/** dweight, W, A, B, norm, gain → dA, dB, dmagnitude */
function doraWeightGrad(ctx: Lowering): void {
  const weight = weightOf(ctx, 1)
  const { a, b, ...scaling } = lowRankOf(ctx, 2)
  ctx.step('doraMergeBackward', {
    weight,
    a,
    b,
    ...scaling,
    exactNorm: ctx.text('norm_gradient') === 'exact',
    dmerged: ctx.read(0),
    norm: ctx.read(4),
    gain: ctx.read(5),
    dv: ctx.scratch(multiply(weight.rows, weight.cols)).write(),
    da: ctx.resultOrScratch(0, a.count),
    db: ctx.resultOrScratch(1, b.count),
    dmagnitude: ctx.resultOrScratch(2, weight.rows),
  })
}

/** Lowerings of DoRA layers. */
export const doraLayers: LowerTable = {
  [sparkDomain]: {
    DoRA: dora,
    DoRAGrad: doraGrad,
    DoRAWeight: doraWeight,
    DoRAWeightGrad: doraWeightGrad,
  },
}
