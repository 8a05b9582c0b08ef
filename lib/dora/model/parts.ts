// parts.ts: what the adapter of a whole model is made of.
import type { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import type { Kernels } from '../../kernels/kernels.js'
import type { Tensor } from '../../memory/tensor.js'
import { rowNorms } from '../layer/layer-adapter.js'
import type { NormGradient } from '../layer/options.js'
import type { PeftConfig } from '../peft/config.js'
import { weightRows } from './module-weight.js'
import type { GraphModule } from './modules.js'

/** The adapter of one layer: W' = magnitude / ‖V‖ ∘ V with V = W + scale · B·A, or V itself for LoRA. */
export interface AdapterModule extends GraphModule {
  /** Rows of A, columns of B. */
  readonly rank: number
  /** Numerator of the scale. */
  readonly alpha: number
  /** Factor of B·A, an f32: alpha / rank, or alpha / √rank. */
  readonly scale: number
  /** [rank, in], [rank, in / groups, ...kernel] or [rank, vocabulary] */
  readonly aShape: readonly number[]
  /** [out, rank] or [out, rank, 1, …] */
  readonly bShape: readonly number[]
}

/** The arrays of a module, rows first. */
export interface ModuleValues {
  /** [rank, cols] */
  readonly a: Float32Array
  /** [rows, rank] */
  readonly b: Float32Array
  /** [rows]; of LoRA ‖W + scale · B·A‖ by rows, which makes every gain 1. */
  readonly magnitude: Float32Array
}

/** What an {@link Adapter} is made of. */
export interface AdapterParts {
  /** The model without the adapter. */
  readonly base: Graph
  /** What errors call it. */
  readonly name: string
  /** What adapter_config.json says. */
  readonly config: PeftConfig
  /** How the norm enters gradients. */
  readonly normGradient: NormGradient
  /** The layers that have an adapter. */
  readonly modules: readonly AdapterModule[]
  /** Their arrays by name. */
  readonly values: ReadonlyMap<string, ModuleValues>
  /** Tensors that replace some of the model, such as biases, by their names in the file. */
  readonly extra: ReadonlyMap<string, Tensor>
  /**
   * The same by the name of the initializer.
   * @internal
   */
  readonly replaced: ReadonlyMap<string, Constant>
}

/** A module with the rank and the scale of its adapter. */
export function adapterModule(
  module: GraphModule,
  rank: number,
  alpha: number,
  rslora: boolean,
): AdapterModule {
  const { kind, rows, cols, shape } = module
  const kernel = kind === 'conv' ? shape.slice(2) : []
  const scale = Math.fround(alpha / (rslora ? Math.sqrt(rank) : rank))
  const aShape = kind === 'conv' ? [rank, shape[1]!, ...kernel] : [rank, cols]
  return { ...module, rank, alpha, scale, aShape, bShape: [rows, rank, ...kernel.map(() => 1)] }
}

/** The first magnitude of a module, ‖W + scale · B·A‖ by rows. */
export async function firstMagnitude(
  kernels: Kernels,
  graph: Graph,
  module: AdapterModule,
  a: Float32Array,
  b: Float32Array,
): Promise<Float32Array> {
  const { rank, scale, rows, cols } = module
  const held = await kernels.hold(weightRows(graph, module))
  try {
    const weight = { dtype: 'f32', rows, cols, data: held.array } as const
    const [weightNorm2, norms] = [new Float32Array(rows), new Float32Array(rows)]
    await kernels.run('weightNorm2', { weight, out: weightNorm2 })
    await rowNorms(kernels, { weight, weightNorm2 }, { rank, scale, a, b }, norms)
    return norms
  } finally {
    held.dispose()
  }
}
