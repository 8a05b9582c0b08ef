// open.ts: which engine a computation runs on.
import { expectInteger, expectKnownOptions, expectOneOf } from '../core/checks.js'
import { type BackendName, backendNames, getConfig } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { warnOnce } from '../core/log.js'
import { loadAddon } from '../native.js'
import { openCpuKernels } from './cpu.js'
import { jsKernels } from './js/js.js'
import type { Kernels } from './kernels.js'

/** Options of {@link openKernels}. */
export interface KernelOptions {
  /** Engine; by default what DGX_SPARK_BACKEND says, or `auto`: the best that this machine has. */
  backend?: BackendName
  /** Index of the GPU, for cuda. */
  device?: number
}

/**
 * Opens an engine. `auto` takes the CPU when there is no usable GPU, and `js` with one warning (SPARK_NO_NATIVE) when
 * the native addon does not load.
 *
 * @throws SparkError ERR_NO_NATIVE for an explicit cpu or cuda without the addon, ERR_DISABLED for an explicit cuda
 * when GPUs are switched off, ERR_NO_CUDA for an explicit cuda without a usable GPU
 */
export async function openKernels(options: KernelOptions = {}): Promise<Kernels> {
  expectKnownOptions('options', options, ['backend', 'device'])
  const { backend = getConfig().backend, device = 0 } = options
  expectOneOf('options.backend', backend, backendNames)
  expectInteger('options.device', device, 0)
  switch (backend) {
    case 'js':
      return jsKernels
    case 'cpu':
      return openCpuKernels()
    case 'cuda':
      return openCudaKernels()
    case 'auto':
      return openBest()
  }
}

function openCudaKernels(): Kernels {
  if (!getConfig().enabled) {
    throw new SparkError(
      'ERR_DISABLED',
      "backend 'cuda' was asked for, but GPUs are switched off: unset DGX_SPARK_ENABLED=0 or use backend 'auto'",
    )
  }
  throw new SparkError('ERR_NO_CUDA', "there is no usable NVIDIA GPU: use backend 'auto' or 'cpu'")
}

function openBest(): Kernels {
  const loaded = loadAddon()
  if (loaded.addon) return openCpuKernels()
  warnOnce(
    'SPARK_NO_NATIVE',
    'kernels',
    `The native addon could not be loaded, so computations run in JavaScript, slowly: ${loaded.reason}`,
  )
  return jsKernels
}
