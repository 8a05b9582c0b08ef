// gpu-sample.ts: one GPU measurement, converted from NVML's values.
import type { NvmlSample } from '../native.js'
import type { GpuInfo } from './gpu.js'
import { isSparkGpu } from './spark.js'
import { clockWarnings, type ThrottleReason, throttleReasons } from './throttling.js'

/** A process that uses a GPU. */
export interface GpuProcess {
  /** Process id. */
  readonly pid: number
  /** GPU memory it holds; null when the driver does not tell. */
  readonly bytes: number | null
  /** Whether it computes or draws; a process that does both is listed as compute. */
  readonly kind: 'compute' | 'graphics'
}

/** One measurement of a GPU. null: the driver does not tell. */
export interface GpuSample {
  /** When it was taken, in milliseconds since 1970. */
  readonly time: number
  /** Which GPU. */
  readonly gpu: Pick<GpuInfo, 'index' | 'name' | 'uuid'>
  /** Share of time in which a kernel ran, percent. */
  readonly utilization: number | null
  /** Bytes. */
  readonly memory: {
    /** Of a GPU that shares the machine's memory: what its processes hold. */
    readonly used: number | null
    /** Memory that the GPU can use. */
    readonly total: number | null
  }
  /** °C */
  readonly temperature: number | null
  /** W, of the GPU alone. */
  readonly power: number | null
  /** W */
  readonly powerLimit: number | null
  /** MHz; `maxSm` is the highest SM clock the GPU allows. */
  readonly clocks: Readonly<Record<'graphics' | 'sm' | 'memory' | 'video' | 'maxSm', number | null>>
  /** Reasons for reduced clocks, now or since this monitor's last sample. */
  readonly throttleReasons: readonly ThrottleReason[]
  /** Processes that use the GPU. */
  readonly processes: readonly GpuProcess[] | null
  /** Faults seen in this sample, in words with what to do. */
  readonly warnings: readonly string[]
}

const watts = (milliwatts: number | null): number | null => (milliwatts === null ? null : milliwatts / 1000)

/** One entry per process: those that compute and draw are in both lists of the driver. */
function mergeProcesses(raw: NvmlSample['processes']): readonly GpuProcess[] | null {
  if (!raw) return null
  const byPid = new Map<number, GpuProcess>()
  for (const process of raw) {
    const other = byPid.get(process.pid)
    const bytes = other?.bytes == null ? process.bytes : Math.max(other.bytes, process.bytes ?? 0)
    byPid.set(process.pid, { ...process, bytes, kind: other?.kind ?? process.kind })
  }
  return [...byPid.values()]
}

function memoryOf(gpu: GpuInfo, raw: NvmlSample, processes: GpuSample['processes']): GpuSample['memory'] {
  if (!gpu.integrated && raw.memory) return { used: raw.memory.used, total: raw.memory.total }
  const used =
    gpu.integrated && processes ? processes.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0) : null
  return { used, total: gpu.memory.total }
}

/** Turns what NVML measured into a sample; `lastThrottled` are the counters of the sample before. */
export function toSample(
  time: number,
  gpu: GpuInfo,
  raw: NvmlSample,
  lastThrottled: NvmlSample['throttled'] | undefined,
): GpuSample {
  const processes = mergeProcesses(raw.processes)
  return {
    time,
    gpu: { index: gpu.index, name: gpu.name, uuid: gpu.uuid },
    utilization: raw.utilization,
    memory: memoryOf(gpu, raw, processes),
    temperature: raw.temperature,
    power: watts(raw.power),
    powerLimit: watts(raw.powerLimit),
    clocks: {
      graphics: raw.graphicsClock,
      sm: raw.smClock,
      memory: raw.memoryClock,
      video: raw.videoClock,
      maxSm: raw.maxSmClock,
    },
    throttleReasons: throttleReasons(raw, lastThrottled),
    processes,
    warnings: isSparkGpu(gpu) ? clockWarnings(raw) : [],
  }
}
