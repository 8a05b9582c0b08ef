// quantized-matrices.ts: finds the quantized matrices of a checkpoint by the tensors that they consist of.
import { SparkError } from '../../core/errors.js'
import type { OrderedWeight } from '../../weights/ordered-weight.js'
import type { Weight } from '../../weights/weight.js'
import { compressedMXFP4, compressedNVFP4, expertsMXFP4, modelOptNVFP4 } from './fp4.js'
import { fp8, int8 } from './fp8.js'
import { awq, compressedIntegers, gptq } from './packed.js'
import { Parts, type StoredTensors } from './parts.js'
import { type Quantization, unknownQuantization } from './quantization.js'
import type { Scheme } from './scheme.js'

/** A quantized matrix, or those of several experts in one tensor. */
export interface QuantizedMatrix {
  /** How many experts there are; undefined: it is one matrix. */
  readonly experts: number | undefined
  /** Names that the tensors have that it consists of; a file may lack some. */
  readonly parts: readonly string[]
  /**
   * Reads it, or the rows of all experts.
   * @throws SparkError ERR_FORMAT naming a tensor that is missing or does not fit the others; ERR_IO
   */
  read(): Promise<Weight | OrderedWeight>
}

/** The quantized matrices of a checkpoint. */
export interface QuantizedMatrices {
  /** By the names that they had before they were quantized. */
  readonly matrices: ReadonlyMap<string, QuantizedMatrix>
  /** Names of all tensors that belong to them, and of those that tell how to quantize activations, keys and values. */
  readonly parts: ReadonlySet<string>
}

/** All schemes; a tensor is one of the first that it fits. */
const schemes: readonly Scheme[] = [
  fp8,
  int8,
  modelOptNVFP4,
  compressedNVFP4,
  compressedMXFP4,
  expertsMXFP4,
  compressedIntegers,
  gptq,
  awq,
]

/** Names of tensors that tell how to quantize activations, keys and values. */
const activations = /\.(input|output|[qkv]|prob)_(scale|zero_point|global_scale)$/

/**
 * Finds the matrices.
 * @param label - what errors call the checkpoint
 * @throws SparkError ERR_FORMAT when a matrix is there twice
 */
export function findQuantized(
  label: string,
  tensors: StoredTensors,
  quantization: Quantization = unknownQuantization,
): QuantizedMatrices {
  const matrices = new Map<string, QuantizedMatrix>()
  const used = new Set<string>()
  for (const [name, tensor] of tensors) {
    if (activations.test(name)) used.add(name)
    for (const scheme of schemes) {
      if (!name.endsWith(scheme.end)) continue
      const module = name.slice(0, -scheme.end.length)
      const parts = new Parts(label, tensors, module)
      if (!scheme.fits(tensor, quantization, parts)) continue
      const full = module + scheme.name
      if (matrices.has(full) || (full !== name && tensors.has(full)))
        throw new SparkError('ERR_FORMAT', `${label}: '${full}' is there twice, once as '${name}'`)
      const read = (): Promise<Weight | OrderedWeight> => scheme.read(parts, quantization)
      const own = [scheme.end, ...scheme.others].map(end => module + end)
      matrices.set(full, { experts: scheme.experts?.(tensor), parts: own, read })
      for (const part of own) used.add(part)
      break
    }
  }
  return { matrices, parts: used }
}
