// quantization.ts: what cannot be read off the tensors of a checkpoint with quantized matrices.

/** Who defines the names and layouts of quantized matrices, as `quant_method` of config.json calls it. */
export const quantizationMethods = [
  'fp8',
  'fbgemm_fp8',
  'modelopt',
  'compressed-tensors',
  'mxfp4',
  'gptq',
  'awq',
] as const

/** How the matrices of a checkpoint are quantized. */
export interface Quantization {
  /** Who defines names and layouts; undefined: nothing but the tensors is known. */
  readonly method?: (typeof quantizationMethods)[number]
  /** Rows and columns of a block of FP8 with a scale of its own. */
  readonly blockSize: number
  /** Added to zero points as they are stored: 1 in the first version of GPTQ's format. */
  readonly zeroOffset: number
}

/** A checkpoint without a configuration. */
export const unknownQuantization: Quantization = { blockSize: 128, zeroOffset: 1 }
