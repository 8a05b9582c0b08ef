// weight-args.ts: a frozen weight as kernels take it.
export type { Weight, WeightFormat } from '../weights/weight.js'

/** What products are formed of: see `Compute` in native/backend/weight.h. */
export type Compute = 'f32' | 'bf16' | 'f16' | 'nvfp4'

/** The same where there is no product of 4-bit codes. */
export type FloatCompute = Exclude<Compute, 'nvfp4'>
