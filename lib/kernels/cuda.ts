// cuda.ts: the kernels of the addon on a CUDA device.

import { threadId } from 'node:worker_threads'
import type { CommunicatorHandle } from '../core/collective-addon.js'
import { getConfig } from '../core/config.js'
import { type ElementArray, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { warnOnce } from '../core/log.js'
import { cudaDevice, type GpuSelector } from '../hardware/cuda-device.js'
import { type AllocateOptions, type TypedArrayConstructor, UnifiedBuffer } from '../memory/unified-buffer.js'
import { type Addon, type MemorySpeed, requireAddon } from '../native.js'
import { afterFp4, decideFp4 } from './fp4-ways.js'
import type { Compute, DeviceMemory, HeldArray, HoldableArray, Kernels, PlanCommunicator } from './kernels.js'
import { untilStopped } from './until-stopped.js'

/** How many owners of plans (models, trainers, layers) have opened kernels; workers begin elsewhere. */
let owners = threadId

/**
 * The kernels on a GPU, the best one by default. Prepared steps run in order with others of the same opening, beside those of
 * most others.
 * @param communicator - what prepared steps call to work with other ranks, of NCCL
 * @throws SparkError ERR_DISABLED when GPUs are switched off, ERR_NO_NATIVE, ERR_NO_CUDA when there is no such device,
 * ERR_CUDA when it cannot be opened
 */
export async function openCudaKernels(
  device?: GpuSelector,
  communicator?: PlanCommunicator,
): Promise<Kernels> {
  if (!getConfig().enabled) {
    throw new SparkError(
      'ERR_DISABLED',
      "backend 'cuda' was asked for, but GPUs are switched off: set DGX_SPARK_ENABLED=1 or use backend 'auto'",
    )
  }
  const addon = requireAddon()
  const ordinal = await cudaDevice(device)
  await addon.openDevice(ordinal)
  const { held, measured } = await addon.measureMemory(ordinal)
  const kind = held === 'pinned' && getConfig().unifiedMemory ? held : 'auto'
  const ranks = communicator?.native as CommunicatorHandle | undefined
  const stream = ++owners
  const run: Kernels['run'] = (op, args) => {
    if (usesNvfp4(args)) decideFp4(addon, ordinal)
    return afterFp4(ordinal, () => addon.runCuda(ordinal, op, args))
  }
  return {
    backend: 'cuda',
    world: communicator?.world,
    bf16Support: 'matrix',
    freeBytes: () => addon.deviceFreeBytes(ordinal),
    deviceMemory: addon.externalBuffers()
      ? deviceMemory(addon, ordinal, { isShared: measured.length > 0 })
      : undefined,
    heldSpeed: getConfig().unifiedMemory ? heldSpeedOf(held, measured) : undefined,
    supports: op => addon.supports('cuda', op),
    run,
    runOwned: run,
    runSync(op) {
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `${op}: the GPU cannot be waited for; use the method that returns a promise`,
      )
    },
    prepare(steps, memory = {}) {
      const plan = addon.planCreate(steps, ordinal, memory, getConfig().cudaGraphs, undefined, ranks, stream)
      const nvfp4 = steps.some(({ args }) => usesNvfp4(args))
      return {
        async run(signal, times = 1) {
          if (nvfp4) decideFp4(addon, ordinal)
          const run = async (): Promise<void> => addon.planRun(plan, false, times)
          await afterFp4(ordinal, () => (times > 1 ? untilStopped(addon, plan, signal, run) : run()))
          const problem = addon.planProblem(plan)
          if (problem)
            warnOnce('SPARK_CUDA', 'plan', `plans run without CUDA graphs, more slowly: ${problem}`)
        },
        deviceMs: () => addon.planDeviceMs(plan),
        fetch: () => afterFp4(ordinal, () => addon.planFetch(plan)),
        store: () => afterFp4(ordinal, () => addon.planStore(plan)),
        dispose: () => addon.planDispose(plan),
      }
    },
    hold: array => holdOnDevice(array, { device, kind, zeroed: false }),
    async holdZeros(dtype, count) {
      const type = elementArrayOf(dtype)
      expectDeviceBytes(addon, ordinal, count * type.BYTES_PER_ELEMENT)
      return holdZeros(type, count, { device, kind })
    },
  }
}

/** @throws SparkError ERR_OUT_OF_MEMORY, with numbers */
function expectDeviceBytes(addon: Addon, ordinal: number, bytes: number): void {
  const free = addon.deviceFreeBytes(ordinal)
  if (bytes <= free) return
  throw new SparkError(
    'ERR_OUT_OF_MEMORY',
    `${bytes} bytes do not fit on CUDA device ${ordinal}, which has ${free} free: use smaller sizes, or backend 'cpu'`,
  )
}

/** @param how - whether the device computes in the memory of the machine */
function deviceMemory(
  addon: Addon,
  ordinal: number,
  { isShared }: Pick<DeviceMemory, 'isShared'>,
): DeviceMemory {
  return {
    device: ordinal,
    isShared,
    release: buffer => addon.release(buffer),
    async allocate(dtype, count) {
      const type = elementArrayOf(dtype) as Float32ArrayConstructor
      const bytes = count * type.BYTES_PER_ELEMENT
      if (bytes === 0) return { array: new type(0), fill: async () => {}, dispose() {} }
      expectDeviceBytes(addon, ordinal, bytes)
      const { handle } = await addon.allocateApart(ordinal, bytes)
      return {
        array: new type(addon.view(handle, 0, bytes)!, 0, count),
        fill: (at, source) => addon.upload(handle, at, source),
        dispose: () => addon.dispose(handle),
      }
    },
  }
}

/** Measured rates are those of a device that computes in the memory of the machine; others have none. */
function heldSpeedOf(held: string, measured: readonly MemorySpeed[]): number | undefined {
  const rate = measured.find(({ kind }) => kind === held)?.resident
  return rate && rate / Math.max(...measured.map(({ resident }) => resident))
}

function usesNvfp4(args: object): boolean {
  const { compute, yRounded } = args as { readonly compute?: Compute; readonly yRounded?: unknown }
  return compute === 'nvfp4' || yRounded !== undefined
}

async function holdZeros(
  type: TypedArrayConstructor<ElementArray>,
  count: number,
  options: AllocateOptions,
): Promise<HeldArray> {
  const nothing = { array: new type(new ArrayBuffer(0), 0, 0), dispose() {} }
  if (count === 0) return nothing
  const bytes = count * type.BYTES_PER_ELEMENT
  const buffer = await UnifiedBuffer.allocate(bytes, options)
  if (buffer.zeroCopy) return { array: buffer.view(type), dispose: () => buffer.dispose() }
  buffer.dispose()
  return { ...nothing, array: new type(new ArrayBuffer(bytes), 0, count) }
}

async function holdOnDevice<A extends HoldableArray>(
  array: A,
  options: AllocateOptions,
): Promise<HeldArray<A>> {
  const buffer = await UnifiedBuffer.allocate(array.byteLength, options)
  if (!buffer.zeroCopy) {
    buffer.dispose()
    return { array, dispose() {} }
  }
  const held = buffer.view(array.constructor as TypedArrayConstructor<A>)
  ;(held as Float64Array).set(array as Float64Array)
  buffer.prefetch('gpu')
  return { array: held, dispose: () => buffer.dispose() }
}
