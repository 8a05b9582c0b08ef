// files.ts: adapters of whole models as folders in PEFT's format.
import { createHash } from 'node:crypto'
import path from 'node:path'
import { expectKnownOptions, expectOneOf } from '../../core/checks.js'
import type { BackendName } from '../../core/config.js'
import { SparkError } from '../../core/errors.js'
import { transpose } from '../../core/transpose.js'
import type { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import type { Kernels } from '../../kernels/kernels.js'
import { Tensor } from '../../memory/tensor.js'
import type { NormGradient } from '../layer/options.js'
import { type PeftAdapter, type PeftModule, readPeftAdapter, writePeftAdapter } from '../peft/peft.js'
import { constantOf, weightConstants } from './module-weight.js'
import { findModules, type GraphModule } from './modules.js'
import {
  type AdapterModule,
  type AdapterParts,
  adapterModule,
  firstMagnitude,
  type ModuleValues,
} from './parts.js'

/** Options of {@link Adapter.save}. */
export interface AdapterFileOptions {
  /** Element type of A and B. Default: f32, as PEFT writes it. */
  readonly dtype?: 'f32' | 'f16' | 'bf16'
  /** What adapter_config.json says the base model is. */
  readonly baseModel?: string
}

/** Options of {@link Adapter.load}. */
export interface LoadAdapterOptions {
  /** What errors call the adapter. Default: the last part of the folder's name. */
  readonly name?: string
  /** How the norm enters gradients; files do not say. Default: detached. */
  readonly normGradient?: NormGradient
  /** Refuse an adapter whose file names other weights than the model has. Default: true. */
  readonly checkBase?: boolean
  /** Engine that computes the norms of LoRA adapters. Default: the best of this machine. */
  readonly backend?: BackendName
}

const baseKey = 'dgx_spark.base.'

/** The sha256 of the raw bytes of a weight, in hexadecimal; of a quantized one, of its codes and scales in this order. */
export function weightHash(graph: Graph, module: GraphModule): string {
  const hash = createHash('sha256')
  for (const { bytes } of weightConstants(graph, module)) hash.update(bytes)
  return hash.digest('hex')
}

/** See Adapter.load. */
export async function loadParts(
  graph: Graph,
  folder: string,
  options: LoadAdapterOptions,
  kernels: Kernels,
): Promise<AdapterParts> {
  expectKnownOptions('options', options, ['name', 'normGradient', 'checkBase', 'backend'])
  const { name = path.basename(folder), normGradient = 'detached' } = options
  expectOneOf('options.normGradient', normGradient, ['detached', 'exact'])
  return fitParts(graph, await readPeftAdapter(folder), { ...options, name, normGradient, folder }, kernels)
}

/**
 * Fits an adapter to the layers of a model.
 * @throws SparkError as Adapter.load
 */
export async function fitParts(
  graph: Graph,
  peft: PeftAdapter,
  options: LoadAdapterOptions & { name: string; normGradient: NormGradient; folder: string },
  kernels: Kernels,
): Promise<AdapterParts> {
  const { folder, name, normGradient, checkBase = true } = options
  const all = findModules(graph)
  const modules: AdapterModule[] = []
  const values = new Map<string, ModuleValues>()
  const extra = new Map(peft.extra)
  for (const [moduleName, found] of peft.modules) {
    const layer = findLayer(folder, all, moduleName)
    const other = modules.find(({ weight }) => weight === layer.weight)
    if (other)
      throw new SparkError('ERR_FORMAT', `${folder}: '${other.name}' and '${moduleName}' are the same layer`)
    const module = adapterModule(
      { ...layer, name: moduleName },
      found.rank,
      found.alpha,
      peft.config.useRslora,
    )
    expectFit(folder, module, found)
    const hash = peft.metadata?.get(baseKey + moduleName)
    if (checkBase && hash !== undefined && hash !== weightHash(graph, module)) throw otherBase(folder, module)
    const [a, b] = [found.a.toFloat32(), found.b.toFloat32()]
    const magnitude = found.magnitude?.toFloat32() ?? (await firstMagnitude(kernels, graph, module, a, b))
    modules.push(module)
    values.set(moduleName, { a, b, magnitude })
    if (found.bias) extra.set(`${moduleName}.bias`, found.bias)
  }
  modules.sort(
    (a, b) => all.findIndex(m => m.weight === a.weight) - all.findIndex(m => m.weight === b.weight),
  )
  const replaced = new Map([...extra].map(([key, tensor]) => replacement(folder, graph, all, key, tensor)))
  return { base: graph, name, config: peft.config, normGradient, modules, values, extra, replaced }
}

/** The layer of that name, or the only one whose name ends like it. */
function findLayer(folder: string, all: readonly GraphModule[], name: string): GraphModule {
  const exact = all.find(module => module.name === name)
  if (exact) return exact
  const alike = all.filter(module => isTail(module.name, name) || isTail(name, module.name))
  if (alike.length === 1) return alike[0]!
  const known = all.slice(0, 8).map(module => module.name)
  throw new SparkError(
    'ERR_FORMAT',
    `${folder}: the model has ${alike.length === 0 ? 'no' : 'several'} layers like '${name}'; it has: ${known.join(', ')}`,
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
      ? '; PEFT mixes the groups of a convolution, which no weight in groups can express'
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
    `${folder} was made for another base: the weight of '${name}' has another sha256; load with checkBase: false (--no-check-base) if ` +
      `the difference is meant`,
  )
}

/** The initializer that a tensor of the file stands for, and the tensor as that initializer. */
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
      `${folder}: '${key}' [${tensor.shape.join(', ')}] replaces no tensor of that size in the model`,
    )
  }
  const isColumns = module?.weight === name && module.inColumns && module.kind === 'linear'
  const values = tensor.toFloat32()
  const ordered = isColumns ? transpose(values, module.rows, module.cols) : values
  return [name, constantOf(found.dtype as 'f32', found.shape, ordered)]
}

