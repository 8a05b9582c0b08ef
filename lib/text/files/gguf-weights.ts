// gguf-weights.ts: the weights of a GGUF file.
import type { Pacer } from '../../core/paced.js'
import type { GgufFile, GgufTensor } from '../../io/gguf/file.js'
import { unusedNames } from '../architectures/weight-names.js'
import { FloatTensor, type FloatType, type LoadedTensor, LoadedWeights } from './loaded-weights.js'

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

async function loadTensor(tensor: GgufTensor): Promise<LoadedTensor> {
  const { format, shape } = tensor
  const float = floatTypes[format]
  if (float) return new FloatTensor(shape, float, await tensor.load())
  const values = await tensor.values()
  return new FloatTensor(shape, 'f32', new Uint8Array(values.buffer))
}
