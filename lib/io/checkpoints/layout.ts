// layout.ts: tensor names and layouts of quantized weights in checkpoints of ModelOpt and compressed-tensors.
import type { NVFP4Weight } from '../../precision/nvfp4.js'
import type { SafetensorsTensor } from '../safetensors.js'

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
