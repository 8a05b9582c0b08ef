// dora.ts: DoRA layers: the linear one, and the effective weight of the others.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { exactCompute, weightOf } from './matmul.js'
import type { LowerTable } from './table.js'

/** Adapter A, B and scale; inputs `a` and `a + 1` of the node. */
export function lowRankOf(at: Lowering, a: number): { rank: number; scale: number; a: Operand; b: Operand } {
  return { rank: at.shape(a)[0]!, scale: at.number('scale', 1), a: at.read(a), b: at.read(a + 1) }
}

/** Adds norm and gain of the weight that is input `w`, followed by A, B and magnitude. */
export function addNorm(at: Lowering, w: number, norm: Operand, gain: Operand): void {
  const weight = weightOf(at, w)
  const squares = at.scratch(weight.rows)
  at.step('weightNorm2', { weight, out: squares.write() })
  const magnitude = at.read(w + 3)
  at.step('doraNorm', { weight, ...lowRankOf(at, w + 1), weightNorm2: squares.read(), magnitude, norm, gain })
}

/** x, W, A, B, magnitude, bias, dropout mask → y, and for the backward pass xa, z, norm, gain */
function dora(at: Lowering): void {
  const weight = weightOf(at, 1)
  const tokens = numel(at.shape(0)) / weight.cols
  const lowRank = lowRankOf(at, 2)
  const xa = at.resultOrScratch(1, tokens * lowRank.rank)
  const [norm, gain] = [at.resultOrScratch(3, weight.rows), at.resultOrScratch(4, weight.rows)]
  addNorm(at, 1, norm, gain)
  at.step('doraForward', {
    ...{ weight, ...lowRank, tokens, x: at.read(0), gain: gain.buffer.read() },
    ...{ bias: at.optional(5), mask: at.optional(6), xa, z: at.result(2), y: at.write() },
    compute: exactCompute(at, [0, 1]),
  })
}

/** dy, x, W, A, B, magnitude, xa, z, norm, gain, dropout mask → dx, dA, dB, dmagnitude, dbias */
function doraGrad(at: Lowering): void {
  const weight = weightOf(at, 2)
  const { a, b, ...scaling } = lowRankOf(at, 3)
  at.step('doraBackward', {
    ...{ weight, a, b, ...scaling, tokens: numel(at.shape(1)) / weight.cols },
    exactNorm: at.text('norm_gradient', 'detached') === 'exact',
    ...{ dy: at.read(0), x: at.read(1), magnitude: at.read(5), xa: at.read(6), z: at.read(7) },
    ...{ norm: at.read(8), gain: at.read(9), mask: at.optional(10) },
    ...{ dx: at.result(0), da: at.resultOrScratch(1, a.count), db: at.resultOrScratch(2, b.count) },
    ...{ dmagnitude: at.resultOrScratch(3, weight.rows), dbias: at.result(4) },
    compute: exactCompute(at, [0, 1, 2]),
  })
}

/** W, A, B, magnitude → the weight of a plain layer that computes the same, and norm and gain for its gradient */
function doraWeight(at: Lowering): void {
  const [weight, lowRank] = [weightOf(at, 0), lowRankOf(at, 1)]
  const [norm, gain] = [at.resultOrScratch(1, weight.rows), at.resultOrScratch(2, weight.rows)]
  addNorm(at, 0, norm, gain)
  at.step('doraMerge', { weight, ...lowRank, gain: gain.buffer.read(), merged: at.write() })
}

/** dweight, W, A, B, norm, gain → dA, dB, dmagnitude */
function doraWeightGrad(at: Lowering): void {
  const weight = weightOf(at, 1)
  const { a, b, ...scaling } = lowRankOf(at, 2)
  at.step('doraMergeBackward', {
    ...{ weight, a, b, ...scaling, exactNorm: at.text('norm_gradient', 'detached') === 'exact' },
    ...{ dmerged: at.read(0), norm: at.read(4), gain: at.read(5) },
    dv: at.scratch(weight.rows * weight.cols).write(),
    ...{ da: at.resultOrScratch(0, a.count), db: at.resultOrScratch(1, b.count) },
    dmagnitude: at.resultOrScratch(2, weight.rows),
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
