// merge.ts: merging adapters into the weights of a model.
import { expectKnownOptions } from '../../core/checks.js'
import type { BackendName } from '../../core/config.js'
import { SparkError } from '../../core/errors.js'
import type { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import type { Kernels } from '../../kernels/kernels.js'
import { openKernels } from '../../kernels/open.js'
import type { PeftConfig } from '../peft/config.js'
import type { AdapterModule, ModuleValues } from './adapter-module.js'
import { storeRows, weightRows, withFloatRows } from './module-weight.js'

/** Options of {@link Adapter.merge}. */
export interface MergeModelOptions {
  /** Default: the best available. */
  readonly backend?: BackendName
}

/** A model with adapters merged into its weights. */
export interface MergedModel {
  /** A plain graph without DoRA nodes. */
  readonly graph: Graph
  /**
   * Relative error of rounding each merged weight to the format of the base, ‖stored − merged‖ / ‖merged‖, by module
   * name; 0 for f32.
   */
  readonly losses: ReadonlyMap<string, number>
  /** The model without the adapters, bit for bit: its weights were never changed. */
  unmerge(): Graph
}

/** The parts of an adapter that merging needs. */
export interface Mergeable {
  /** Name in error messages. */
  readonly name: string
  /** The model without the adapter. */
  readonly base: Graph
  /** The contents of adapter_config.json. */
  readonly config: PeftConfig
  /** The adapted layers. */
  readonly modules: readonly AdapterModule[]
  /** Initializers that the adapter replaces, by name. */
  readonly replaced: ReadonlyMap<string, Constant>
  /** The current arrays of a module. */
  valuesOf(module: string): ModuleValues
}

/**
 * Merges adapters into the weights of their common base, in order: W ← gain_k ∘ (W + scale_k · B_k·A_k) with
 * gain_k = magnitude_k / ‖W0 + scale_k · B_k·A_k‖, W0 being the weight of the base. Computed in f32 and rounded once to
 * the format of the base.
 *
 * @throws SparkError ERR_NOT_FINITE when a merged weight is not finite (then nothing is merged); ERR_UNSUPPORTED when two
 * adapters replace the same tensor
 */
export async function mergeAdapters(
  base: Graph,
  adapters: readonly Mergeable[],
  options: MergeModelOptions = {},
): Promise<MergedModel> {
  expectKnownOptions('options', options, ['backend'])
  const losses = new Map<string, number>()
  const graph = await foldAdapters(base, adapters, options, (graph, module, rows) => {
    const stored = storeRows(graph, module, rows)
    losses.set(module.name, stored.loss)
    return stored.graph
  })
  return { graph, losses, unmerge: () => base }
}

/**
 * As {@link mergeAdapters}, but stores merged weights as floats even if the base is quantized, so nothing is rounded.
 * @throws SparkError ERR_NOT_FINITE
 */
export function combineAdapters(base: Graph, adapters: readonly Mergeable[]): Promise<Graph> {
  return foldAdapters(base, adapters, {}, withFloatRows)
}

/** Merges all adapted layers; `store` returns the graph with the merged rows of one module. */
async function foldAdapters(
  base: Graph,
  adapters: readonly Mergeable[],
  { backend }: MergeModelOptions,
  store: (graph: Graph, module: AdapterModule, rows: Float32Array) => Graph,
): Promise<Graph> {
  const kernels = await openKernels({ ...(backend && { backend }) })
  const layers = new Map(adapters.flatMap(({ modules }) => modules.map(module => [module.weight, module])))
  expectOneReplacement(adapters)
  const replaced = adapters.flatMap(adapter => [...adapter.replaced])
  const initializers = new Map([...base.initializers, ...replaced])
  let graph = dequantizeLayers({ ...base, initializers }, new Set(layers.keys()))
  for (const module of layers.values()) {
    const { array: frozen, dispose } = await kernels.hold(weightRows(base, module))
    try {
      let rows = frozen
      for (const adapter of adapters) {
        const own = adapter.modules.find(({ weight }) => weight === module.weight)
        if (own) rows = await mergeOne(kernels, { frozen, rows }, own, adapter)
      }
      graph = store(graph, module, rows)
    } finally {
      dispose()
    }
  }
  return graph
}

/** Two adapters that replace the same tensor, such as a bias, cannot be combined. */
function expectOneReplacement(adapters: readonly Mergeable[]): void {
  const owners = new Map<string, string>()
  for (const { name, replaced } of adapters) {
    for (const key of replaced.keys()) {
      const other = owners.get(key)
      owners.set(key, name)
      if (other === undefined) continue
      const message = `the adapters '${other}' and '${name}' both replace '${key}': they cannot be combined`
      throw new SparkError('ERR_UNSUPPORTED', message)
    }
  }
}

/** gain ∘ (rows + scale · B·A) with the gain of the frozen weight; `frozen` is held memory, and `rows` is owned. */
async function mergeOne(
  kernels: Kernels,
  { frozen, rows: data }: { frozen: Float32Array; rows: Float32Array },
  { name, rank, scale, rows, cols }: AdapterModule,
  adapter: Mergeable,
): Promise<Float32Array> {
  const { a, b, magnitude } = ownValues(adapter.valuesOf(name))
  const weightNorm2 = new Float32Array(rows)
  const norm = new Float32Array(rows)
  const gain = new Float32Array(rows).fill(1)
  const low = { rank, scale, a, b }
  if (adapter.config.useDora) {
    const weight = { format: 'f32', rows, cols, data: frozen } as const
    await kernels.runOwned('weightNorm2', { weight, out: weightNorm2 })
    await kernels.runOwned('doraNorm', { ...low, weight, weightNorm2, magnitude: magnitude!, norm, gain })
  }
  const merged = new Float32Array(rows * cols)
  await kernels.runOwned('doraMerge', { ...low, weight: { format: 'f32', rows, cols, data }, gain, merged })
  const index = merged.findIndex(value => !Number.isFinite(value))
  if (index < 0) return merged
  throw new SparkError(
    'ERR_NOT_FINITE',
    `the merged weight of '${name}' is ${merged[index]} in row ${Math.floor(index / cols)}, column ${index % cols}: ` +
      `the adapter '${adapter.name}' seems to be broken; nothing was merged`,
  )
}

const ownValues = ({ a, b, magnitude }: ModuleValues): ModuleValues => ({
  a: a.slice(),
  b: b.slice(),
  magnitude: magnitude?.slice(),
})
