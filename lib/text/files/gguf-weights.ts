// gguf-weights.ts: the weights of a GGUF file.
import { SparkError } from '../../core/errors.js'
import type { Pacer } from '../../core/paced.js'
import type { GgufFile, GgufTensor } from '../../io/gguf/file.js'
import { blockWeight } from '../../weights/block-weight.js'
import { decodeWeight } from '../../weights/encode.js'
import type { LazyWeight } from '../../weights/lazy-weight.js'
import type { Weight } from '../../weights/weight.js'
import { unusedNames } from '../architectures/weight-names.js'
import { LoadedWeights } from './loaded-weights.js'
import {
  FloatTensor,
  type FloatType,
  type ModelTensor,
  matrixSizes,
  tensorOf,
  usableScale,
} from './model-tensors.js'

const floatTypes: Readonly<Record<string, FloatType>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' }

/**
 * The weights of a GGUF file. Vectors are read; matrices stay in the file until something reads them. Those of NVFP4 are multiplied with
 * the scale that the file has for them, and know that of their activations.
 * @throws SparkError ERR_IO, ERR_FORMAT; ERR_UNSUPPORTED for formats that cannot be decoded
 */
export async function loadGgufWeights({ tensors }: GgufFile, pacer: Pacer): Promise<LoadedWeights> {
  const scales = new Map<GgufTensor, GgufTensor>()
  for (const tensor of tensors.values()) {
    const scale = tensors.get(tensor.name.replace(/\.weight$/, '.scale'))
    if (tensor.format === 'NVFP4' && scale && scale !== tensor) scales.set(tensor, scale)
  }
  const used = new Set(scales.values())
  const opened = new Map<string, ModelTensor>()
  for (const tensor of tensors.values()) {
    await pacer.pause()
    if (unusedNames.test(tensor.name) || used.has(tensor)) continue
    const input = tensors.get(tensor.name.replace(/\.weight$/, '.input_scale'))
    const inputScale =
      tensor.format === 'NVFP4' && input && input !== tensor ? await inputScaleOf(input) : undefined
    opened.set(tensor.name, await openTensor(tensor, scales.get(tensor), inputScale))
  }
  return new LoadedWeights(opened)
}

/** A tensor; its blocks stay as they are where kernels read them. */
async function openTensor(
  tensor: GgufTensor,
  scale: GgufTensor | undefined,
  inputScale: number | undefined,
): Promise<ModelTensor> {
  const { format, shape } = tensor
  if (shape.length >= 2) {
    const open = (factor: number): LazyWeight => blockWeight(format, ...matrixSizes(shape), tensor, factor)
    return tensorOf(shape, scale ? scaledWeight(open, await scalesOf(scale, shape)) : open(1), inputScale)
  }
  const float = floatTypes[format]
  if (float) return FloatTensor.of(shape, float, await tensor.load())
  const { buffer } = await tensor.values()
  return FloatTensor.of(shape, 'f32', new Uint8Array(buffer))
}

/** The scale of the activations of one matrix. */
async function inputScaleOf(tensor: GgufTensor): Promise<number | undefined> {
  const scales = await tensor.values()
  return scales.length === 1 ? usableScale(scales[0]) : undefined
}

/** One scale, or one for each expert. */
async function scalesOf(scale: GgufTensor, shape: readonly number[]): Promise<Float32Array> {
  const experts = shape.length === 3 ? shape[0]! : 1
  const scales = await scale.values()
  const isUsable = scales.length === 1 || scales.length === experts
  if (isUsable && scales.every(Number.isFinite)) return scales
  const found = isUsable ? `has the scales ${scales.join(', ')}` : `has ${scales.length} scales`
  const message = `tensor '${scale.name}' ${found}; expected ${experts} finite numbers, or one`
  throw new SparkError('ERR_FORMAT', message)
}

/** A weight with its scale; experts whose scales differ are decoded. */
function scaledWeight(open: (scale: number) => LazyWeight, scales: Float32Array): LazyWeight {
  const first = scales[0]!
  if (scales.every(scale => scale === first)) return open(first)
  const weight = open(1)
  const { rows, cols } = weight
  const size = (rows * cols) / scales.length
  const inFloats = (read: Weight): Weight => {
    const data = decodeWeight(read).map((value, i) => value * scales[Math.floor(i / size)]!)
    return { format: 'f32', rows, cols, data }
  }
  const load = async (): Promise<Weight> => inFloats(await weight.load())
  return { format: 'f32', rows, cols, read: () => inFloats(weight.read()), load }
}
