// checkpoint-weights.ts: a model's weights as a quantized checkpoint holds them.
import type { DType } from '../../core/dtype.js'
import { transpose } from '../../core/transpose.js'
import type { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import {
  defaultExclude,
  type ExportOptions,
  type QuantizedCheckpoint,
  writeCheckpoint,
} from '../../io/checkpoints/checkpoint.js'
import { Tensor } from '../../memory/tensor.js'
import { findModules, type GraphModule } from './find-modules.js'
import { weightRows } from './module-weight.js'

/**
 * The weights of a model by their names in a checkpoint: `<module>.weight` [out, in] of linear layers, whatever their
 * layout in the graph, and all other float constants by their own names. Quantized weights are decoded.
 */
function modelWeights(graph: Graph): Map<string, Tensor> {
  const weights = new Map<string, Tensor>()
  const taken = new Set<string>()
  for (const module of findModules(graph)) {
    for (const name of module.quantized?.constants ?? [module.weight]) taken.add(name)
    const constant = graph.initializers.get(module.weight)
    weights.set(
      `${module.name}.weight`,
      module.kind !== 'linear' && constant ? tensorOf(constant) : rowsOf(graph, module),
    )
  }
  for (const [name, constant] of graph.initializers) {
    if (!taken.has(name) && ['f32', 'f16', 'bf16'].includes(constant.dtype))
      weights.set(name, tensorOf(constant))
  }
  return weights
}

/** A weight of a linear layer, or a computed weight, in the layout of a checkpoint. */
function rowsOf(graph: Graph, module: GraphModule): Tensor {
  const { kind, rows, cols, shape, dtype } = module
  const values = weightRows(graph, module)
  const isTable = kind === 'embedding'
  const sizes = kind === 'linear' ? [rows, cols] : shape
  return Tensor.from(isTable ? transpose(values, rows, cols) : values, { shape: sizes }).to(dtype)
}

const tensorOf = ({ dtype, shape, data }: Constant): Tensor =>
  Tensor.from(data, { shape, dtype: dtype as DType })

/** As `exportCheckpoint`, of a graph. */
export function writeGraphCheckpoint(
  graph: Graph,
  folder: string,
  options: ExportOptions,
): Promise<QuantizedCheckpoint> {
  const linear = new Set(findModules(graph).flatMap(({ kind, name }) => (kind === 'linear' ? [name] : [])))
  const weights = modelWeights(graph)
  const others = [...weights.keys()]
    .map(name => name.replace(/\.weight$/, ''))
    .filter(name => !linear.has(name))
  const exclude = (options.exclude ?? defaultExclude).concat(
    others.map(name => name.replace(/[^\w]/g, '\\$&')),
  )
  return writeCheckpoint(folder, weights, { ...options, exclude })
}
