// export-checkpoint.ts: export of a model's weights as a quantized checkpoint.
import type { ExportOptions, QuantizedCheckpoint } from '../../io/checkpoints/checkpoint.js'
import { graphOf, type ModelSource } from './model-source.js'

/**
 * Writes the weights of a model to a folder of safetensors files in the layout of ModelOpt or compressed-tensors, with
 * the weights of linear layers quantized to NVFP4. Merge adapters first.
 * @throws SparkError ERR_IO, ERR_NOT_FINITE, ERR_ARGUMENT
 */
export async function exportCheckpoint(
  model: ModelSource,
  folder: string,
  options: ExportOptions = {},
): Promise<QuantizedCheckpoint> {
  const graph = graphOf(model)
  const { writeGraphCheckpoint } = await import('./checkpoint-weights.js')
  return writeGraphCheckpoint(graph, folder, options)
}
