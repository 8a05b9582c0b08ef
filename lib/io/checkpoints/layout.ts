// layout.ts: tensor names and layouts of quantized weights in checkpoints of ModelOpt and compressed-tensors.
import { SparkError } from '../../core/errors.js'
import type { Tensor } from '../../memory/tensor.js'
import type { FP8Weight } from '../../precision/fp8.js'
import type { NVFP4Weight } from '../../precision/nvfp4.js'
import type { Weight } from '../../weights/weight.js'
import { type SafetensorsTensor, tensorFromRecord } from '../safetensors.js'

/** Whose names and forms a checkpoint has. */
export type CheckpointLayout = 'modelopt' | 'compressed-tensors'

const scalar = (value: number, shape: readonly number[]): SafetensorsTensor => ({
  dtype: 'F32',
  shape,
  data: Float32Array.of(value),
})

/** The tensors that a quantized matrix is in a file; `module` is the name of the weight without `.weight`. */
export function nvfp4Tensors(
  layout: CheckpointLayout,
  module: string,
  { data, blockScale, tensorScale, rows, cols }: NVFP4Weight,
): [name: string, tensor: SafetensorsTensor][] {
  const codes: SafetensorsTensor = { dtype: 'U8', shape: [rows, cols / 2], data }
  const blocks: SafetensorsTensor = { dtype: 'F8_E4M3', shape: [rows, cols / 16], data: blockScale }
  return layout === 'modelopt'
    ? [
        [`${module}.weight`, codes],
        [`${module}.weight_scale`, blocks],
        [`${module}.weight_scale_2`, scalar(tensorScale, [])],
      ]
    : [
        [`${module}.weight_packed`, codes],
        [`${module}.weight_scale`, blocks],
        [`${module}.weight_global_scale`, scalar(1 / tensorScale, [1])],
      ]
}

/** Ends of names that belong to a quantized weight, and those that only tell how to quantize activations. */
const parts = ['.weight_scale', '.weight_scale_2', '.weight_global_scale']
const activations = ['.input_scale', '.input_global_scale']

/**
 * The weights of a checkpoint of either layout by their names in the unquantized model; scales of activations are left
 * out.
 * @throws SparkError ERR_FORMAT naming a tensor whose scales are missing or do not fit
 */
export function weightsOf(
  file: string,
  tensors: ReadonlyMap<string, SafetensorsTensor>,
): Map<string, Tensor | Weight> {
  const weights = new Map<string, Tensor | Weight>()
  for (const [name, record] of tensors) {
    if ([...parts, ...activations].some(end => name.endsWith(end))) continue
    const module = name.replace(/\.weight(_packed)?$/, '')
    const isCodes = record.dtype === 'U8' && tensors.has(`${module}.weight_scale`)
    if (isCodes) weights.set(`${module}.weight`, readNVFP4(file, tensors, module, record))
    else if (record.dtype === 'F8_E4M3') weights.set(name, readFP8(file, tensors, module, record))
    else weights.set(name, tensorFromRecord(name, record))
  }
  return weights
}

function readNVFP4(
  file: string,
  tensors: ReadonlyMap<string, SafetensorsTensor>,
  module: string,
  { shape, data }: SafetensorsTensor,
): NVFP4Weight {
  const [rows = 0, half = 0] = shape
  const cols = 2 * half
  const blocks = scaleOf(file, tensors, `${module}.weight_scale`, (rows * cols) / 16)
  const second = tensors.get(`${module}.weight_scale_2`)
  const tensorScale = second
    ? Number(scaleOf(file, tensors, `${module}.weight_scale_2`, 1).data[0])
    : Math.fround(1 / Number(scaleOf(file, tensors, `${module}.weight_global_scale`, 1).data[0]))
  if (blocks.dtype !== 'F8_E4M3' || shape.length !== 2 || !(tensorScale > 0 && tensorScale < Infinity)) {
    throw new SparkError(
      'ERR_FORMAT',
      `${file}: '${module}' is no NVFP4 matrix: scales ${blocks.dtype}, ${tensorScale}`,
    )
  }
  const blockScale = blocks.data as Uint8Array
  return { format: 'nvfp4', rows, cols, data: data as Uint8Array, blockScale, tensorScale }
}

function readFP8(
  file: string,
  tensors: ReadonlyMap<string, SafetensorsTensor>,
  module: string,
  { shape, data }: SafetensorsTensor,
): FP8Weight {
  const [rows = 0, cols = 0] = shape
  const record = tensors.get(`${module}.weight_scale`)
  const scale = scaleOf(file, tensors, `${module}.weight_scale`, record?.data.length === 1 ? 1 : rows)
  const values = tensorFromRecord(`${module}.weight_scale`, scale).toFloat32()
  const rowScale = values.length === rows ? values : new Float32Array(rows).fill(values[0]!)
  return { format: 'f8_e4m3', rows, cols, data: data as Uint8Array, rowScale }
}

function scaleOf(
  file: string,
  tensors: ReadonlyMap<string, SafetensorsTensor>,
  name: string,
  count: number,
): SafetensorsTensor {
  const scale = tensors.get(name)
  if (scale?.data.length === count) return scale
  const found = scale ? `has ${scale.data.length} elements` : 'is missing'
  throw new SparkError('ERR_FORMAT', `${file}: '${name}' ${found}; expected ${count}`)
}
