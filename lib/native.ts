// native.ts: the contract with the addon, and the only place where a .node file is loaded.
import { addonFile } from './core/addon-file.js'
import type { CollectiveAddon, CommunicatorHandle } from './core/collective-addon.js'
import { type CpuIsa, getConfig } from './core/config.js'
import { SparkError } from './core/errors.js'
import { debug, warnOnce } from './core/log.js'
import type { SamplerRow } from './core/sampler-row.js'
import { makeUntransferable } from './core/untransferable.js'

export type { CommunicatorHandle } from './core/collective-addon.js'

/** Memory owned by native code; only the addon can look inside. */
export type MemoryHandle = object & { readonly memoryHandle: never }

/** A compiled plan that native code holds. */
export type PlanHandle = object & { readonly planHandle: never }

/** A handle of {@link Addon.blueprintCreate}. */
export type BlueprintHandle = object & { readonly blueprintHandle: never }

/** A native plan whose steps are being bound, made by {@link Addon.blueprintBind}. */
export type BindingHandle = object & { readonly bindingHandle: never }

/** Memory that steps work on and that stays on a device between their runs: buffers, or the part that a view shows. */
export interface PlanMemory {
  /** The steps write it before they read it, and nobody else looks. */
  readonly scratch?: readonly (ArrayBufferLike | ArrayBufferView)[]
  /** The steps read it, and nobody changes it. */
  readonly constant?: readonly (ArrayBufferLike | ArrayBufferView)[]
  /** The steps change it from run to run. */
  readonly state?: readonly (ArrayBufferLike | ArrayBufferView)[]
  /** The steps read it, and it never changes while any plan reads it: plans on a device share one copy of it. */
  readonly shared?: readonly (ArrayBufferLike | ArrayBufferView)[]
}

/** What an allocation gives. */
export interface Allocation {
  readonly handle: MemoryHandle
  readonly kind: 'managed' | 'pinned' | 'host'
  /** Whether there is a CUDA device that the memory is meant for. */
  readonly cuda: boolean
}

/** A kind of memory that a GPU reaches. */
export type DeviceMemoryKind = 'managed' | 'pinned' | 'device'

/** How fast a kind of memory is on a GPU that shares the host's memory, in 10^9 bytes per second. */
export interface MemorySpeed {
  readonly kind: DeviceMemoryKind
  /** A kernel reads and writes it. */
  readonly resident: number
  /** The CPU writes, a kernel reads and writes, the CPU reads; device memory is copied to and from by way of pinned memory. */
  readonly passing: number
}

/** The kinds of memory that plans use on a GPU. */
export interface MemoryChoice {
  /** Of weights, arena and state. */
  readonly resident: DeviceMemoryKind
  /** Of inputs and outputs; `device` means copies by way of pinned memory. */
  readonly passing: DeviceMemoryKind
  /** Of weights that all plans share, where JavaScript sees them. */
  readonly held: 'managed' | 'pinned'
  /** What the choice rests on; empty on a GPU with memory of its own, where there is none. */
  readonly measured: readonly MemorySpeed[]
}

/** Live memory blocks, in bytes unless said otherwise. */
export interface BlockStats {
  /** Number of blocks. */
  readonly blocks: number
  readonly managed: number
  readonly pinned: number
  readonly device: number
  readonly host: number
  /** The most bytes that were alive at once. */
  readonly peak: number
}

/** Bytes, as NVML tells them. */
export interface NvmlMemory {
  total: number
  free: number
  used: number
}

/** One GPU as NVML sees it. A value it does not give is null, and `unavailable` has NVML's words for why. */
export interface NvmlDevice {
  /** NVML's order, that of nvidia-smi. */
  index: number
  name: string | null
  uuid: string | null
  /** Bus id as NVML writes it, `0000000F:01:00.0`. */
  pci: string | null
  /** device << 16 | vendor */
  pciId: number | null
  computeCapability: string | null
  memory: NvmlMemory | null
  /** Why the GPU cannot be used. */
  problem: string | null
  unavailable: Record<string, string>
}

/** What NVML says of the machine; `reason` says why it cannot be used, or is null. */
export interface NvmlReport {
  reason: string | null
  driver: string | null
  /** Newest CUDA the driver runs, 13000 for 13.0. */
  cudaVersion: number | null
  devices: NvmlDevice[]
}

