// folder-weights.ts: the weights of a folder of Hugging Face.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { Pacer } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import { readable } from '../../io/checkpoints/blocks.js'
import { findQuantized, type QuantizedMatrices } from '../../io/checkpoints/quantized-matrices.js'
import { isThere, readJson } from '../../io/read-file.js'
import { openSafetensorsFolder, type StoredTensor } from '../../io/safetensors-folder.js'
import { LazyRows } from '../../weights/lazy-weight.js'
import { isOrdered, type OrderedWeight } from '../../weights/ordered-weight.js'
import type { Weight } from '../../weights/weight.js'
import { ConfigReader } from '../architectures/config-reader.js'
import { unusedNames } from '../architectures/weight-names.js'
import { LoadedWeights } from './loaded-weights.js'
import {
  FloatTensor,
  type FloatType,
  type ModelTensor,
  matrixSizes,
  usableScale,
  WeightTensor,
} from './model-tensors.js'
import { readQuantization } from './read-quantization.js'

const floatTypes: Readonly<Record<string, FloatType>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' }

/** The tensors of a folder, and which of them are quantized matrices. */
export interface FolderTensors extends QuantizedMatrices {
  readonly stored: ReadonlyMap<string, StoredTensor>
  /** Content of config.json. */
  readonly config: unknown
}

/**
 * Opens the tensors of a folder.
 * @throws SparkError as {@link loadFolderWeights}
 */
export async function openFolderTensors(folder: string): Promise<FolderTensors> {
  const stored = await openSafetensorsFolder(folder)
  const config = await readJson(path.join(folder, 'config.json'))
  const modelOpt = path.join(folder, 'hf_quant_config.json')
  const settings = (await isThere(modelOpt)) ? await readJson(modelOpt) : undefined
  return { stored, config, ...findQuantized(folder, stored, readQuantization(config, settings)) }
}

/**
 * The weights of a folder. Vectors are read, and quantized matrices in their format; matrices of floats stay in their file until
 * something reads them.
 * @param folder - with config.json, which says how they are quantized, and safetensors files
 * @throws SparkError ERR_IO; ERR_FORMAT; ERR_UNSUPPORTED for element types and quantizations that are not known, naming them
 */
export async function loadFolderWeights(folder: string, pacer: Pacer): Promise<LoadedWeights> {
  const { stored, config, matrices, parts } = await openFolderTensors(folder)
  const isTransposed = transposedExperts(new ConfigReader(config, 'config.json'))
  const tensors = new Map<string, ModelTensor>()
  for (const tensor of stored.values()) {
    if (unusedNames.test(tensor.name) || parts.has(tensor.name)) continue
    await pacer.pause()
    const opened = await openTensor(folder, tensor)
    tensors.set(tensor.name, isTransposed(tensor) ? opened.withSwappedMatrices() : opened)
  }
  for (const [name, { experts, read }] of matrices) {
    await pacer.pause()
    tensors.set(name, weightTensor(await read(), experts, await inputScaleOf(stored, name)))
  }
  return new LoadedWeights(tensors)
}

function weightTensor(
  read: Weight | OrderedWeight,
  experts: number | undefined,
  inputScale: number | undefined,
): WeightTensor {
  if (!isOrdered(read)) return new WeightTensor(readable(read), { experts, inputScale })
  return new WeightTensor(read.weight, { experts, order: read.order })
}

/**
 * The tensor scale of NVFP4 that the activations of a matrix were calibrated for: `input_scale` of ModelOpt, or the reciprocal
 * `input_global_scale` of compressed-tensors; undefined where there is none, or no positive number.
 */
async function inputScaleOf(stored: FolderTensors['stored'], name: string): Promise<number | undefined> {
  const module = name.replace(/\.weight$/, '')
  const scale = stored.get(`${module}.input_scale`)
  const tensor = scale ?? stored.get(`${module}.input_global_scale`)
  if (tensor?.dtype !== 'F32' || numel(tensor.shape) !== 1) return undefined
  const value = new DataView((await tensor.load()).slice().buffer).getFloat32(0, true)
  return usableScale(scale ? value : 1 / value)
}

async function openTensor(folder: string, tensor: StoredTensor): Promise<FloatTensor> {
  const { name, dtype, shape } = tensor
  const float = floatTypes[dtype]
  if (float && shape.length >= 2)
    return new FloatTensor(shape, new LazyRows(float, ...matrixSizes(shape), tensor))
  if (float) return FloatTensor.of(shape, float, await tensor.load())
  const message = `${folder}: tensor '${name}' is ${dtype}; weights of F32, F16 and BF16 are supported`
  throw new SparkError('ERR_UNSUPPORTED', message)
}

/** Tells the matrices of experts that files have as [experts, in features, out features]: those of gpt-oss, unless quantized. */
function transposedExperts(config: ConfigReader): (tensor: StoredTensor) => boolean {
  const isGptOss = config.text('model_type', '') === 'gpt_oss'
  return ({ name, shape }) => isGptOss && shape.length === 3 && name.includes('.mlp.experts.')
}
