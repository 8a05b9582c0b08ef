// precision.ts: choice of the precision mode of a model.
import { argumentError } from '../core/checks.js'
import { getConfig, getConfigEntries, type Precision, parsePrecision, precisions } from '../core/config.js'
import type { GpuSelector } from '../hardware/cuda-device.js'
import { recommendedPrecisionOf } from '../hardware/gpu.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import type { ModelBackend } from './engine.js'

/** A precision mode and why it was chosen. */
export interface PrecisionChoice {
  /** The mode. */
  readonly name: Precision
  /** Why it was chosen, in words. */
  readonly reason: string
  /** Whether nobody asked for it. */
  readonly automatic: boolean
}

/**
 * The mode that the option asks for, or the environment, or else the best one of the hardware that runs the model: bf16 on
 * GPUs from compute capability 8.0 on, fp16 from 7.0 on, fp32 elsewhere.
 * @throws SparkError ERR_ARGUMENT for a mode that does not exist
 */
export async function choosePrecision(
  asked: Precision | 'fp4' | undefined,
  {
    backend = getConfig().backend,
    device,
  }: { backend?: ModelBackend; device?: GpuSelector | undefined } = {},
): Promise<PrecisionChoice> {
  if (asked !== undefined) {
    const name = typeof asked === 'string' ? parsePrecision(asked) : undefined
    if (!name) {
      throw argumentError('options.precision', `one of ${precisions.join(', ')} or fp4 for nvfp4`, asked)
    }
    return { name, reason: `the option asks for ${name}`, automatic: false }
  }
  const entry = getConfigEntries().find(({ name }) => name === 'precision')
  if (entry?.value) {
    const name = entry.value as Precision
    return { name, reason: `${entry.source} asks for ${name}`, automatic: false }
  }
  const hardware = backend === 'auto' || backend === 'cuda' ? await HardwareInfo.detect() : undefined
  if (!hardware || (backend === 'auto' ? hardware.backend.name !== 'cuda' : !getConfig().enabled)) {
    return { name: 'fp32', reason: 'what every processor computes in', automatic: true }
  }
  const gpu =
    device === undefined
      ? hardware.bestGpu
      : hardware.gpus.find(({ uuid }, i) => device === i || device === uuid)
  const capability = gpu?.computeCapability ?? null
  const name = recommendedPrecisionOf(capability)
  const reason = `the best one for compute capability ${capability ?? 'unknown'}`
  return { name, reason, automatic: true }
}
