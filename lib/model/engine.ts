// engine.ts: the interface of an engine, which runs a model.
import { type BackendName, backendNames } from '../core/config.js'
import type { ElementArray } from '../core/dtype.js'
import type { GpuSelector } from '../hardware/cuda-device.js'
import type { Kernels, PlanCommunicator } from '../kernels/kernels.js'
import type { MemoryUse } from '../plan/compile.js'
import type { Plan } from '../plan/plan.js'
import type { StepTime } from '../plan/step-time.js'
import type { HostTensor, HostValue } from './values.js'
import type { WeightCacheOptions } from './weight-cache.js'

/** Engines a model can run on; `onnxruntime` is the package onnxruntime-node, where it is installed. */
export type ModelBackend = BackendName | 'onnxruntime'

/** All of them. */
export const modelBackends: readonly ModelBackend[] = [...backendNames, 'onnxruntime']

/** The engine that runs a model. */
export interface ModelBackendChoice {
  /** Its name. */
  readonly name: Exclude<ModelBackend, 'auto'>
  /** Why it was chosen, in words. */
  readonly reason: string
}

/** What the plans of a model are made of; sums over all of them. Engines other than our own tell nothing. */
export interface ModelStats {
  /** Plans that are kept: one for each segment of the graph and each set of shapes. */
  readonly plans: number
  /** Compilations that are kept: what was compiled holds for all sizes that behave as those of its first run. */
  readonly compilations: number
  /** Kernel calls in them. */
  readonly steps: number
  /** Kernel calls that were made once, on constants. */
  readonly setupSteps: number
  /** Bytes for values in between. */
  readonly arenaBytes: number
  /** The most bytes of them that are alive at once: no layout can be smaller. */
  readonly lowerBound: number
  /** Bytes of weights and other constants that runs read, in the format in which they are kept. */
  readonly constantBytes: number
  /** Milliseconds that compilation has taken: rewrites, planning, and what is computed once on constants. */
  readonly compileMs: number
  /** How often each fusion was made. */
  readonly fusions: Readonly<Record<string, number>>
}

/** Options of a run. */
export interface EngineRunOptions {
  /** Ends it. */
  readonly signal?: AbortSignal | undefined
  /** Places of the outputs that are wanted. Default: all. */
  readonly outputs?: readonly number[] | undefined
}

/** Runs a model. One run at a time. */
export interface Engine {
  /** Which engine it is. */
  readonly choice: ModelBackendChoice
  /** Numbers for reports. */
  readonly stats: ModelStats
  /** The outputs; tensors may lie in memory that the next run overwrites. */
  run(inputs: readonly HostValue[], options?: EngineRunOptions): Promise<readonly HostValue[]>
  /** A plan on arrays of the caller, by name. */
  bind(inputs: readonly HostTensor[], buffers: ReadonlyMap<string, ElementArray>): Promise<Plan>
  /** How long each step of the plans of the last run takes, on its inputs. */
  profile(runs: number): Promise<readonly StepTime[]>
  /** Memory for a state, where plans work on it without copies; engines without it work on any array. */
  readonly holdZeros?: Kernels['holdZeros']
  /** Milliseconds that the plans of the last run took on a device; null where an engine does not measure, or has not begun to. */
  deviceMs?(): number | null
  /** Frees what the next run makes again: bound plans and their memory. Engines without it keep nothing of the kind. */
  trim?(): void
  /** Frees what it holds. */
  dispose(): void
}

/** Where ONNX Runtime computes: its name for an execution provider, or such a name with the provider's settings. */
export type RuntimeProvider = string | ProviderSettings

/** An execution provider of ONNX Runtime with its settings. */
export interface ProviderSettings {
  /** Its name for the provider, such as `cuda`. */
  readonly name: string
  /** What it knows. */
  readonly [setting: string]: unknown
}

/** On what a model runs. */
export interface EngineOptions {
  /** Engine; by default what DGX_SPARK_BACKEND says, or `auto`. */
  backend?: ModelBackend
  /** Which GPU. Default: the best one. */
  device?: GpuSelector | undefined
  /**
   * Threads that computations on the CPU may use, this library's and those of `onnxruntime`; 0: one per core, or as many
   * as a CPU quota feeds. Default: what DGX_SPARK_THREADS says, or 0. Models share one pool of threads; one with a single
   * thread leaves it alone.
   */
  threads?: number | undefined
  /**
   * What counts more on the CPU: `fast` runs, or `small` weights, which are then kept in no layout that takes more memory than the
   * weights themselves. Results differ in rounding. Default: fast.
   */
  memory?: MemoryUse
  /**
   * Keeps weights on the disk as kernels of the CPU read them, for later processes that load the same file: `true` in the user's cache
   * folder, or where the settings say. Weights of precision modes are not kept. Default: the folder that
   * DGX_SPARK_WEIGHT_CACHE names, or false.
   */
  weightCache?: boolean | WeightCacheOptions
  /**
   * Where `onnxruntime` computes: cpu, cuda, tensorrt, dml, coreml, webgpu …, or `{ name, …settings }`, as
   * onnxruntime-node takes it. Default: cpu.
   */
  provider?: RuntimeProvider
  /**
   * The rank that this model is of a world that shares its work, for graphs of `splitGraph`: a communicator of dgx-spark/cluster. All
   * ranks run their models in the same order. A run that fails ends the communicator. On a GPU it must be one of NCCL, on the same
   * device. Default: none.
   */
  communicator?: PlanCommunicator | undefined
}
