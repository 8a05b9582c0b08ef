// gguf-weights.ts: the weights of a GGUF file.
import type { Pacer } from '../../core/paced.js'
import type { GgufFile, GgufTensor } from '../../io/gguf/file.js'
import { blockWeight } from '../../weights/block-weight.js'
import { unusedNames } from '../architectures/weight-names.js'
import { LoadedWeights } from './loaded-weights.js'
import { FloatTensor, type FloatType, type ModelTensor, matrixSizes, tensorOf } from './model-tensors.js'

const floatTypes: Readonly<Record<string, FloatType>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' }

/**
 * The weights of a GGUF file. Vectors are read; matrices stay in the file until something reads them.
 * @throws SparkError ERR_IO, ERR_FORMAT; ERR_UNSUPPORTED for formats that cannot be decoded
 */
export async function loadGgufWeights(file: GgufFile, pacer: Pacer): Promise<LoadedWeights> {
  const tensors = new Map<string, ModelTensor>()
  for (const tensor of file.tensors.values()) {
    await pacer.pause()
    if (!unusedNames.test(tensor.name)) tensors.set(tensor.name, await openTensor(tensor))
  }
  return new LoadedWeights(tensors)
}

/** A tensor; its blocks stay as they are where kernels read them. */
async function openTensor(tensor: GgufTensor): Promise<ModelTensor> {
  const { format, shape } = tensor
  if (shape.length >= 2) return tensorOf(shape, blockWeight(format, ...matrixSizes(shape), tensor))
  const float = floatTypes[format]
  if (float) return FloatTensor.of(shape, float, await tensor.load())
  const { buffer } = await tensor.values()
  return FloatTensor.of(shape, 'f32', new Uint8Array(buffer))
}