/** One device as the CUDA driver lists it. */
export interface CudaDevice {
  /** CUDA's order, which differs from NVML's. */
  ordinal: number
  name: string | null
  uuid: string | null
  pci: string | null
  computeCapability: string | null
  /** Bytes in all. */
  memory: number | null
  smCount: number | null
  integrated: boolean | null
  pageableMemoryAccess: boolean | null
  managedMemory: boolean | null
  concurrentManagedAccess: boolean | null
}

/** What the CUDA driver says of the machine; `reason` says why it cannot be used, or is null. */
export interface CudaReport {
  reason: string | null
  /** Why the driver cannot load the kernels of this addon, and which one can; null when it can. */
  kernelsProblem: string | null
  version: number | null
  devices: CudaDevice[]
}

/** Whether cuBLASLt can be used; `reason` says why not, or is null. */
export interface CublasLtReport {
  reason: string | null
  library: string | null
  /** 130100 for 13.1.0. */
  version: number | null
}

/** One measurement of a GPU by NVML. A value it does not give is null. */
export interface NvmlSample {
  /** Percent. */
  utilization: number | null
  memory: NvmlMemory | null
  /** °C */
  temperature: number | null
  /** mW */
  power: number | null
  powerLimit: number | null
  /** MHz */
  graphicsClock: number | null
  smClock: number | null
  memoryClock: number | null
  videoClock: number | null
  maxSmClock: number | null
  /** nvmlClocksEventReasons bits. */
  eventReasons: number | null
  /** How long the GPU was held back so far; only growth has a meaning. */
  throttled: Record<'powerCap' | 'thermal' | 'hardwareThermal' | 'powerBrake', number | null>
  processes: { pid: number; bytes: number | null; kind: 'compute' | 'graphics' }[] | null
  unavailable: Record<string, string>
}

/** Everything the addon exports, in the order of native/addon.cc; communicators are in core/collective-addon.ts. */
export interface Addon extends CollectiveAddon {
  /** Hands over what the addon calls. Called once by the loader. */
  initialize(errorClass: typeof SparkError, makeUntransferable: (buffer: ArrayBuffer) => void): void

  // hardware
  /** Asks NVML about every GPU; looks each time. */
  queryNvml(): Promise<NvmlReport>
  /** Lists the devices of the CUDA driver, as it found them when it started. */
  queryCuda(): Promise<CudaReport>
  /** Measures a GPU. Rejects with ERR_NO_CUDA without NVML, ERR_CUDA when the GPU is unknown or lost. */
  sampleGpu(uuid: string): Promise<NvmlSample>
  /** Opens cuBLASLt. */
  queryCublasLt(): Promise<CublasLtReport>
  /** Families of CUDA kernels in this addon; empty when it was built without nvcc. */
  kernelFamilies(): string[]

  // memory
  /** Allocates off the JavaScript thread, opening the CUDA device when the kind needs it. */
  allocate(request: {
    bytes: number
    kind: 'auto' | 'managed' | 'pinned' | 'host'
    device: number
    zeroed: boolean
    /** Whether `auto` may choose managed or pinned memory. */
    unified: boolean
  }): Promise<Allocation>
  /** Zero-filled host memory at once. */
  allocateHost(bytes: number): Allocation
  /** Memory that an open CUDA device reads fastest; views of it may have no elements, but name it to plans on that device. */
  allocateApart(ordinal: number, bytes: number): Promise<{ readonly handle: MemoryHandle }>
  /** Copies bytes, which nobody may write or transfer meanwhile, to where the device of a block finds them. */
  upload(handle: MemoryHandle, byteOffset: number, source: Uint8Array): Promise<void>
  /** An ArrayBuffer over the memory, or null where Node refuses external memory. */
  view(handle: MemoryHandle, byteOffset: number, bytes: number): ArrayBuffer | null
  read(handle: MemoryHandle, byteOffset: number, target: Uint8Array): void
  write(handle: MemoryHandle, byteOffset: number, source: Uint8Array): void
  copy(
    source: MemoryHandle,
    sourceOffset: number,
    target: MemoryHandle,
    targetOffset: number,
    bytes: number,
  ): void
  /** Whether the driver took the hint. */
  prefetch(handle: MemoryHandle, toGpu: boolean): boolean
  /** `advice` is a CUmem_advise. Whether the driver took the hint. */
  advise(handle: MemoryHandle, advice: number, gpu: boolean): boolean
  /** Detaches the views and drops the memory. */
  dispose(handle: MemoryHandle): void
  memoryStats(): BlockStats
  /** Whether Node makes ArrayBuffers over foreign memory; Electron does not. */
  externalBuffers(): boolean
  /** Test hook: behave as in Electron. */
  refuseExternalBuffers(refuse: boolean): void

