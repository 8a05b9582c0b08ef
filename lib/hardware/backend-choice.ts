// backend-choice.ts: selection of the backend for `auto`, with its reasons.
import type { Config } from '../core/config.js'
import { capabilityNumber, type GpuInfo, hasCapability, kernelsFrom } from './gpu.js'
import { isSparkGpu } from './spark.js'

/** The engine calls without a `backend` option run on. */
export interface BackendChoice {
  /** Engine. */
  readonly name: 'cuda' | 'cpu' | 'js'
  /** The reason, for display. */
  readonly reason: string
  /** Index in {@link HardwareInfo.gpus} of the GPU it computes on; null for `cpu` and `js`. */
  readonly gpu: number | null
}

/** The inputs of the choice. */
export interface BackendFacts {
  readonly gpus: readonly GpuInfo[]
  /** Why the addon is not loaded, or null. */
  readonly addonProblem: string | null
  /** Kernel families in the addon. */
  readonly kernelFamilies: readonly string[]
}

/**
 * The best NVIDIA GPU of a list: a Spark's first, then by compute capability, then by memory. A GPU with a problem or
 * without a known compute capability is never chosen.
 */
export function bestOf(gpus: readonly GpuInfo[]): GpuInfo | null {
  const usable = gpus.filter(gpu => gpu.vendor === 'nvidia' && !gpu.problem && gpu.computeCapability)
  const [best] = usable.sort(
    (a, b) =>
      Number(isSparkGpu(b)) - Number(isSparkGpu(a)) ||
      capabilityNumber(b.computeCapability)! - capabilityNumber(a.computeCapability)! ||
      (b.memory.total ?? 0) - (a.memory.total ?? 0),
  )
  return best ?? null
}

/** Why CUDA cannot be used whatever the configuration says, or the GPU it would use. */
function cudaChoice({ gpus, kernelFamilies }: BackendFacts): { gpu: GpuInfo } | { problem: string } {
  const nvidia = gpus.filter(gpu => gpu.vendor === 'nvidia')
  if (nvidia.length === 0) return { problem: 'there is no NVIDIA GPU' }
  const gpu = bestOf(nvidia.filter(each => hasCapability(each.computeCapability, kernelsFrom)))
  if (!gpu) {
    const reasons = nvidia.map(
      ({ name, problem, computeCapability }) =>
        `${name}: ${problem ?? `compute capability ${computeCapability} is below ${kernelsFrom}, the oldest with kernels`}`,
    )
    return { problem: `no NVIDIA GPU can be used (${reasons.join('; ')})` }
  }
  if (kernelFamilies.length === 0) {
    return {
      problem: `the addon was built without CUDA kernels, so ${gpu.name} is not used; build it with nvcc 12.9 or newer`,
    }
  }
  return { gpu }
}

/** What `auto` means on a machine under a configuration. Never throws: a named engine that cannot work fails in use. */
export function chooseBackend(
  facts: BackendFacts,
  config: Pick<Config, 'enabled' | 'backend'>,
): BackendChoice {
  const disabled = config.enabled ? null : 'NVIDIA GPUs are disabled by the configuration'
  const unloaded =
    facts.addonProblem === null ? null : `the native addon is not loaded: ${facts.addonProblem}`
  const cuda = cudaChoice(facts)
  const cudaProblem = disabled ?? unloaded ?? ('problem' in cuda ? cuda.problem : null)
  const gpu = cudaProblem === null && 'gpu' in cuda ? cuda.gpu : null
  if (config.backend !== 'auto') {
    const doubt = { cuda: cudaProblem, cpu: unloaded, js: null }[config.backend]
    return {
      name: config.backend,
      reason: `the configuration asks for ${config.backend}${doubt ? `, but ${doubt}` : ''}`,
      gpu: config.backend === 'cuda' && gpu ? gpu.index : null,
    }
  }
  if (unloaded) return { name: 'js', reason: unloaded, gpu: null }
  if (!gpu) return { name: 'cpu', reason: cudaProblem!, gpu: null }
  const reason = `${gpu.name} (compute capability ${gpu.computeCapability}) is the best GPU`
  return { name: 'cuda', reason, gpu: gpu.index }
}
