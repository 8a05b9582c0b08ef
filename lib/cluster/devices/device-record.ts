// device-record.ts: what a cluster knows of a device. Plain data that goes over the wire as JSON; a field that nobody could
// find out is missing, never 0.
import type { SupportClass } from '../../hardware/gpu.js'
import type { GpuVendor } from '../../hardware/pci.js'
import type { ThrottleReason } from '../../hardware/throttling.js'

/** Makers of devices: those of GPUs, and `arm` for processors. */
export type DeviceVendor = GpuVendor | 'arm'

/** What runs kernels or models on a device. */
export type DeviceBackendName = 'cuda' | 'cpu' | 'js' | 'rocm' | 'metal' | 'directml' | 'coreml' | 'tflite'

/** Operators that take the same element types. */
export interface OperatorSet {
  /** Names of ONNX operators; those of other domains as `domain::name`. */
  readonly operators: readonly string[]
  /** Element types that they take, values and weights. */
  readonly dtypes: readonly string[]
}

/** What a backend computes on a device. */
export interface BackendCapability {
  /** Its name. */
  readonly name: DeviceBackendName
  /** The (operator, dtype) pairs, grouped by dtypes. */
  readonly operators: readonly OperatorSet[]
  /** Element types that the arithmetic units multiply; in others the operators compute in a wider one. */
  readonly native: readonly string[]
}

/** Whether the driver and its runtime libraries work. */
export interface RuntimeStatus {
  /** `missing`: the libraries are not there; `failed`: they are, and do not work. */
  readonly state: 'ready' | 'missing' | 'failed'
  /** Version of the runtime, such as CUDA's `13.0`. */
  readonly version?: string
  /** What is wrong, in words. */
  readonly problem?: string
}

/** What was measured on a device; a rate that was not measured is missing. */
export interface MeasuredRates {
  /** When, in milliseconds since 1970. */
  readonly time: number
  /** Bytes per second that a copy reads and writes, in the memory of the device. */
  readonly bandwidth?: number
  /** Multiplications and additions per second of a large matrix product, by element type. */
  readonly flops: Readonly<Record<string, number>>
}

/** The last measurement of a device. */
export interface DeviceTelemetry {
  /** When, in milliseconds since 1970. */
  readonly time: number
  /** Bytes in use. */
  readonly memoryUsed?: number
  /** Bytes that can still be allocated. */
  readonly memoryFree?: number
  /** Share of time in which the device computed, percent. */
  readonly utilization?: number
  /** °C */
  readonly temperature?: number
  /** W */
  readonly power?: number
  /** W */
  readonly powerLimit?: number
  /** Why the clocks are reduced; empty where nothing reduces them, missing where the device does not tell. */
  readonly throttleReasons?: readonly ThrottleReason[]
}

/** What a device does now. */
export type DeviceState = 'idle' | 'computing' | 'throttled' | 'offline'

/** A device of a cluster. */
export interface DeviceRecord {
  /** The same after restarts: the uuid of a GPU, else its node and PCI address, else its node and kind. */
  readonly id: string
  /** Uuid of the node that it is in. */
  readonly nodeId: string
  /** What it is. */
  readonly kind: 'gpu' | 'cpu'
  /** Maker. */
  readonly vendor: DeviceVendor
  /** Its name. */
  readonly model: string
  /** `Blackwell`, `Hopper`, … of a GPU; the instruction set that kernels use of a processor. */
  readonly architecture?: string
  /** Memory that it can use, in bytes. */
  readonly memoryBytes?: number
  /** Whether that is the memory of the machine, which CPU and GPU share. */
  readonly sharesHostMemory?: boolean
  /** `12.1`, of CUDA devices. */
  readonly computeCapability?: string
  /** Streaming multiprocessors of a GPU, logical processors of a CPU. */
  readonly computeUnits?: number
  /** Version of the driver, or its name. */
  readonly driver?: string
  /** Whether driver and runtime work. */
  readonly runtime: RuntimeStatus
  /** How far this library supports it, and why. */
  readonly support: {
    /** How far. */
    readonly class: SupportClass
    /** Why, in words. */
    readonly reason: string
  }
  /** What can compute on it; empty where nothing can. */
  readonly backends: readonly BackendCapability[]
  /** What was measured, once for each driver version. */
  readonly rates?: MeasuredRates
  /** The last measurement. */
  readonly telemetry?: DeviceTelemetry
  /** Missing where the device tells neither utilization nor throttling. */
  readonly state?: DeviceState
}

/** Reasons for reduced clocks that mean less work than the device could do. A power cap alone is full load. */
const slowdowns: readonly ThrottleReason[] = [
  'hardware slowdown',
  'software thermal slowdown',
  'hardware thermal slowdown',
  'hardware power brake',
]

/** Percent of utilization from which on a device counts as computing: a desktop or a monitor takes less. */
const computingFrom = 5

/** What a device does according to a measurement; undefined where that does not tell. */
export function stateOf({ utilization, throttleReasons }: DeviceTelemetry): DeviceState | undefined {
  if (throttleReasons?.some(reason => slowdowns.includes(reason))) return 'throttled'
  if (utilization === undefined) return undefined
  return utilization >= computingFrom ? 'computing' : 'idle'
}

/** An object without the fields that are null or undefined: what is not known is missing. */
export function known<T extends object>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const entries = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined)
  return Object.fromEntries(entries) as { [K in keyof T]?: NonNullable<T[K]> }
}
