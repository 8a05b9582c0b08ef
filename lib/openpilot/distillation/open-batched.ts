// open-batched.ts: opens driving models for many frames at a time.
import { SparkError } from '../../core/errors.js'
import type { LoadOptions } from '../../model/model-options.js'
import type { DrivingModel } from '../driving-model.js'
import { inputNames } from '../inputs.js'
import { openModel } from '../open-model.js'

/** Frames that models are shown at a time. */
const batchSizes = { vision: 4, policy: 16 } as const

/**
 * Opens a driving model; one that does not wait for itself with a batch of frames, unless its file does not allow that.
 * @throws SparkError as `openModel`
 */
export async function openForFrames(file: string, options: LoadOptions): Promise<DrivingModel> {
  const single = await openModel(file, options)
  const { kind } = single
  const isFed = single.inputs.some(({ name }) => (inputNames.curvature as readonly string[]).includes(name))
  if ((kind !== 'vision' && kind !== 'policy') || isFed) return single
  try {
    const batched = await openModel(file, { ...options, batchSize: batchSizes[kind] })
    single.dispose()
    return batched
  } catch (error) {
    if (!(error instanceof SparkError)) throw error
    return single
  }
}
