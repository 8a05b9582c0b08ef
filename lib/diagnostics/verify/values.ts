// values.ts: what the cases of `dgx-spark verify` are made of.
import type { ElementArray, HalfType } from '../../core/dtype.js'
import { floatWriter } from '../../kernels/js/elements.js'
import type { KernelArgs, KernelOp } from '../../kernels/kernels.js'

/** One operation with seeded inputs and empty outputs. */
export interface VerifyCase<Op extends KernelOp = KernelOp> {
  readonly op: Op
  /** What is special about it: formats, sizes. */
  readonly variant: string
  /** Arguments with fresh outputs; the same inputs at every call. */
  readonly args: () => KernelArgs[Op]
  /** What the reference takes instead of some of them, because only a GPU has such a kernel. */
  readonly referenceArgs?: Partial<KernelArgs[Op]> | undefined
  /** Names of the outputs among the arguments; of one in a list, its path: `tensors.0.param`. */
  readonly outputs: readonly string[]
  /** Allowed max|a - b| / max|b|; 0 means bit-equal. */
  readonly tolerance: number
}

/** The object that has an output, and its name there. */
export function ownerOf(args: object, path: string): [owner: Record<string, ElementArray>, name: string] {
  const keys = path.split('.')
  const name = keys.pop()!
  return [keys.reduce((part: object, key) => part[key as keyof typeof part], args) as never, name]
}

/** Sizes of the operands. */
export interface VerifySizes {
  /** Rows of an activation. */
  readonly tokens: number
  /** Out features. */
  readonly rows: number
  /** In features. Cases of nvfp4 are left out where this is no multiple of 16. */
  readonly cols: number
  /** Rank of the adapter. */
  readonly rank: number
}

/** Odd sizes that every machine computes in no time. */
export const verifySizes: VerifySizes = { tokens: 5, rows: 33, cols: 48, rank: 3 }

/** f32 sums in another order: a few ulp times the square root of the length. */
export const sumTolerance = ({ tokens, rows, cols }: VerifySizes): number =>
  5e-6 * Math.sqrt(Math.max(tokens, rows, cols) / 48)

/** For operands that one side may round to bf16 before they are multiplied. */
export const bf16Tolerance = 2e-2

/** For operands that one side may round to f16. */
export const halfTolerance = 3e-3

/** For operands that all sides round to NVFP4 alike: f32 sums, of which FP4 tensor cores may drop the last bits. */
export const nvfp4Tolerance = 2e-3

/** Seeded values in [-1, 1). */
export function values(count: number, seed: number): Float32Array {
  let state = seed * 2654435761 || 1
  return Float32Array.from({ length: count }, () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) / 2 ** 31 - 1
  })
}

/** Floats rounded to 16 bits. */
export function rounded(type: HalfType, floats: Float32Array): Uint16Array {
  const array = new Uint16Array(floats.length)
  const write = floatWriter(type, array)
  for (const [i, value] of floats.entries()) write(i, value)
  return array
}

/** Zeros. */
export const f32 = (count: number): Float32Array => new Float32Array(count)

type OutputPath<Name extends string> = Name | `${Name}.${number}.${string}`

/** One case; `args` is called once for each engine. */
export function verifyCase<Op extends KernelOp>(
  op: Op,
  variant: string,
  outputs: readonly OutputPath<keyof KernelArgs[Op] & string>[],
  tolerance: number,
  args: () => KernelArgs[Op],
  referenceArgs?: Partial<KernelArgs[Op]>,
): VerifyCase {
  return { op, variant, outputs, tolerance, args, referenceArgs } as unknown as VerifyCase
}
