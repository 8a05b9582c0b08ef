// adapter-folder.ts: adapter folders in PEFT's format (adapter_config.json, adapter_model.safetensors).
import { access } from 'node:fs/promises'
import path from 'node:path'
import { expectObject, expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { makeFolder, writeFileAtomic } from '../../io/atomic-write.js'
import { readText } from '../../io/read-file.js'
import { readSafetensors, tensorFromRecord, writeSafetensors } from '../../io/safetensors.js'
import type { Tensor } from '../../memory/tensor.js'
import { formatConfig, type PeftConfig, parseConfig } from './config.js'
import { firstPattern, nameTest } from './target-matching.js'

/** The adapter of one module. */
export interface PeftModule {
  /** Determines the shapes of A and B. */
  readonly kind: 'linear' | 'conv' | 'embedding'
  /** Rank, including rank_pattern. */
  readonly rank: number
  /** Numerator of the scale, including alpha_pattern. */
  readonly alpha: number
  /** lora_A [rank, in], [rank, in, ...kernel] or [rank, vocabulary] */
  readonly a: Tensor
  /** lora_B [out, rank], [out, rank / groups, 1, ...] or [dim, rank] */
  readonly b: Tensor
  /** [out], [1, out, 1, ...] or [dim]; absent without use_dora. */
  readonly magnitude?: Tensor
  /** Replaces the bias of the base layer. */
  readonly bias?: Tensor
}

/** An adapter folder. */
export interface PeftAdapter {
  /** The contents of adapter_config.json. */
  readonly config: PeftConfig
  /** By module name in the base model. */
  readonly modules: ReadonlyMap<string, PeftModule>
  /** Weights of modules_to_save and biases of other layers, by name in the base model. */
  readonly extra: ReadonlyMap<string, Tensor>
  /** Metadata of the tensor file, without its format. */
  readonly metadata?: ReadonlyMap<string, string>
}

const prefix = 'base_model.model.'
const configName = 'adapter_config.json'
const tensorsName = 'adapter_model.safetensors'

/** Suffixes of tensor names with their fields of PeftModule. */
const fields = [
  ['.lora_A.weight', 'a'],
  ['.lora_B.weight', 'b'],
  ['.lora_embedding_A', 'a'],
  ['.lora_embedding_B', 'b'],
  ['.lora_magnitude_vector', 'magnitude'],
  ['.lora_magnitude_vector.weight', 'magnitude'],
  ['.base_layer.bias', 'bias'],
] as const

type Field = (typeof fields)[number][1]

/**
 * Reads an adapter folder. Stricter than PEFT: a tensor that is missing, contradicts the rank, or belongs to no target module
 * is an error.
 *
 * @throws SparkError ERR_IO, ERR_FORMAT naming the file and the tensor, ERR_UNSUPPORTED naming an option
 */
export async function readPeftAdapter(folder: string): Promise<PeftAdapter> {
  expectText('folder', folder)
  if (folder.startsWith('hf:')) {
    const remedy = 'download its files and give their folder'
    throw new SparkError('ERR_UNSUPPORTED', `${folder}: adapters of a hub are not downloaded yet: ${remedy}`)
  }
  const configFile = path.join(folder, configName)
  const config = parseConfig(configFile, await readText(configFile))
  const file = path.join(folder, tensorsName)
  const { tensors, metadata } = await readSafetensors(file).catch(async error => {
    const pickle = await access(path.join(folder, 'adapter_model.bin')).then(
      () => true,
      () => false,
    )
    if (!pickle || error.code !== 'ERR_IO') throw error
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${folder} contains adapter_model.bin, a pickle, which cannot be read: save the adapter with safe_serialization=True`,
    )
  })
  const parts = new Map<string, Partial<Record<Field, Tensor>> & { embedding?: boolean }>()
  const extra = new Map<string, Tensor>()
  for (const [key, record] of tensors) {
    const tensor = tensorFromRecord(key, record)
    const name = key.startsWith(prefix) ? key.slice(prefix.length) : undefined
    const field = name && fields.find(([end]) => name.endsWith(end))
    if (!name) throw unexpected(file, key, `does not begin with ${prefix}`)
    if (!field) {
      extra.set(name, tensor)
      continue
    }
    const [end, part] = field
    const module = name.slice(0, -end.length)
    const found = parts.get(module) ?? {}
    if (found[part]) throw unexpected(file, key, 'is a duplicate under another name')
    parts.set(module, { ...found, [part]: tensor, embedding: found.embedding || end.includes('embedding') })
  }
  for (const [name, tensor] of extra) {
    const adapted = name.endsWith('.bias') ? parts.get(name.slice(0, -'.bias'.length)) : undefined
    if (!adapted || config.bias === 'none') continue
    adapted.bias ??= tensor
    extra.delete(name)
  }
  const modules = new Map<string, PeftModule>()
  const rules = rulesOf(file, config)
  for (const [name, found] of parts) modules.set(name, checkModule(file, config, rules(name), found))
  for (const name of extra.keys()) {
    const saved = config.modulesToSave.some(module => `.${name}`.includes(`.${module}.`))
    const otherBias = config.bias === 'all' && name.endsWith('.bias')
    if (!saved && !otherBias)
      throw unexpected(file, name, 'belongs neither to an adapter nor to modules_to_save')
  }
  if (modules.size === 0) throw new SparkError('ERR_FORMAT', `${file} contains no adapter`)
  return { config, modules, extra, metadata }
}

/** The settings of one module. */
interface ModuleRules {
  readonly name: string
  readonly isTarget: boolean
  readonly rank: number
  readonly alpha: number
}

/** A function from names to settings, by target_modules, rank_pattern and alpha_pattern. `all-linear` accepts all modules. */
function rulesOf(
  file: string,
  { targetModules, r, loraAlpha, raw }: PeftConfig,
): (name: string) => ModuleRules {
  const isAny = targetModules === null || String(targetModules).toLowerCase() === 'all-linear'
  const isTarget = isAny ? () => true : nameTest(`${file}: target_modules`, targetModules, 'ERR_FORMAT')
  const pattern = (key: string) => {
    const patterns = (raw[key] ?? {}) as Readonly<Record<string, number>>
    return firstPattern(`${file}: ${key}`, patterns, 'ERR_FORMAT')
  }
  const rank = pattern('rank_pattern')
  const alpha = pattern('alpha_pattern')
  return name => ({
    name,
    isTarget: isTarget(name),
    rank: rank(name)?.value ?? r,
    alpha: alpha(name)?.value ?? loraAlpha,
  })
}

function checkModule(
  file: string,
  config: PeftConfig,
  { name, isTarget, rank, alpha }: ModuleRules,
  found: Partial<Record<Field, Tensor>> & { embedding?: boolean },
): PeftModule {
  if (!isTarget) throw unexpected(file, name, 'is not a module in target_modules')
  if (found.bias && config.bias === 'none') throw unexpected(file, `${name}.bias`, 'contradicts bias "none"')
  if (found.magnitude && !config.useDora)
    throw unexpected(file, `${name}.lora_magnitude_vector`, 'needs use_dora')
  const suffix = (letter: string): string =>
    found.embedding ? `lora_embedding_${letter}` : `lora_${letter}.weight`
  const require = (part: 'a' | 'b' | 'magnitude', end: string): Tensor => {
    const tensor = found[part]
    if (tensor) return tensor
    throw new SparkError('ERR_FORMAT', `${file}: tensor '${prefix}${name}.${end}' is missing`)
  }
  const a = require('a', suffix('A'))
  const b = require('b', suffix('B'))
  const kind = found.embedding ? 'embedding' : a.shape.length > 2 ? 'conv' : 'linear'
  const dimensions = kind === 'conv' ? a.shape.length : 2
  const out = b.shape[0] ?? 0
  const expectSizes = (end: string, tensor: Tensor, fits: boolean, expected: string): void => {
    if (fits) return
    const shape = tensor.shape.join(', ')
    throw new SparkError(
      'ERR_SHAPE',
      `${file}: '${prefix}${name}.${end}' is [${shape}], expected ${expected}`,
    )
  }
  const aFits = a.shape.length === dimensions && a.shape[0] === rank
  expectSizes(suffix('A'), a, aFits, `[${rank}, ...]: the rank is ${rank}`)
  const inner = b.shape[1] ?? 0
  const groups = kind === 'conv' && inner > 0 ? rank % inner === 0 : inner === rank
  expectSizes(suffix('B'), b, b.shape.length === dimensions && groups, `[out, ${rank}]: the rank is ${rank}`)
  const bias = found.bias
  if (bias) expectSizes('base_layer.bias', bias, bias.size === out, `[${out}]`)
  const base = { kind, rank, alpha, a, b, ...(bias && { bias }) } as const
  if (!config.useDora) return base
  const magnitude = require('magnitude', 'lora_magnitude_vector')
  const sizes = kind === 'conv' ? [1, out, ...a.shape.slice(2).map(() => 1)] : [out]
  const fits = magnitude.shape.join() === sizes.join()
  expectSizes('lora_magnitude_vector', magnitude, fits, `[${sizes.join(', ')}]`)
  return { ...base, magnitude }
}

function unexpected(file: string, key: string, why: string): SparkError {
  return new SparkError('ERR_FORMAT', `${file}: unexpected tensor '${key}': it ${why}`)
}

/**
 * Writes an adapter folder that is byte for byte the one PEFT would write. Tensors keep their dtype.
 * @throws SparkError ERR_IO
 */
export async function writePeftAdapter(folder: string, adapter: PeftAdapter): Promise<void> {
  expectText('folder', folder)
  expectObject('adapter', 'a PeftAdapter', adapter)
  const tensors = new Map<string, Tensor>()
  for (const [name, { kind, a, b, magnitude, bias }] of adapter.modules) {
    const key = prefix + name
    tensors.set(kind === 'embedding' ? `${key}.lora_embedding_A` : `${key}.lora_A.weight`, a)
    tensors.set(kind === 'embedding' ? `${key}.lora_embedding_B` : `${key}.lora_B.weight`, b)
    if (magnitude) tensors.set(`${key}.lora_magnitude_vector`, magnitude)
    if (bias) tensors.set(`${key}.base_layer.bias`, bias)
  }
  for (const [name, tensor] of adapter.extra) tensors.set(prefix + name, tensor)
  await makeFolder(folder)
  const metadata = new Map([['format', 'pt'], ...(adapter.metadata ?? [])])
  await writeSafetensors(path.join(folder, tensorsName), tensors, { metadata })
  const text = formatConfig(adapter.config)
  await writeFileAtomic(path.join(folder, configName), [Buffer.from(text)])
}
