// gpu-sample.ts: one GPU measurement, converted from NVML's values.
import type { NvmlSample } from '../native.js'
import type { GpuInfo } from './gpu.js'
import { isSparkGpu } from './spark.js'
import { normalizeName, readText } from './system-files.js'
import { clockWarnings, type ThrottleReason, throttleReasons } from './throttling.js'

/** A process that uses a GPU. */
export interface GpuProcess {
  /** Process id. */
  readonly pid: number
  /** Its name, as /proc/<pid>/comm tells; null where that cannot be read. */
  readonly name: string | null
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
    /** Whether it is the machine's memory, which CPU and GPU share. */
    readonly isShared: boolean
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
  /** Faults seen in this sample and in those before it, in words with what to do. */
  readonly warnings: readonly string[]
}

const watts = (milliwatts: number | null): number | null => (milliwatts === null ? null : milliwatts / 1000)

/** One entry per process: those that compute and draw are in both lists of the driver. */
function mergeProcesses(
  raw: NvmlSample['processes'],
  nameOf: (pid: number) => string | null,
): readonly GpuProcess[] | null {
  if (!raw) return null
  const byPid = new Map<number, GpuProcess>()
  for (const process of raw) {
    const other = byPid.get(process.pid)
    const bytes = other?.bytes == null ? process.bytes : Math.max(other.bytes, process.bytes ?? 0)
    byPid.set(process.pid, {
      ...process,
      name: nameOf(process.pid),
      bytes,
      kind: other?.kind ?? process.kind,
    })
  }
  return [...byPid.values()]
}

function memoryOf(gpu: GpuInfo, raw: NvmlSample, processes: GpuSample['processes']): GpuSample['memory'] {
  const isShared = gpu.integrated === true
  if (!isShared && raw.memory) return { used: raw.memory.used, total: raw.memory.total, isShared }
  const used = isShared && processes ? processes.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0) : null
  return { used, total: gpu.memory.total, isShared }
}

/** The name of a process below `root`, runs of white space collapsed. */
export const processName = (root: string, pid: number): string | null =>
  normalizeName(readText(root, `proc/${pid}/comm`))

/**
 * Turns what NVML measured into a sample; `lastThrottled` are the counters of the sample before. Its warnings are those
 * that one sample shows.
 */
export function toSample(
  time: number,
  gpu: GpuInfo,
  raw: NvmlSample,
  lastThrottled: NvmlSample['throttled'] | undefined,
  nameOf: (pid: number) => string | null,
): GpuSample {
  const processes = mergeProcesses(raw.processes, nameOf)
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
