// select-backend.ts: which backend computes: what the user asks for, or the best one that opens, down to JavaScript.
import { expectKnownOptions, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { expectGpuSelector, type GpuSelector } from '../../hardware/cuda-device.js'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import { driverOf } from './backend-drivers.js'
import { ComputeBackend, type ComputeBackendName } from './compute-backend.js'

/** Backends from the best one to the one that always works. */
const preference: readonly ComputeBackendName[] = ['cuda', 'rocm', 'directml', 'metal', 'cpu', 'js']

/** All of them. */
export const computeBackendNames: readonly ComputeBackendName[] = [
  ...preference,
  'coreml',
  'tflite',
  'onnxruntime',
]

/** Options of {@link selectBackend}. */
export interface SelectOptions {
  /** What is asked for: no other one is tried. */
  readonly backend?: ComputeBackendName
  /** Which GPU, for `cuda`. Default: the best one. */
  readonly device?: GpuSelector
}

/** A backend that is open, and why it is this one. */
export interface BackendSelection {
  /** It is open, and the caller closes it. */
  readonly backend: ComputeBackend
  /** In words, with what speaks against the better ones. */
  readonly reason: string
  /** Better ones that did not open, and why. */
  readonly refused: readonly {
    /** Which one. */
    readonly name: ComputeBackendName
    /** Why it did not open. */
    readonly reason: string
  }[]
}

/**
 * A backend that is not open yet; `cuda` on a GPU by its index or uuid.
 * @throws SparkError ERR_ARGUMENT
 */
export function createBackend(name: ComputeBackendName, device?: GpuSelector): ComputeBackend {
  expectOneOf('name', name, computeBackendNames)
  expectGpuSelector('device', device)
  return new ComputeBackend(driverOf(name, device))
}

/**
 * Opens the best backend of this machine, or the one that is asked for.
 * @throws SparkError ERR_ARGUMENT; for a backend that was asked for what {@link ComputeBackend.open} throws
 */
export async function selectBackend(options: SelectOptions = {}): Promise<BackendSelection> {
  expectKnownOptions('options', options, ['backend', 'device'])
  if (options.backend !== undefined) {
    const backend = createBackend(options.backend, options.device)
    await backend.open()
    return { backend, reason: `the option asks for ${backend.name}`, refused: [] }
  }
  const refused: { name: ComputeBackendName; reason: string }[] = []
  for (const name of preference) {
    const backend = createBackend(name, name === 'cuda' ? options.device : undefined)
    const missing = await missingHardware(name)
    try {
      if (missing !== undefined) throw new SparkError('ERR_UNSUPPORTED', missing)
      await backend.open()
      const against = refused.map(each => `no ${each.name} (${each.reason})`).join('; ')
      const reason = `${backend.device} is the best that works${against ? `: ${against}` : ''}`
      return { backend, reason, refused }
    } catch (error) {
      refused.push({ name, reason: (error as Error).message })
      await backend.close()
    }
  }
  throw new Error('JavaScript always computes')
}

/** Why a backend has nothing to compute on here, before its libraries are looked for. */
async function missingHardware(name: ComputeBackendName): Promise<string | undefined> {
  if (name === 'directml') return process.platform === 'win32' ? undefined : 'this is not Windows'
  if (name === 'metal') return process.platform === 'darwin' ? undefined : 'this is not macOS'
  if (name !== 'rocm') return undefined
  const { gpus } = await HardwareInfo.detect()
  return gpus.some(({ vendor }) => vendor === 'amd') ? undefined : 'there is no AMD GPU'
}
