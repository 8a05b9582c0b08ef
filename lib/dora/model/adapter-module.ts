// adapter-module.ts: the adapted layers of a model, with their shapes and initial magnitudes.
import type { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import type { Kernels } from '../../kernels/kernels.js'
import type { Tensor } from '../../memory/tensor.js'
import { rowNorms } from '../layer/layer-adapter.js'
import type { NormGradient } from '../layer/layer-types.js'
import type { PeftConfig } from '../peft/config.js'
import type { GraphModule } from './find-modules.js'
import { weightRows } from './module-weight.js'
import type { TrainingRecord } from './trainable-adapter.js'

/** The adapter of one layer: W' = magnitude / ‖V‖ ∘ V with V = W + scale · B·A, or V itself for LoRA. */
export interface AdapterModule extends GraphModule {
  /** Rows of A, columns of B. */
  readonly rank: number
  /** Numerator of the scale. */
  readonly alpha: number
  /** Factor of B·A: alpha / rank or alpha / √rank, rounded to f32. */
  readonly scale: number
  /** [rank, in], [rank, in / groups, ...kernel] or [rank, vocabulary] */
  readonly aShape: readonly number[]
  /** [out, rank] or [out, rank, 1, …] */
  readonly bShape: readonly number[]
}

/** The trainable arrays of a module. */
export interface ModuleValues {
  /** [rank, cols] */
  readonly a: Float32Array
  /** [rows, rank] */
  readonly b: Float32Array
  /** [rows]; undefined for LoRA. */
  readonly magnitude: Float32Array | undefined
}

/** The state of an {@link Adapter}. */
export interface AdapterState {
  /** The model without the adapter. */
  readonly base: Graph
  /** Name in error messages. */
  readonly name: string
  /** The contents of adapter_config.json. */
  readonly config: PeftConfig
  /** Whether gradients include that of the norm. */
  readonly normGradient: NormGradient
  /** The adapted layers. */
  readonly modules: readonly AdapterModule[]
  /** Trainable arrays by module name. */
  readonly values: ReadonlyMap<string, ModuleValues>
  /** How it was trained, where a file says it. */
  readonly training?: TrainingRecord | undefined
  /** Tensors that replace tensors of the model, such as biases, by their names in the file. */
  readonly extra: ReadonlyMap<string, Tensor>
  /**
   * The same as constants, by the name of the initializer they replace.
   * @internal
   */
  readonly replaced: ReadonlyMap<string, Constant>
}

/** Adds rank, scale and the shapes of A and B to a module. */
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

/** The initial magnitude of a module: the row norms of W + scale · B·A. */
export async function initialMagnitude(
  kernels: Kernels,
  graph: Graph,
  module: AdapterModule,
  a: Float32Array,
  b: Float32Array,
): Promise<Float32Array> {
  const { rank, scale, rows, cols } = module
  const held = await kernels.hold(weightRows(graph, module))
  try {
    const weight = { format: 'f32', rows, cols, data: held.array } as const
    const weightNorm2 = new Float32Array(rows)
    const norms = new Float32Array(rows)
    await kernels.run('weightNorm2', { weight, out: weightNorm2 })
    await rowNorms(kernels, { weight, weightNorm2 }, { rank, scale, a, b }, norms)
    return norms
  } finally {
    held.dispose()
  }
}
