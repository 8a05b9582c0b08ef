/**
 * GPU machine learning for Node.js: on NVIDIA DGX Spark with the GPU, on everything else on the CPU.
 *
 * @packageDocumentation
 */

// errors
export { type ErrorCode, SparkError } from './core/errors.js'

// memory
export {
  type AllocateOptions,
  type CopyOptions,
  type MemoryAdvice,
  type MemoryKind,
  type MemoryStats,
  type TypedArray,
  type TypedArrayConstructor,
  UnifiedBuffer,
} from './memory/unified-buffer.js'
