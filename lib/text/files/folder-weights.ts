// folder-weights.ts: the weights of a folder of Hugging Face.
import { SparkError } from '../../core/errors.js'
import type { Pacer } from '../../core/paced.js'
import { openSafetensorsFolder, type StoredTensor } from '../../io/safetensors-folder.js'
import { unusedNames } from '../architectures/weight-names.js'
import { FloatTensor, type FloatType, type LoadedTensor, LoadedWeights } from './loaded-weights.js'

const floatTypes: Readonly<Record<string, FloatType>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' }

/**
 * Loads the weights of a folder.
 * @throws SparkError ERR_IO; ERR_FORMAT; ERR_UNSUPPORTED for element types that are not known, naming the tensor
 */
export async function loadFolderWeights(folder: string, pacer: Pacer): Promise<LoadedWeights> {
  const tensors = new Map<string, LoadedTensor>()
  for (const tensor of (await openSafetensorsFolder(folder)).values()) {
    await pacer.pause()
    if (!unusedNames.test(tensor.name)) tensors.set(tensor.name, await loadTensor(folder, tensor))
  }
  return new LoadedWeights(tensors)
}

async function loadTensor(folder: string, tensor: StoredTensor): Promise<LoadedTensor> {
  const { name, dtype, shape } = tensor
  const float = floatTypes[dtype]
  if (float) return new FloatTensor(shape, float, await tensor.load())
  const message = `${folder}: tensor '${name}' is ${dtype}; weights of F32, F16 and BF16 are supported`
  throw new SparkError('ERR_UNSUPPORTED', message)
}
