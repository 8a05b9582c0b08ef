// kernel-args.ts: arguments of all kernel operations. The contract, formulas and aliasing, is in the C++ header of each
// family, native/backend/<family>_args.h; field names are the same. Matrices are row-major.
import type { CollectiveKernelArgs } from './collective-args.js'
import type { ConvKernelArgs } from './conv-args.js'
import type { DoraKernelArgs } from './dora-args.js'
import type { IntegerKernelArgs } from './integer-args.js'
import type { LayerKernelArgs } from './layer-args.js'
import type { LinearKernelArgs } from './linear-args.js'
import type { NetworkKernelArgs } from './network-args.js'
import type { PagedKernelArgs } from './paged-args.js'
import type { CastKernelArgs } from './precision-args.js'
import type { StridedKernelArgs } from './strided-args.js'
import type { WeightKernelArgs } from './weight-args.js'

export type * from './collective-args.js'
export type * from './conv-args.js'
export type * from './dora-args.js'
export type * from './integer-args.js'
export type * from './layer-args.js'
export type * from './linear-args.js'
export type * from './network-args.js'
export type * from './paged-args.js'
export type * from './precision-args.js'
export type * from './strided-args.js'
export type * from './weight-args.js'

/** Arguments of each operation by its name; outputs are allocated by the caller. */
export interface KernelArgs
  extends CastKernelArgs,
    WeightKernelArgs,
    LinearKernelArgs,
    ConvKernelArgs,
    CollectiveKernelArgs,
    IntegerKernelArgs,
    DoraKernelArgs,
    NetworkKernelArgs,
    PagedKernelArgs,
    LayerKernelArgs,
    StridedKernelArgs {}

/** Name of an operation. */
export type KernelOp = keyof KernelArgs
