// cuda-device.ts: mapping from GPU selectors to CUDA device ordinals.
import { argumentError, expectInteger } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { HardwareInfo } from './hardware-info.js'

/** A GPU: its position in {@link HardwareInfo.gpus}, or its uuid. */
export type GpuSelector = number | string

const remedy = "`dgx-spark check` says what is missing, and backend 'auto' or 'cpu' computes on the CPU"

/** Throws ERR_ARGUMENT unless `device` is undefined, a position or a uuid. */
export function expectGpuSelector(name: string, device: unknown): asserts device is GpuSelector | undefined {
  if (device === undefined || (typeof device === 'string' && device !== '')) return
  if (typeof device !== 'number') throw argumentError(name, 'the index or the uuid of a GPU', device)
  expectInteger(name, device, 0)
}

/**
 * The number in CUDA of a GPU; of the best one when `device` is undefined, and then 0 where detection found none, so
 * that the driver says itself what is wrong.
 * @throws SparkError ERR_NO_CUDA when there is no such GPU or CUDA does not know it
 */
export async function cudaDevice(device?: GpuSelector): Promise<number> {
  const { gpus, bestGpu } = await HardwareInfo.detect()
  if (device === undefined) return bestGpu?.cudaIndex ?? 0
  const gpu = gpus.find(({ index, uuid }) => index === device || uuid === device)
  if (!gpu) {
    const choices = gpus.map(({ index, name, uuid }) => `${index} (${name}, ${uuid ?? 'no uuid'})`).join(', ')
    throw new SparkError(
      'ERR_NO_CUDA',
      `device is ${device}, which no GPU has; there are ${choices || 'none'}; ${remedy}`,
    )
  }
  if (gpu.cudaIndex === null) {
    const why = gpu.problem ?? `a GPU of ${gpu.vendor} has no CUDA`
    throw new SparkError('ERR_NO_CUDA', `device ${device} (${gpu.name}) cannot be used: ${why}; ${remedy}`)
  }
  return gpu.cudaIndex
}
