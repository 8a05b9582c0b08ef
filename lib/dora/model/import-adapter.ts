// import-adapter.ts: DoRA adapters in the file formats of other programs.
import { expectKnownOptions, expectNumber } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { transpose } from '../../core/transpose.js'
import type { Graph } from '../../graph/graph.js'
import { readSafetensors, tensorFromRecord } from '../../io/safetensors.js'
import { Tensor } from '../../memory/tensor.js'
import type { PeftAdapter, PeftModule } from '../peft/adapter-folder.js'
import { newConfig } from '../peft/config.js'
import { findModules, type GraphModule } from './find-modules.js'

/** Options of {@link Adapter.import}. */
export interface ImportAdapterOptions {
  /** Numerator of the scale, if the file does not contain it. Default: the rank, for a scale of 1. */
  readonly alpha?: number
  /** The scale itself, as in MLX; instead of `alpha`. */
  readonly scale?: number
}

type Part = 'a' | 'b' | 'magnitude' | 'alpha'

/** Suffixes of tensor names by program. A is [rank, in] and B [out, rank]; MLX stores their transposes. */
const layouts: Readonly<Record<string, Readonly<Record<string, Part>>>> = {
  NVlabs: { '.lora_A.weight': 'a', '.lora_B.weight': 'b', '.weight_m_wdecomp.weight': 'magnitude' },
  kohya: {
    '.lora_down.weight': 'a',
    '.lora_up.weight': 'b',
    '.dora_scale': 'magnitude',
    '.alpha': 'alpha',
  },
  torchtune: { '.lora_a.weight': 'a', '.lora_b.weight': 'b', '.magnitude': 'magnitude' },
  MLX: { '.lora_a': 'a', '.lora_b': 'b', '.m': 'magnitude' },
}

/**
 * Reads a safetensors file with a DoRA adapter of NVlabs' code, LyCORIS or kohya's scripts, torchtune or MLX. The names of
 * the magnitudes identify the program.
 * @throws SparkError ERR_FORMAT for another layout, a missing tensor or a module that is not in the model
 */
export async function readImportedAdapter(
  graph: Graph,
  file: string,
  options: ImportAdapterOptions = {},
): Promise<PeftAdapter> {
  expectKnownOptions('options', options, ['alpha', 'scale'])
  if (options.alpha !== undefined) expectNumber('options.alpha', options.alpha)
  if (options.scale !== undefined) expectNumber('options.scale', options.scale)
  const { tensors } = await readSafetensors(file)
  const layout = Object.keys(layouts).find(name => {
    const [end] = Object.entries(layouts[name]!).find(([, part]) => part === 'magnitude')!
    return [...tensors.keys()].some(key => key.endsWith(end))
  })
  if (!layout) {
    const known = Object.keys(layouts).join(', ')
    throw new SparkError('ERR_FORMAT', `${file} has no DoRA magnitudes in the format of ${known}`)
  }
  const parts = new Map<string, Partial<Record<Part, Tensor>>>()
  for (const [key, record] of tensors) {
    const found = Object.entries(layouts[layout]!).find(([end]) => key.endsWith(end))
    if (!found)
      throw new SparkError('ERR_FORMAT', `${file}: unexpected tensor '${key}' in the format of ${layout}`)
    const name = key.slice(0, -found[0].length)
    parts.set(name, { ...parts.get(name), [found[1]]: tensorFromRecord(key, record) })
  }
  const all = findModules(graph)
  const modules = new Map<string, PeftModule>()
  for (const [key, found] of parts) {
    const module = findLayer(file, all, key)
    if (modules.has(module.name))
      throw new SparkError('ERR_FORMAT', `${file}: '${key}' is the second adapter for '${module.name}'`)
    modules.set(module.name, toPeft(file, key, module, found, layout, options))
  }
  const [first] = modules.values()
  const settings = { r: first!.rank, lora_alpha: first!.alpha, target_modules: [...modules.keys()] }
  const patterns = (of: 'rank' | 'alpha') =>
    Object.fromEntries(
      [...modules].map(([name, module]) => [`^${name.replace(/[^\w]/g, '\\$&')}`, module[of]]),
    )
  const config = newConfig({
    ...settings,
    use_dora: true,
    rank_pattern: patterns('rank'),
    alpha_pattern: patterns('alpha'),
  })
  return { config, modules, extra: new Map() }
}

/** The layer whose name is the longest suffix of `key`; dots equal underscores, because kohya's names have no dots. */
function findLayer(file: string, all: readonly GraphModule[], key: string): GraphModule {
  const plain = (name: string): string => `_${name.replaceAll('.', '_')}`
  const candidates = all.filter(({ name }) => plain(key).endsWith(plain(name)))
  const longest = candidates.reduce((max, { name }) => Math.max(max, name.length), 0)
  const best = candidates.filter(({ name }) => name.length === longest)
  if (best.length === 1) return best[0]!
  const known = all.slice(0, 8).map(({ name }) => name)
  throw new SparkError('ERR_FORMAT', `${file}: the model has no layer '${key}'; it has: ${known.join(', ')}`)
}

function toPeft(
  file: string,
  key: string,
  { kind, rows }: GraphModule,
  found: Partial<Record<Part, Tensor>>,
  layout: string,
  options: ImportAdapterOptions,
): PeftModule {
  const missing = (['a', 'b', 'magnitude'] as const).find(part => !found[part])
  if (missing)
    throw new SparkError('ERR_FORMAT', `${file}: '${key}' has no ${missing} in the format of ${layout}`)
  const given = { a: found.a!, b: found.b!, magnitude: found.magnitude! }
  expectShapes(file, key, { kind, rows }, given)
  const [a, b] = [given.a, given.b].map(tensor => (layout === 'MLX' ? transposed(tensor) : tensor))
  const rank = a!.shape[0]!
  const alpha = found.alpha?.toFloat32()[0] ?? options.alpha ?? (options.scale ?? 1) * rank
  const sizes = kind === 'conv' ? [1, rows, ...a!.shape.slice(2).map(() => 1)] : [rows]
  return { kind, rank, alpha, a: a!, b: b!, magnitude: given.magnitude.reshape(sizes) }
}

/** In a square layer only the first dimension of the magnitude, [out, 1] or [1, in], distinguishes rows from columns. */
function expectShapes(
  file: string,
  key: string,
  { kind, rows }: Pick<GraphModule, 'kind' | 'rows'>,
  { a, b, magnitude }: Record<'a' | 'b' | 'magnitude', Tensor>,
): void {
  const shown = ({ shape }: Tensor): string => `[${shape.join(', ')}]`
  if (a.shape.length < 2 || b.shape.length < 2 || (kind !== 'conv' && a.shape.length + b.shape.length > 4)) {
    throw new SparkError(
      'ERR_SHAPE',
      `${file}: A and B of '${key}' are ${shown(a)} and ${shown(b)}, which a ${kind} layer cannot have`,
    )
  }
  if (kind !== 'embedding' && magnitude.size === rows && magnitude.shape[0] === rows) return
  throw new SparkError(
    'ERR_SHAPE',
    `${file}: the magnitude of '${key}' is ${shown(magnitude)}, but the ${kind} layer has ${rows} output features; ` +
      `magnitudes per input feature or per row of an embedding are a different method`,
  )
}

function transposed(tensor: Tensor): Tensor {
  const [rows = 0, cols = 0] = tensor.shape
  return Tensor.from(transpose(tensor.toFloat32(), rows, cols), { shape: [cols, rows] })
}
