// scheme.ts: a way in which a matrix is stored in several tensors.
import type { OrderedWeight } from '../../weights/ordered-weight.js'
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
  fits(tensor: StoredTensor, quantization: Quantization, parts: Parts): boolean
  /** How many matrices are in it, of as many rows, where there may be several. */
  experts?(tensor: StoredTensor): number
  /**
   * Reads the matrix, or the rows of all of them.
   * @throws SparkError ERR_FORMAT naming a tensor that is missing or does not fit the others
   */
  read(parts: Parts, quantization: Quantization): Promise<Weight | OrderedWeight>
}
