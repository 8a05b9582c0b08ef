/**
 * GPU machine learning for Node.js: on NVIDIA DGX Spark with the GPU, on everything else on the CPU.
 *
 * @packageDocumentation
 */

// tensors
export type { DType, DTypeArray, TypedArrayOf } from './core/dtype.js'
// errors
export { type ErrorCode, SparkError } from './core/errors.js'
// files
export {
  parseSafetensors,
  readSafetensors,
  type SafetensorsData,
  type SafetensorsDType,
  type SafetensorsFile,
  type SafetensorsInput,
  type SafetensorsTensor,
  serializeSafetensors,
  tensorFromRecord,
  type WriteSafetensorsOptions,
  writeSafetensors,
} from './io/safetensors.js'
export { type NestedNumbers, Tensor, type TensorOptions } from './memory/tensor.js'

// precision
export { type CastOptions, cast, decode, encode, type QuantizerInput } from './precision/casts.js'
export { dequantizeFP8, type FP8Matrix, quantizeFP8 } from './precision/fp8.js'
export {
  dequantizeNVFP4,
  type NVFP4Matrix,
  type QuantizeNVFP4Options,
  quantizeNVFP4,
} from './precision/nvfp4.js'
