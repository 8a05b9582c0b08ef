// peft-folder.ts: the adapter of a model as a folder in PEFT's format.
import path from 'node:path'
import { expectBoolean, expectKnownOptions, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { transpose } from '../../core/transpose.js'
import type { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import { writeFileAtomic } from '../../io/atomic-write.js'
import { Tensor } from '../../memory/tensor.js'
import type { NormGradient } from '../layer/layer-types.js'
import {
  type PeftAdapter,
  type PeftModule,
  readPeftAdapter,
  writePeftAdapter,
} from '../peft/adapter-folder.js'
import { type AdapterModule, type AdapterState, adapterModule, type ModuleValues } from './adapter-module.js'
import { findModules, type GraphModule } from './find-modules.js'
import { type DescribedAdapter, modelCard } from './model-card.js'
import { constantOf } from './module-weight.js'
import type { TrainingRecord } from './trainable-adapter.js'
import { weightHash } from './weight-hash.js'

/** Options of {@link Adapter.save}. */
export interface AdapterFileOptions {
  /** Element type of A and B. Default: f32, as in PEFT. */
  readonly dtype?: 'f32' | 'f16' | 'bf16'
  /** Name or path of the base model, for adapter_config.json. */
  readonly baseModel?: string
  /** Whether to write a model card, README.md, too. Default: false. */
  readonly modelCard?: boolean
}

/** Options of {@link Adapter.load}. */
export interface LoadAdapterOptions {
  /** Name in error messages. Default: the base name of the folder. */
  readonly name?: string
  /** Whether gradients include that of the norm, which files do not record. Default: detached. */
  readonly normGradient?: NormGradient
  /** Refuse an adapter that was trained on other weights than the model has, if its file has their hashes. Default: true. */
  readonly checkBase?: boolean
}

/** Prefix of the metadata keys that hold the hash of a module's frozen weight. */
const baseKey = 'dgx_spark.base.'

/** Metadata key of how the adapter was trained, as JSON. */
const trainingKey = 'dgx_spark.training'

/** Reads a folder and matches it to a graph: see Adapter.load. */
export async function loadAdapter(
  graph: Graph,
  folder: string,
  options: LoadAdapterOptions,
): Promise<AdapterState> {
  expectKnownOptions('options', options, ['name', 'normGradient', 'checkBase'])
  const { name = path.basename(folder), normGradient = 'detached' } = options
  expectOneOf('options.normGradient', normGradient, ['detached', 'exact'])
  return fitAdapter(graph, await readPeftAdapter(folder), { ...options, name, normGradient, folder })
}

/**
 * Matches the modules of an adapter to the layers of a model.
 * @throws SparkError as Adapter.load does
 */
export function fitAdapter(
  graph: Graph,
  peft: PeftAdapter,
  options: LoadAdapterOptions & { name: string; normGradient: NormGradient; folder: string },
): AdapterState {
  const { folder, name, normGradient, checkBase = true } = options
  const all = findModules(graph)
  const modules: AdapterModule[] = []
  const values = new Map<string, ModuleValues>()
  const extra = new Map(peft.extra)
  for (const [moduleName, found] of peft.modules) {
    const layer = findLayer(folder, all, moduleName)
    const duplicate = modules.find(({ weight }) => weight === layer.weight)
    if (duplicate)
      throw new SparkError(
        'ERR_FORMAT',
        `${folder}: '${duplicate.name}' and '${moduleName}' are the same layer`,
      )
    const module = adapterModule(
      { ...layer, name: moduleName },
      found.rank,
      found.alpha,
      peft.config.useRslora,
    )
    expectFit(folder, module, found)
    const hash = peft.metadata?.get(baseKey + moduleName)
    if (checkBase && hash !== undefined && hash !== weightHash(graph, module)) throw otherBase(folder, module)
    const a = found.a.toFloat32()
    const b = found.b.toFloat32()
    const magnitude = found.magnitude?.toFloat32()
    modules.push(module)
    values.set(moduleName, { a, b, magnitude })
    if (found.bias) extra.set(`${moduleName}.bias`, found.bias)
  }
  modules.sort(
    (a, b) => all.findIndex(m => m.weight === a.weight) - all.findIndex(m => m.weight === b.weight),
  )
  const replaced = new Map([...extra].map(([key, tensor]) => replacement(folder, graph, all, key, tensor)))
  const training = trainingOf(peft)
  return { base: graph, name, config: peft.config, normGradient, modules, values, extra, replaced, training }
}

/** How an adapter was trained, if its file says so; a malformed record, which only describes, is left out. */
export function trainingOf({ metadata }: PeftAdapter): TrainingRecord | undefined {
  const text = metadata?.get(trainingKey)
  try {
    const record: unknown = text === undefined ? undefined : JSON.parse(text)
    return typeof record === 'object' && record !== null && !Array.isArray(record)
      ? (record as TrainingRecord)
      : undefined
  } catch {
    return undefined
  }
}

/** The layer with that name, or the only one whose name has a common suffix with it. */
function findLayer(folder: string, all: readonly GraphModule[], name: string): GraphModule {
  const exact = all.find(module => module.name === name)
  if (exact) return exact
  const candidates = all.filter(module => isTail(module.name, name) || isTail(name, module.name))
  if (candidates.length === 1) return candidates[0]!
  const known = all.slice(0, 8).map(module => module.name)
  throw new SparkError(
    'ERR_FORMAT',
    `${folder}: the model has ${candidates.length === 0 ? 'no' : 'several'} layers like '${name}'; it has: ${known.join(', ')}`,
  )
}

const isTail = (name: string, tail: string): boolean => name.endsWith(`.${tail}`)

function expectFit(folder: string, module: AdapterModule, { kind, a, b, magnitude }: PeftModule): void {
  const shape = ({ shape }: Tensor): string => `[${shape.join(', ')}]`
  if (kind !== module.kind) {
    throw new SparkError(
      'ERR_SHAPE',
      `${folder}: '${module.name}' is a ${kind} adapter, but the layer is ${module.kind}`,
    )
  }
  const fits =
    a.shape.join() === module.aShape.join() &&
    b.shape.join() === module.bShape.join() &&
    (!magnitude || magnitude.size === module.rows)
  if (fits) return
  const grouped =
    kind === 'conv' && b.shape[1] !== module.rank
      ? '; PEFT mixes the groups of a convolution, which a grouped weight cannot represent'
      : ''
  throw new SparkError(
    'ERR_SHAPE',
    `${folder}: A and B of '${module.name}' are ${shape(a)} and ${shape(b)}, but the layer needs ` +
      `[${module.aShape.join(', ')}] and [${module.bShape.join(', ')}]${grouped}`,
  )
}

function otherBase(folder: string, { name }: AdapterModule): SparkError {
  return new SparkError(
    'ERR_FORMAT',
    `${folder} was made for another base: the weight of '${name}' has a different sha256; ` +
      `if that is intended, load with checkBase: false (--no-check-base)`,
  )
}

/** The name of the initializer that a tensor of the file replaces, and the tensor in its type and layout. */
function replacement(
  folder: string,
  graph: Graph,
  all: readonly GraphModule[],
  key: string,
  tensor: Tensor,
): [name: string, constant: Constant] {
  const names = [...graph.initializers.keys()]
  const module = all.find(({ name }) => key === `${name}.weight` || isTail(key, `${name}.weight`))
  const reader = graph.nodes.find(
    ({ op, inputs }) =>
      (op === 'Gemm' || op === 'Conv') &&
      all.some(({ name, weight }) => key === `${name}.bias` && inputs[1] === weight),
  )
  const candidates = [key, module?.weight, reader?.inputs[2], names.find(name => isTail(name, key))]
  const name = candidates.find(candidate => candidate !== undefined && graph.initializers.has(candidate))
  const found = name === undefined ? undefined : graph.initializers.get(name)!
  if (name === undefined || found?.count !== tensor.size || !['f32', 'f16', 'bf16'].includes(found.dtype)) {
    throw new SparkError(
      'ERR_SHAPE',
      `${folder}: '${key}' [${tensor.shape.join(', ')}] matches no tensor of that size in the model`,
    )
  }
  const isColumns = module?.weight === name && module.inColumns && module.kind === 'linear'
  const values = tensor.toFloat32()
  const ordered = isColumns ? transpose(values, module.rows, module.cols) : values
  return [name, constantOf(found.dtype as 'f32', found.shape, ordered)]
}

/** The parts of an adapter that {@link saveAdapter} needs. */
export interface SavedAdapter extends DescribedAdapter, Pick<AdapterState, 'base' | 'extra'> {
  /** The arrays of a module. */
  valuesOf(module: string): ModuleValues
}

/** Writes an adapter folder: see Adapter.save. */
export async function saveAdapter(
  adapter: SavedAdapter,
  folder: string,
  options: AdapterFileOptions,
): Promise<void> {
  expectKnownOptions('options', options, ['dtype', 'baseModel', 'modelCard'])
  const { dtype = 'f32', baseModel, modelCard: withCard = false } = options
  expectBoolean('options.modelCard', withCard)
  expectOneOf('options.dtype', dtype, ['f32', 'f16', 'bf16'])
  const modules = new Map<string, PeftModule>()
  const metadata = new Map<string, string>()
  const extra = new Map(adapter.extra)
  for (const module of adapter.modules) {
    const { name, kind, rank, alpha, rows, aShape, bShape } = module
    const { a, b, magnitude } = adapter.valuesOf(name)
    const round = (part: string, values: Float32Array, shape: readonly number[]): Tensor =>
      rounded(`${name}.${part}`, Tensor.from(values, { shape }), dtype)
    const lengths = kind === 'conv' ? [1, rows, ...aShape.slice(2).map(() => 1)] : [rows]
    const bias = extra.get(`${name}.bias`)
    extra.delete(`${name}.bias`)
    modules.set(name, {
      kind,
      rank,
      alpha,
      a: round('lora_A', a, aShape),
      b: round('lora_B', b, bShape),
      ...(magnitude && { magnitude: Tensor.from(magnitude, { shape: lengths }) }),
      ...(bias && { bias }),
    })
    metadata.set(baseKey + name, weightHash(adapter.base, module))
  }
  if (adapter.training) metadata.set(trainingKey, JSON.stringify(adapter.training))
  const raw = { ...adapter.config.raw, ...(baseModel && { base_model_name_or_path: baseModel }) }
  const config = { ...adapter.config, raw }
  await writePeftAdapter(folder, { config, modules, extra, metadata })
  if (!withCard) return
  const { name, parameterCount, training } = adapter
  const card = modelCard(
    { config, modules: adapter.modules, name, parameterCount, training },
    path.basename(folder),
  )
  await writeFileAtomic(path.join(folder, 'README.md'), [Buffer.from(card)])
}

function rounded(name: string, tensor: Tensor, dtype: 'f32' | 'f16' | 'bf16'): Tensor {
  const result = tensor.to(dtype)
  const exact = tensor.toFloat32()
  const overflow = result
    .toFloat32()
    .findIndex((value, i) => !Number.isFinite(value) && Number.isFinite(exact[i]))
  if (overflow < 0) return result
  throw new SparkError(
    'ERR_RANGE',
    `${name} has the value ${exact[overflow]}, which is out of range of ${dtype}: save it as f32`,
  )
}
