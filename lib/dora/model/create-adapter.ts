// create-adapter.ts: creation of a new adapter for a model.
import type { Adapter } from './adapter.js'
import { type AdapterOptions, checkAdapterOptions } from './adapter-options.js'
import { graphOf, type ModelSource } from './model-source.js'

/**
 * Creates a DoRA or LoRA adapter for the layers of a model that match the rules: `MatMul`, `Gemm`, one- and two-dimensional
 * `Conv` (B·A has the shape of the weight, so groups and dilations are kept) and `Gather` from an embedding. All weights
 * of the model stay frozen.
 *
 * The name of a module is that of its initializer without `.weight`, or the path of its node. Nodes that share a weight
 * share its adapter. Rows are output features in either layout of the weight.
 *
 * @throws SparkError ERR_ARGUMENT for an invalid option, or when no module matches, with similar names in the message; the
 * reason of `signal` when it is aborted
 * @example
 * const adapter = await createAdapter(model, { targetModules: ['c_attn', 'c_proj'], rank: 8, alpha: 16 })
 * console.log(String(adapter))
 */
export async function createAdapter(model: ModelSource, options: AdapterOptions): Promise<Adapter> {
  const graph = graphOf(model)
  checkAdapterOptions(options)
  const { newAdapter } = await import('./new-adapter.js')
  return newAdapter(graph, options)
}
