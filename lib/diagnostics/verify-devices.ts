// verify-devices.ts: verification of the kernels of every device of this machine.
import { getConfig } from '../core/config.js'
import { hasCapability, kernelsFrom } from '../hardware/gpu.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import type { KernelBackend, Kernels } from '../kernels/kernels.js'
import { openKernels } from '../kernels/open.js'
import { requireAddon } from '../native.js'
import { type VerifyResult, verifyKernels } from './verify.js'

/** A device and what its kernels are compared with. */
interface Candidate {
  readonly device: string
  readonly kernels: Kernels
  readonly reference: Kernels
}

/** What became of one operation on one device: `cpu`, or `gpu 0` by the index of the GPU. */
export type DeviceResult = VerifyResult & { readonly device: string; readonly reference: KernelBackend }

/**
 * Runs every kernel on the CPU, against plain TypeScript, and on each GPU that has kernels, against the CPU.
 * @throws SparkError ERR_NO_NATIVE without the native addon
 */
export async function verifyDevices(): Promise<DeviceResult[]> {
  const results: DeviceResult[] = []
  for (const { device, kernels, reference } of await openCandidates()) {
    for (const result of await verifyKernels(kernels, reference)) {
      results.push({ device, reference: reference.backend, ...result })
    }
  }
  return results
}

async function openCandidates(): Promise<Candidate[]> {
  const cpu = await openKernels({ backend: 'cpu' })
  const candidates = [{ device: 'cpu', kernels: cpu, reference: await openKernels({ backend: 'js' }) }]
  for (const { index } of await gpusWithKernels()) {
    const kernels = await openKernels({ backend: 'cuda', device: index })
    candidates.push({ device: `gpu ${index}`, kernels, reference: cpu })
  }
  return candidates
}

/** The GPUs that kernels of the addon run on, with their numbers in CUDA. */
export async function gpusWithKernels(): Promise<{ index: number; cudaIndex: number }[]> {
  if (!getConfig().enabled || requireAddon().kernelFamilies().length === 0) return []
  const { gpus } = await HardwareInfo.detect()
  return gpus.flatMap(({ index, cudaIndex, computeCapability, problem }) =>
    cudaIndex === null || problem || !hasCapability(computeCapability, kernelsFrom)
      ? []
      : [{ index, cudaIndex }],
  )
}
