// open.ts: which engine a computation runs on.
import { expectInteger, expectKnownOptions, expectOneOf } from '../core/checks.js'
import { type BackendName, backendNames, getConfig, maxThreads } from '../core/config.js'
import { warnOnce } from '../core/log.js'
import { expectGpuSelector, type GpuSelector } from '../hardware/cuda-device.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import { loadAddon } from '../native.js'
import type { Kernels, PlanCommunicator } from './kernels.js'

/** Options of {@link openKernels}. */
export interface KernelOptions {
  /** Engine; by default what DGX_SPARK_BACKEND says, or `auto`: the best that this machine has. */
  backend?: BackendName
  /** Which GPU. Default: the best one. */
  device?: GpuSelector | undefined
  /** Threads that prepared steps may use on the CPU; 0: as many as by default. Default: what DGX_SPARK_THREADS says. */
  threads?: number | undefined
  /** What prepared steps on the CPU call to work with other ranks. Default: none. */
  communicator?: PlanCommunicator | undefined
}

/**
 * Opens an engine. `auto` takes what {@link HardwareInfo.backend} says: the CPU when there is no usable GPU, and `js`
 * with one warning (SPARK_NO_NATIVE) when the native addon does not load.
 *
 * @throws SparkError ERR_NO_NATIVE for an explicit cpu or cuda without the addon, ERR_DISABLED for an explicit cuda
 * when GPUs are switched off, ERR_NO_CUDA for an explicit cuda without a usable GPU
 */
export async function openKernels(options: KernelOptions = {}): Promise<Kernels> {
  expectKnownOptions('options', options, ['backend', 'device', 'threads', 'communicator'])
  const { backend = getConfig().backend, device, threads, communicator } = options
  expectOneOf('options.backend', backend, backendNames)
  expectGpuSelector('options.device', device)
  if (threads !== undefined) expectInteger('options.threads', threads, 0, maxThreads)
  switch (backend) {
    case 'js':
      return openJs(communicator)
    case 'cpu':
      return openCpu(threads, communicator)
    case 'cuda':
      return openCuda(device, communicator)
    case 'auto':
      return openBest(device, threads, communicator)
  }
}

/** The engine that HardwareInfo names; one that does not start is replaced with a warning. */
async function openBest(
  device: GpuSelector | undefined,
  threads: number | undefined,
  communicator: PlanCommunicator | undefined,
): Promise<Kernels> {
  const { backend } = await HardwareInfo.detect()
  if (backend.name === 'js') {
    const { addon, reason } = { reason: '', ...loadAddon() }
    if (!addon) warnOnce('SPARK_NO_NATIVE', 'kernels', `Computations run in JavaScript, slowly: ${reason}`)
    return openJs(communicator)
  }
  if (backend.name === 'cuda') {
    try {
      return await openCuda(device ?? backend.gpu ?? undefined, communicator)
    } catch (error) {
      warnOnce('SPARK_CUDA', 'kernels', `Computations run on the CPU: ${(error as Error).message}`)
    }
  }
  return openCpu(threads, communicator)
}

type Ranks = PlanCommunicator | undefined

/** Kernels that cannot call a communicator know of how many ranks it is: plans refuse what they cannot do. */
const withRanks = (kernels: Kernels, communicator: Ranks): Kernels =>
  communicator ? { ...kernels, world: communicator.world } : kernels

const openJs = async (communicator: Ranks): Promise<Kernels> =>
  withRanks((await import('./js/js.js')).jsKernels, communicator)

const openCpu = async (threads: number | undefined, communicator: Ranks): Promise<Kernels> =>
  (await import('./cpu.js')).openCpuKernels(threads, communicator)

const openCuda = async (device: GpuSelector | undefined, communicator: Ranks): Promise<Kernels> =>
  (await import('./cuda.js')).openCudaKernels(device, communicator)
