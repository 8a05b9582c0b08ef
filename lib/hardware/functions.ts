// functions.ts: shortcuts to common properties of HardwareInfo.
import type { Precision } from '../core/config.js'
import { type GpuInfo, recommendedPrecisionOf } from './gpu.js'
import { HardwareInfo } from './hardware-info.js'

/** Whether the machine has an NVIDIA GPU that can be used. */
export async function isNvidiaAvailable(): Promise<boolean> {
  return (await getNvidiaGpus()).some(gpu => gpu.problem === null)
}

/** The NVIDIA GPUs in the order of nvidia-smi, also those with a problem. */
export async function getNvidiaGpus(): Promise<readonly GpuInfo[]> {
  const { gpus } = await HardwareInfo.detect()
  return gpus.filter(gpu => gpu.vendor === 'nvidia')
}

/** {@link HardwareInfo.bestGpu}. */
export async function getBestGpu(): Promise<GpuInfo | null> {
  return (await HardwareInfo.detect()).bestGpu
}

/**
 * The precision a GPU is best used with: bf16 from compute capability 8.0, fp16 from 7.0, else fp32.
 * @param gpu - a GPU of {@link HardwareInfo.gpus}; without it the answer is {@link HardwareInfo.recommendedPrecision}
 */
export async function getRecommendedPrecision(gpu?: GpuInfo): Promise<Precision> {
  return gpu
    ? recommendedPrecisionOf(gpu.computeCapability)
    : (await HardwareInfo.detect()).recommendedPrecision
}
