// result.ts: what a benchmark gives, as data that JSON can hold.
import type { MonitorSummary } from '../hardware/monitor-statistics.js'
import type { BenchmarkMachine } from './machine.js'
import type { Latency } from './statistics.js'

/** Energy of one inference, in joules; null where it cannot be read. */
export interface InferenceEnergy {
  /** Of the processor packages (RAPL), all that ran on them included. */
  readonly cpu: number | null
  /** Of the GPU: the integral of its sampled power, all that ran on it included. */
  readonly gpu: number | null
  /** Why a value is missing, in words. */
  readonly why: readonly string[]
}

/** What of the machine was used during the timed runs. */
export interface ResourceUse {
  /** Time of the process on all cores; null for a program of its own. */
  readonly cpu: {
    /** Milliseconds in user code. */
    readonly user: number
    /** Milliseconds in the kernel. */
    readonly system: number
    /** Cores that were busy on average. */
    readonly cores: number
  } | null
  /** Memory in bytes. */
  readonly memory: {
    /** Of the whole process after the timed runs; null for a program of its own. */
    readonly rss: number | null
    /** By how much the process grew while the model was loaded and warmed up; null for a program of its own. */
    readonly growth: number | null
    /** What the machine had left, which a GPU that shares its memory has as well. */
    readonly available: number
  }
  /** Samples of the GPU; null without one that can be sampled. */
  readonly gpu: MonitorSummary | null
  /** Energy of one inference. */
  readonly energy: InferenceEnergy
}

/** Elements of an output. */
export interface OutputValues {
  /** Name of the output. */
  readonly name: string
  /** Its sizes. */
  readonly shape: readonly number[]
  /** Its elements in row-major order; in files, those that are not finite are texts, such as 'NaN'. */
  readonly values: readonly (number | string)[]
}

/** Times and resources of one model in one engine. */
export interface BenchmarkMeasurement extends Latency {
  /** What was measured, such as `cpu fp32` or `onnxruntime cpu`; unique in a result. */
  readonly name: string
  /** The engine, such as `cpu`, `onnxruntime`, `trtexec`. */
  readonly backend: string
  /** Format of the weights; null: that of the file. */
  readonly precision: string | null
  /** Inferences of a second: `batch` / mean; of trtexec, which overlaps runs, what it says. */
  readonly throughput: number
  /** Milliseconds of each timed run; empty where a program tells no single times. */
  readonly samples: readonly number[]
  /** Number of timed runs. */
  readonly runs: number
  /** Milliseconds until the model was loaded. */
  readonly loadMs: number
  /** Milliseconds of the first run, which compiles; null for a program of its own. */
  readonly firstMs: number | null
  /** Mean milliseconds on the device by its events: of CUDA and trtexec; null in other engines. */
  readonly deviceMs: number | null
  /** What it used. */
  readonly use: ResourceUse
  /** Outputs of numbers for the inputs; null where they are unknown, or too many to keep. */
  readonly outputs: readonly OutputValues[] | null
  /** SHA-256 of names, types, shapes and elements of the inputs; null where they are unknown. */
  readonly inputs: string | null
  /** What makes the numbers doubtful, each beginning with `name`; empty when nothing does. */
  readonly warnings: readonly string[]
}

/** What all results have: how and where they were measured. */
export interface BenchmarkRecord {
  /** What makes numbers doubtful, of all that was measured. */
  readonly warnings: readonly string[]
  /** On what it ran. */
  readonly machine: BenchmarkMachine
  /** When it began, as ISO 8601. */
  readonly date: string
  /** Seed of random inputs. */
  readonly seed: number
  /** Runs before the timed ones. */
  readonly warmup: number
  /** Whether it was ended by a signal before all runs were made. */
  readonly interrupted: boolean
}

/** The result of {@link benchmark}: the measurement of the model, and those of its peers. */
export interface BenchmarkResult extends BenchmarkMeasurement, BenchmarkRecord {
  /** File of the model; null for a model that was given loaded. */
  readonly model: string | null
  /** Inferences in one run. */
  readonly batch: number
  /** What was measured in turns with the model, in the order in which it was given. */
  readonly peers: readonly BenchmarkMeasurement[]
}

/** Latency of one of several models that run together. */
export interface TogetherModel extends Latency {
  /** Name of its file. */
  readonly name: string
  /** The engine. */
  readonly backend: string
  /** Format of the weights. */
  readonly precision: string
  /** Milliseconds of each frame. */
  readonly samples: readonly number[]
}

/** The result of {@link benchmarkTogether}. */
export interface TogetherResult extends BenchmarkRecord {
  /** Frames of a second that were asked for. */
  readonly hz: number
  /** Frames that were run. */
  readonly frames: number
  /** Frames that took longer than 1 / hz. */
  readonly misses: number
  /** Frames that were left out because an earlier one was still running when they were due. */
  readonly dropped: number
  /** Latencies of each model, in their order. */
  readonly models: readonly TogetherModel[]
  /** Latency of a frame: all models, one after another. */
  readonly combined: Latency & {
    /** Milliseconds of each frame, in their order. */
    readonly samples: readonly number[]
  }
  /** What was used from the first frame to the last, pauses included; energy is that of one frame. */
  readonly use: ResourceUse
}
