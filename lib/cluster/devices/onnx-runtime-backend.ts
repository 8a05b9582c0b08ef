// onnx-runtime-backend.ts: backends by execution providers of ONNX Runtime, where the package onnxruntime-node is installed and
// was built with them; for all others the words that say what is missing.
import { SparkError } from '../../core/errors.js'
import { loadRuntime } from '../../model/onnx-runtime.js'
import type { BackendDriver, ComputeBackendName } from './compute-backend.js'
import { HeapStorage } from './device-memory.js'

/** A backend that ONNX Runtime may have a provider for. */
type ProvidedName = Exclude<ComputeBackendName, 'cuda' | 'cpu' | 'js'>

interface Provided {
  /** What it computes on, in words. */
  readonly device: string
  /** Names of providers, the best one first. */
  readonly providers: readonly string[]
  /** Where they exist, for an error. */
  readonly remedy: string
}

const provided: Readonly<Record<ProvidedName, Provided>> = {
  onnxruntime: {
    device: 'the processor, in ONNX Runtime',
    providers: ['cpu'],
    remedy: 'every onnxruntime-node has it',
  },
  rocm: {
    device: 'an AMD GPU',
    providers: ['rocm', 'migraphx'],
    remedy:
      'onnxruntime-node from npm is built without ROCm: build it from source with --use_rocm or --use_migraphx',
  },
  directml: {
    device: 'a GPU of Windows',
    providers: ['dml'],
    remedy: 'onnxruntime-node has DirectML on Windows only',
  },
  metal: {
    device: 'an Apple GPU',
    providers: ['coreml', 'webgpu'],
    remedy: 'onnxruntime-node reaches Metal by CoreML, on macOS only',
  },
  coreml: {
    device: 'an Apple processor, GPU or neural engine',
    providers: ['coreml'],
    remedy: 'onnxruntime-node has CoreML on macOS only',
  },
  tflite: {
    device: 'a GPU of Android',
    providers: [],
    remedy:
      'Node.js has no TensorFlow Lite runtime: run the model in an app that has one, and let it join as a peer',
  },
}

/** Platforms whose GPUs a provider reaches; others have it for something else. */
const platformOf: Partial<Record<ProvidedName, NodeJS.Platform>> = {
  metal: 'darwin',
  coreml: 'darwin',
  directml: 'win32',
}

/** A backend of ONNX Runtime. */
export function onnxRuntimeDriver(name: ProvidedName): BackendDriver {
  const { device, providers, remedy } = provided[name]
  let provider = providers[0] ?? ''
  return {
    name,
    device,
    get model() {
      return { backend: 'onnxruntime', provider } as const
    },
    async open() {
      if (providers.length === 0) throw new SparkError('ERR_UNSUPPORTED', `backend '${name}': ${remedy}`)
      const { listSupportedBackends } = await loadRuntime()
      const there = listSupportedBackends().map(each => each.name as string)
      const platform = platformOf[name] ?? process.platform
      const found = platform === process.platform ? providers.find(each => there.includes(each)) : undefined
      if (found === undefined) {
        const text = `backend '${name}' needs the provider ${providers.join(' or ')}, and onnxruntime-node has ${there.join(', ')} here`
        throw new SparkError('ERR_UNSUPPORTED', `${text}: ${remedy}`)
      }
      provider = found
    },
    allocate: async bytes => new HeapStorage(bytes),
  }
}