/** What {@link saveParts} needs of an adapter. */
export interface SavedParts extends Pick<AdapterParts, 'base' | 'config' | 'modules' | 'extra'> {
  /** The arrays of a module. */
  valuesOf(module: string): ModuleValues
}

/** See Adapter.save. */
export async function saveParts(
  parts: SavedParts,
  folder: string,
  options: AdapterFileOptions,
): Promise<void> {
  expectKnownOptions('options', options, ['dtype', 'baseModel'])
  const { dtype = 'f32', baseModel } = options
  expectOneOf('options.dtype', dtype, ['f32', 'f16', 'bf16'])
  const modules = new Map<string, PeftModule>()
  const metadata = new Map<string, string>()
  const extra = new Map(parts.extra)
  for (const module of parts.modules) {
    const { name, kind, rank, alpha, rows, aShape, bShape } = module
    const { a, b, magnitude } = parts.valuesOf(name)
    const round = (part: string, values: Float32Array, shape: readonly number[]): Tensor =>
      rounded(`${name}.${part}`, Tensor.from(values, { shape }), dtype)
    const lengths = kind === 'conv' ? [1, rows, ...aShape.slice(2).map(() => 1)] : [rows]
    const bias = extra.get(`${name}.bias`)
    extra.delete(`${name}.bias`)
    modules.set(name, {
      ...{ kind, rank, alpha, a: round('lora_A', a, aShape), b: round('lora_B', b, bShape) },
      ...(parts.config.useDora && { magnitude: Tensor.from(magnitude, { shape: lengths }) }),
      ...(bias && { bias }),
    })
    metadata.set(baseKey + name, weightHash(parts.base, module))
  }
  const raw = { ...parts.config.raw, ...(baseModel && { base_model_name_or_path: baseModel }) }
  await writePeftAdapter(folder, { config: { ...parts.config, raw }, modules, extra, metadata })
}

function rounded(name: string, tensor: Tensor, dtype: 'f32' | 'f16' | 'bf16'): Tensor {
  const result = tensor.to(dtype)
  const exact = tensor.toFloat32()
  const lost = result
    .toFloat32()
    .findIndex((value, i) => !Number.isFinite(value) && Number.isFinite(exact[i]))
  if (lost < 0) return result
  throw new SparkError(
    'ERR_RANGE',
    `${name} has the value ${exact[lost]}, which ${dtype} cannot hold: save it as f32`,
  )
}