  // kernels
  /** Whether the backend has a kernel for the operation. */
  supports(backend: 'cpu' | 'cuda', op: string): boolean
  /** Names of the operations and of the functions of `unary` and `binary`. */
  kernelNames(): Record<'operations' | 'unary' | 'binary', string[]>
  /** Opens a CUDA device and loads its kernels, which can take hundreds of ms; must come before runCuda. */
  openDevice(ordinal: number): Promise<void>
  /** Kinds of memory that plans use on an open CUDA device; measured once in a process where there is a choice. */
  measureMemory(ordinal: number): Promise<MemoryChoice>
  /** Bytes that are free on a CUDA device that is open. */
  deviceFreeBytes(ordinal: number): number
  /** As runAsync, on a CUDA device that is open. */
  runCuda(ordinal: number, op: string, args: object): Promise<void>
  /**
   * What is wrong with the products that one way forms on FP4 tensor cores, '' when they equal the CPU's, null when there
   * are none. It may ruin the context or never end: for a process of its own.
   */
  testFp4(ordinal: number, way: 'own' | 'cublaslt'): Promise<string | null>
  /** What forms products with compute 'nvfp4', besides tensor cores for bf16; only these before the first answer, which stands. */
  allowFp4(ordinal: number, own: boolean, cublaslt: boolean): void
  /** Performs an operation of lib/kernels/kernels.ts on the CPU before it returns. */
  run(op: string, args: object): void
  /** The same off the JavaScript thread. What could be transferred meanwhile is copied; not so operands that are `owned`. */
  runAsync(op: string, args: object, owned?: boolean): Promise<void>
  /** Makes sure that the memory of an array can no longer be transferred, so that kernels use it where it is. */
  hold(array: ArrayBufferView): void
  /** Detaches a buffer that nobody reads any more, so that its memory goes at once. */
  release(buffer: ArrayBuffer): void
  /** Bytes from the start of a buffer to that of a cache line. */
  linePadding(buffer: ArrayBuffer): number
  /**
   * Threads a CPU kernel may use; 0: as many as `cores`, which CPU kernels may keep busy: where more are awake, those without
   * work sleep at once. Without `cores` that stays as it was, at first those of the machine.
   */
  setThreads(count: number, cores?: number): void
  /** The instruction set that CPU kernels use: what DGX_SPARK_CPU_ISA asks for, or the best one of the machine. */
  cpuIsa(): CpuIsa
  /** Why instructions of {@link Addon.cpuIsa} are not used after all: what a test of their sums found, or ''. */
  cpuIsaProblem(): string
  /** Support of this CPU for bf16 products, if it passed that test: see Bf16Support in kernels.ts. */
  cpuBf16Support(): 'none' | 'simd' | 'matrix'

