// gguf-weights.ts: the weights of a GGUF file.
import type { Pacer } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import type { GgufFile, GgufTensor } from '../../io/gguf/file.js'
import { blockWeight } from '../../weights/block-weight.js'
import { isBlockFormat, type WeightFormat } from '../../weights/formats.js'
import { unusedNames } from '../architectures/weight-names.js'
import {
  FloatTensor,
  type FloatType,
  type LoadedTensor,
  LoadedWeights,
  WeightTensor,
} from './loaded-weights.js'

const floatTypes: Readonly<Record<string, FloatType>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' }

/**
 * Loads the weights of a GGUF file.
 * @throws SparkError ERR_IO, ERR_FORMAT; ERR_UNSUPPORTED for formats that cannot be decoded
 */
export async function loadGgufWeights(file: GgufFile, pacer: Pacer): Promise<LoadedWeights> {
  const tensors = new Map<string, LoadedTensor>()
  for (const tensor of file.tensors.values()) {
    await pacer.pause()
    if (!unusedNames.test(tensor.name)) tensors.set(tensor.name, await loadTensor(tensor))
  }
  return new LoadedWeights(tensors)
}

/** A tensor; its blocks stay as they are where kernels read them. */
async function loadTensor(tensor: GgufTensor): Promise<LoadedTensor> {
  const { format, shape } = tensor
  const float = floatTypes[format]
  if (float) return new FloatTensor(shape, float, await tensor.load())
  if (shape.length >= 2 && isBlockFormat(format.toLowerCase() as WeightFormat)) {
    const cols = shape.at(-1)!
    const weight = blockWeight(format, numel(shape) / cols, cols, await tensor.load())
    return new WeightTensor(weight, shape.length === 2 ? undefined : shape[0])
  }
  const { buffer } = await tensor.values()
  return new FloatTensor(shape, 'f32', new Uint8Array(buffer))
}
