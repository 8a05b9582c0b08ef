// model-options.ts: options of models, and what they make of a graph.
import { type ActivationType, activationTypes } from '../core/activation-types.js'
import { expectInteger, expectOneOf } from '../core/checks.js'
import type { Precision } from '../core/config.js'
import type { Pacer } from '../core/paced.js'
import type { Graph } from '../graph/graph.js'
import { selectOutputs } from '../graph/rewrites/ends.js'
import type { NVFP4Recipe } from '../precision/kernel-args.js'
import type { Engine, EngineOptions } from './engine.js'
import type { SourceOptions } from './model-file.js'
import type { PrecisionChoice } from './precision.js'

/** Options of {@link Model.fromGraph}. */
export interface ModelOptions extends EngineOptions {
  /**
   * Format of the weights of products, which stay in it; the rest is computed in f32, but products with weights of
   * bf16 in bf16. Default: what DGX_SPARK_PRECISION says, or the best one of the hardware: bf16 on GPUs from compute
   * capability 8.0 on, fp16 from 7.0 on, else fp32. `fp4` is another name of nvfp4. {@link compare} measures what a mode costs in accuracy.
   */
  precision?: Precision | 'fp4'
  /**
   * Size of the first dimension of the inputs, also where the file says another one or has written it into a Reshape.
   * Default: what the file says.
   */
  batchSize?: number
  /**
   * What rows are rounded to before they are multiplied by weights. `nvfp4`, for weights of NVFP4 (of the file, or of the precision
   * nvfp4), is for FP4 tensor cores; `int8`, for weights in blocks of integers, and `bf16`, for weights of bf16, are for the CPU.
   * Default: f32, nothing is rounded beyond what the precision says.
   */
  activations?: ActivationType
  /** How scales of nvfp4 are chosen. Default: modelopt. */
  recipe?: NVFP4Recipe
  /** Names of weights that fp8 and nvfp4 hold in bf16, such as {@link compareWeights} finds. Default: none. */
  keep?: readonly string[]
  /**
   * Names of the outputs that the model shall have; inputs and weights that no other output needs are left out. Default: all.
   * {@link RunOptions} has them for a single run.
   */
  outputs?: readonly string[]
  /** Ends loading; its promise rejects with the reason of the signal. */
  signal?: AbortSignal | undefined
}

/** Options of {@link Model.load}. */
export interface LoadOptions extends ModelOptions, SourceOptions {}

/** Names of the options of {@link Model.load}. */
export const loadOptions: readonly string[] = [
  'backend',
  'device',
  'threads',
  'provider',
  'memory',
  'weightCache',
  'communicator',
  'precision',
  'activations',
  'recipe',
  'keep',
  'batchSize',
  'outputs',
  'externalData',
  'maxBytes',
  'signal',
] satisfies readonly (keyof LoadOptions)[]

/** A graph that is ready to run. */
export interface OpenedGraph {
  /** The canonical graph, with its weights rounded to a precision that somebody asked for. */
  readonly graph: Graph
  readonly precision: PrecisionChoice
  readonly engine: Engine
}

/** Opens a graph of any opset. */
export async function openGraph(graph: Graph, options: ModelOptions, pacer: Pacer): Promise<OpenedGraph> {
  const {
    precision,
    activations = 'f32',
    recipe = 'modelopt',
    keep = [],
    batchSize,
    outputs,
    signal: _,
    ...engine
  } = options
  if (batchSize !== undefined) expectInteger('options.batchSize', batchSize, 1)
  expectOneOf('options.recipe', recipe, ['modelopt', 'te', 'mse'])
  expectOneOf('options.activations', activations, activationTypes)
  const [{ rewriteForInference }, { openEngine }, { choosePrecision }] = await Promise.all([
    import('../pipeline.js'),
    import('./open-engine.js'),
    import('./precision.js'),
  ])
  const choice = await choosePrecision(precision, engine)
  const wanted = outputs ? selectOutputs(graph, outputs, 'options.outputs') : graph
  const canonical = await rewriteForInference('load', wanted, { batchSize }, pacer)
  if (keep.length > 0) expectOneOf('precision, with options.keep,', choice.name, ['fp8', 'nvfp4'])
  const rounding = { mode: choice.name, recipe, keep }
  const rounded = await rewriteForInference('round', canonical, rounding, pacer)
  const opened = await openEngine(rounded, engine, { mode: choice.name, activations }, pacer)
  return { graph: choice.automatic ? canonical : rounded, precision: choice, engine: opened }
}

/** Options of `Model.run`. */
export interface RunOptions {
  /** Names of the outputs that are wanted; only what they need is computed. Default: all. */
  outputs?: readonly string[]
  /** Ends the run; its promise rejects with the reason of the signal. */
  signal?: AbortSignal | undefined
}

/** Runs as a rank of a world: where that fails, the communicator ends, so that other ranks do not wait for this one. */
export async function asRank<T>(
  communicator: EngineOptions['communicator'],
  run: () => Promise<T>,
): Promise<T> {
  try {
    return await run()
  } catch (error) {
    communicator?.abort(`rank ${communicator.rank} failed: ${(error as Error)?.message ?? error}`)
    throw error
  }
}
