import type { DType, DTypeArray } from '../core/dtype.js'

/** Arguments of the casts and quantizers, part of KernelArgs of lib/runtime/kernels.ts. */
export interface PrecisionKernelArgs {
  cast: {
    srcDtype: DType
    dstDtype: DType
    count: number
    saturate: boolean
    src: DTypeArray
    dst: DTypeArray
  }
  amax: { dtype: DType; count: number; src: DTypeArray; out: Float32Array }
  nvfp4Quantize: {
    srcDtype: DType
    rows: number
    cols: number
    tensorScale: number
    src: DTypeArray
    packed: Uint8Array
    blockScale: Uint8Array
  }
  nvfp4Dequantize: {
    rows: number
    cols: number
    tensorScale: number
    packed: Uint8Array
    blockScale: Uint8Array
    dst: Float32Array
  }
  fp8Quantize: {
    srcDtype: DType
    rows: number
    cols: number
    src: DTypeArray
    codes: Uint8Array
    rowScale: Float32Array
  }
}
