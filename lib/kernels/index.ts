/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Kernels of one backend: operations on typed arrays, frozen weights, and prepared sequences of calls. For programs that
 * need more control than models and layers offer.
 *
 * @packageDocumentation
 */

export type { PlanMemory } from '../native.js'
export type * from '../precision/kernel-args.js'
export { decodeWeight, storeWeight, weightBytes } from '../weights/encode.js'
export { releaseWeight } from '../weights/weight.js'
export { holdWeight } from './hold-weight.js'
export type * from './kernel-args.js'
export type {
  Bf16Support,
  BoundStep,
  HeldArray,
  HoldableArray,
  KernelBackend,
  Kernels,
  PreparedSteps,
} from './kernels.js'
export { type KernelOptions, openKernels } from './open.js'