  // plans
  /**
   * Binds the operands of all steps once, on a CUDA device or else on the CPU; they are held, and kept alive until the
   * plan is disposed. `memory`: what a device does not copy at each run. Unless `graphs` is false it captures the second run as a
   * CUDA graph and replays that then. On the CPU: at most so many `threads`, by default as {@link Addon.setThreads} says. The
   * `communicator` that steps call: on a device one of NCCL. Which of its streams a device runs them on: `stream` modulo their
   * number, and the first one with a communicator; runs on one stream are done in order.
   */
  planCreate(
    steps: readonly { readonly op: string; readonly args: object }[],
    ordinal?: number,
    memory?: PlanMemory,
    graphs?: boolean,
    threads?: number,
    communicator?: CommunicatorHandle,
    stream?: number,
  ): PlanHandle
  /** For steps of the CPU before their sizes are known: see `StepBlueprint` in kernels.ts. `threads` as in planCreate. */
  blueprintCreate(threads?: number, communicator?: CommunicatorHandle): BlueprintHandle
  /** Reads some of the steps and regions. */
  blueprintAdd(
    handle: BlueprintHandle,
    steps: readonly { readonly op: string; readonly args: object }[],
    regions: readonly object[],
  ): void
  /** Begins to bind a plan of these steps to some sizes: the given one, of other sizes, or else a new one. */
  blueprintBind(
    handle: BlueprintHandle,
    sizes: Float64Array,
    arrays: readonly (ArrayBufferView | undefined)[],
    arena: Uint8Array,
    offsets: Float64Array,
    plan?: PlanHandle,
  ): BindingHandle
  /** Binds so many steps more. The plan when these were the last ones. */
  blueprintBindSteps(binding: BindingHandle, count: number): PlanHandle | undefined
  /** Lets the steps go; plans that were bound stay. */
  blueprintDispose(handle: BlueprintHandle): void
  /** Copies the state of a plan on a device to its buffers. */
  planFetch(handle: PlanHandle): Promise<void>
  /** Copies the state of a plan from its buffers to the device. */
  planStore(handle: PlanHandle): Promise<void>
  /** `times` runs, by default one, off the JavaScript thread; ERR_DISPOSED for detached operands. `brief`: a short one is at once. */
  planRun(handle: PlanHandle, brief?: boolean, times?: number): Promise<void> | undefined
  /** Ends repeated runs after the one in progress. */
  planStop(handle: PlanHandle): void
  /** As {@link Addon.planRun} on the CPU, and takes the time of each step. ERR_UNSUPPORTED on a device. */
  planProfile(handle: PlanHandle, brief?: boolean): Promise<void> | undefined
  /** Milliseconds of each step of the last {@link Addon.planProfile}. */
  planStepTimes(handle: PlanHandle): Float64Array
  /** Milliseconds of the last run on a device, by its events; null before the first one behind the first call, and on the CPU. */
  planDeviceMs(handle: PlanHandle): number | null
  /** Why a device runs the steps one by one although it could replay them, or ''. */
  planProblem(handle: PlanHandle): string
  /** Lets the operands go. A second dispose is a no-op. */
  planDispose(handle: PlanHandle): void

  // text
  /** Chooses a token for each row of logits, [rows, vocabulary], off the JavaScript thread. */
  sampleTokens(args: { logits: Float32Array; vocabulary: number; rows: readonly SamplerRow[] }): Promise<void>
}

/** The addon, or why it could not be loaded. */
export type AddonState = { addon: Addon; path: string } | { addon: null; reason: string }

let state: AddonState | undefined

/** Loads the addon on the first call; later calls give the same answer. Never throws. */
export function loadAddon(): AddonState {
  state ??= tryLoad()
  return state
}

/**
 * The addon.
 * @throws SparkError ERR_NO_NATIVE with the reasons and the next command when no native build loads
 */
export function requireAddon(): Addon {
  const loaded = loadAddon()
  if (loaded.addon) return loaded.addon
  throw new SparkError(
    'ERR_NO_NATIVE',
    `the native addon could not be loaded: ${loaded.reason}; ` +
      'on linux x64 and arm64 (glibc 2.34+) the package brings a prebuilt addon: reinstall dgx-spark; ' +
      'elsewhere build it: node node_modules/dgx-spark/native/build.cjs (needs cmake and a C++20 compiler)',
  )
}

function tryLoad(): AddonState {
  if (process.env.DGX_SPARK_BUILD === 'none') return { addon: null, reason: 'DGX_SPARK_BUILD=none' }
  try {
    const file = addonFile()
    // Not by require, which bundlers take for theirs.
    const loaded = { exports: {} }
    process.dlopen(loaded, file)
    const addon = loaded.exports as Addon
    addon.initialize(SparkError, makeUntransferable)
    checkCpuIsa(addon)
    debug(`addon loaded from ${file}`)
    return { addon, path: file }
  } catch (error) {
    return { addon: null, reason: (error as Error).message.replace(/\s*\n\s*/g, ', ') }
  }
}

function checkCpuIsa(addon: Addon): void {
  const problem = addon.cpuIsaProblem()
  if (problem) warnOnce('SPARK_CPU_ISA', 'kernels', problem)
  const wanted = getConfig().cpuIsa
  const used = addon.cpuIsa()
  if (!wanted || used === wanted) return
  const message = `DGX_SPARK_CPU_ISA=${wanted}: this machine does not have it. ${used} is used.`
  warnOnce('SPARK_CONFIG', 'DGX_SPARK_CPU_ISA', message)
}
