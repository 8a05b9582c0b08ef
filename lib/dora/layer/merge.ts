// merge.ts: merging an adapter into the weight of a layer, and unmerging it.
import { SparkError } from '../../core/errors.js'
import type { Kernels, Weight } from '../../kernels/kernels.js'
import { Tensor } from '../../memory/tensor.js'
import { decodeWeight, precisionOf, storeWeight } from '../../weights/encode.js'
import type { Snapshot } from './forward-backward.js'
import type { KernelCalls } from './kernel-calls.js'

/** A merged weight with the snapshot of the adapter that was merged. */
export interface Merged {
  readonly weight: Weight
  readonly snapshot: Snapshot
}

/** gain ∘ (W + scale · B·A), [out, in]. */
export function mergeCalls(weight: Weight, snapshot: Snapshot): KernelCalls<Tensor<'f32'>> {
  const { rows, cols } = weight
  const merged = new Float32Array(rows * cols)
  return {
    calls: [['doraMerge', { ...snapshot, weight, merged }]],
    result: () => Tensor.from(merged, { shape: [rows, cols] }),
  }
}

/**
 * Throws ERR_NOT_FINITE when a merged weight is not finite.
 * @param adapter - name of the adapter
 * @param merged - [rows, cols]
 */
export function expectFiniteMerge(adapter: string, merged: Tensor): void {
  const values = merged.toFloat32()
  const index = values.findIndex(value => !Number.isFinite(value))
  if (index < 0) return
  const cols = merged.shape[1]!
  throw new SparkError(
    'ERR_NOT_FINITE',
    `the merged weight is ${values[index]} in row ${Math.floor(index / cols)}, column ${index % cols}: ` +
      `the adapter '${adapter}' seems to be broken; nothing was merged`,
  )
}

/**
 * Recovers the frozen weight from a merged one, W = merged / gain − scale · B·A, in the format of the merged one, and
 * writes its squared row norms to `weightNorm2` [out].
 * @throws SparkError ERR_RANGE when a gain is 0
 */
export async function unmergedWeight(
  kernels: Kernels,
  { weight, snapshot }: Merged,
  weightNorm2: Float32Array,
): Promise<Weight> {
  const dead = snapshot.gain.indexOf(0)
  if (dead >= 0) {
    throw new SparkError(
      'ERR_RANGE',
      `the gain of row ${dead} is 0, so its weight cannot be restored: merge with keepOriginal: true to be able to unmerge`,
    )
  }
  const { rows, cols } = weight
  const restored = new Float32Array(rows * cols)
  await kernels.runOwned('doraUnmerge', { ...snapshot, rows, cols, merged: decodeWeight(weight), restored })
  const tensor = Tensor.from(restored, { shape: [rows, cols] })
  const base = storeWeight(tensor, precisionOf(weight.format), 'the restored weight')
  await kernels.runOwned('weightNorm2', { weight: base, out: weightNorm2 })
  return base
}
