/** Precision modes a model can run in. */
export type Precision = 'fp32' | 'fp16' | 'bf16' | 'fp8' | 'nvfp4'

/** Engines a computation can run on. */
export type BackendName = 'auto' | 'cuda' | 'cpu' | 'js'
