// backend-drivers.ts: backends by their names: CUDA, the CPU and JavaScript with kernels of this library.
import type { GpuSelector } from '../../hardware/cuda-device.js'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import { openKernels } from '../../kernels/open.js'
import { UnifiedBuffer } from '../../memory/unified-buffer.js'
import type { BackendDriver, ComputeBackendName } from './compute-backend.js'
import { HeapStorage } from './device-memory.js'
import { onnxRuntimeDriver } from './onnx-runtime-backend.js'

/** A backend that is not open yet. */
export function driverOf(name: ComputeBackendName, device?: GpuSelector): BackendDriver {
  switch (name) {
    case 'cuda':
      return cudaDriver(device)
    case 'cpu':
      return cpuDriver
    case 'js':
      return jsDriver
    default:
      return onnxRuntimeDriver(name)
  }
}

function cudaDriver(device: GpuSelector | undefined): BackendDriver {
  const selected = device === undefined ? {} : { device }
  let found = 'an NVIDIA GPU'
  return {
    name: 'cuda',
    get device() {
      return found
    },
    model: { backend: 'cuda', ...selected },
    async open() {
      await openKernels({ backend: 'cuda', ...selected })
      const { gpus, bestGpu } = await HardwareInfo.detect()
      found =
        (device === undefined ? bestGpu : gpus.find(({ index, uuid }) => index === device || uuid === device))
          ?.name ?? found
    },
    allocate: bytes => UnifiedBuffer.allocate(bytes, selected),
  }
}

const cpuDriver: BackendDriver = {
  name: 'cpu',
  device: 'the processor',
  model: { backend: 'cpu' },
  open: async () => void (await openKernels({ backend: 'cpu' })),
  allocate: bytes => UnifiedBuffer.allocate(bytes, { kind: 'host' }),
}

const jsDriver: BackendDriver = {
  name: 'js',
  device: 'the JavaScript thread',
  model: { backend: 'js' },
  open: async () => void (await openKernels({ backend: 'js' })),
  allocate: async bytes => new HeapStorage(bytes),
}
