// input.ts: what is written to GGUF files.
import type { ElementArray } from '../../core/dtype.js'
import type { EncodedFormat } from '../../weights/blocks/encode.js'
import type { BlockFormat } from '../../weights/blocks/formats.js'
import type { GgufValue } from './values.js'

/** A tensor for `writeGguf`: elements as they are stored, or numbers to round. A tensor of `readGguf` fits. */
export type GgufTensorInput =
  | {
      /** Its name. */
      readonly name: string
      /** How its elements are stored. */
      readonly format: BlockFormat
      /** Sizes of the dimensions, outermost first; at most 4. */
      readonly shape: readonly number[]
      /** Gives the elements as they are stored, when they are written. */
      load(): ElementArray | Promise<ElementArray>
    }
  | {
      /** Its name. */
      readonly name: string
      /** What its elements are rounded to. */
      readonly format: EncodedFormat
      /** Sizes of the dimensions, outermost first; at most 4. */
      readonly shape: readonly number[]
      /** Gives the numbers, row-major, when they are written. */
      values(): Float32Array | Promise<Float32Array>
    }

/** What `writeGguf` writes. */
export interface GgufInput {
  /** The metadata by key, in the order of the file. `general.alignment` (u32) is obeyed. Default: none. */
  readonly metadata?: Iterable<readonly [string, GgufValue]> | Readonly<Record<string, GgufValue>>
  /** The tensors, in the order of the file. Default: none. */
  readonly tensors?: Iterable<GgufTensorInput>
}
