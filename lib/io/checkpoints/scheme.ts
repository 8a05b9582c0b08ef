// scheme.ts: a way in which a matrix is stored in several tensors.
import type { Weight } from '../../weights/weight.js'
import type { StoredTensor } from '../safetensors-folder.js'
import type { Parts } from './parts.js'
import type { Quantization } from './quantization.js'

/** A way to store a matrix. */
export interface Scheme {
  /** End of the name of the tensor by which it is found. */
  readonly end: string
  /** Ends of the names of the other tensors. */
  readonly others: readonly string[]
  /** End of the name that the matrix had before it was quantized. */
  readonly name: string
  /** Whether a tensor with that end is one of this scheme. */
  fits(tensor: StoredTensor, parts: Parts, quantization: Quantization): boolean
  /** Sizes of the matrix, [..., out features, in features]. */
  shape(tensor: StoredTensor, parts: Parts, quantization: Quantization): readonly number[]
  /**
   * Reads the matrix.
   * @throws SparkError ERR_FORMAT naming a tensor that is missing or does not fit the others
   */
  read(parts: Parts, shape: readonly number[], quantization: Quantization): Promise<Weight>
}

/** Sizes of a matrix whose rows are stored two elements to a byte. */
export const shapeOfPairs = ({ shape }: StoredTensor): readonly number[] => [
  ...shape.slice(0, -1),
  2 * (shape.at(-1) ?? 0),
]
