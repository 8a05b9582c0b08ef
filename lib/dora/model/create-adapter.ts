// create-adapter.ts: creation of a new adapter for a model.
import {
  argumentError,
  expectBoolean,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectOneOf,
  expectSignal,
  expectText,
} from '../../core/checks.js'
import type { BackendName } from '../../core/config.js'
import { SparkError } from '../../core/errors.js'
import { debug, warnOnce } from '../../core/log.js'
import { Pacer } from '../../core/paced.js'
import { kaimingUniform, normal, randomGenerator } from '../../core/random.js'
import type { Graph } from '../../graph/graph.js'
import { openKernels } from '../../kernels/open.js'
import type { NormGradient } from '../layer/layer-types.js'
import { newConfig } from '../peft/config.js'
import {
  firstPattern,
  layerNumber,
  nameTest,
  nearNames,
  type TargetRules,
  targetMatcher,
} from '../peft/target-matching.js'
import { Adapter } from './adapter.js'
import { type AdapterModule, adapterModule, initialMagnitude, type ModuleValues } from './adapter-module.js'
import { findModules, type GraphModule } from './find-modules.js'
import { graphOf, type ModelSource } from './model-source.js'
import { type UnadaptableLayer, unadaptableLayers } from './unadaptable-layers.js'

/** Options of {@link createAdapter}; those of PEFT's LoraConfig have the same meaning. */
export interface AdapterOptions extends Omit<TargetRules, 'modulesToSave'> {
  /** `dora` learns a magnitude for each row besides B·A, `lora` does not. Default: dora. */
  readonly method?: 'dora' | 'lora'
  /** Rows of A. Default: 16. */
  readonly rank?: number
  /** B·A is multiplied by alpha / rank. Default: 16. */
  readonly alpha?: number
  /** Multiply B·A by alpha / √rank instead. Default: false. */
  readonly rslora?: boolean
  /**
   * Dropout probability of the adapter's input in training, as in PEFT: neither the frozen path nor embeddings have
   * dropout. Saved with the adapter. Default: 0.
   */
  readonly dropout?: number
  /** Ranks of some modules: the first regular expression that matches the end of a module's name applies. */
  readonly rankPattern?: Readonly<Record<string, number>>
  /** Alphas of some modules, by the same rule. */
  readonly alphaPattern?: Readonly<Record<string, number>>
  /** Whether gradients include that of the norm. Default: detached. */
  readonly normGradient?: NormGradient
  /**
   * Initial values of A and B. `true`: A uniform in ±1/√cols and B zero, which leaves the model unchanged. `gaussian`: A
   * normal with variance 1/rank² and B zero. `false`: both uniform. For embeddings A is zero and B normal, or with
   * `false` both normal. Magnitudes are the row norms of W + scale · B·A. Default: true.
   */
  readonly init?: boolean | 'gaussian'
  /** Seed of the initial values. Default: 0. */
  readonly seed?: number
  /** Name in error messages. Default: default. */
  readonly name?: string
  /** Backend that computes the magnitudes. Default: the best available. */
  readonly backend?: BackendName
  /** Aborts the creation; the promise rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined
}

const ruleOptions = ['targetModules', 'match', 'excludeModules', 'layersToTransform', 'layersPattern']
const scaleOptions = ['rank', 'alpha', 'rslora', 'rankPattern', 'alphaPattern']
const otherOptions = ['method', 'dropout', 'normGradient', 'init', 'seed', 'name', 'backend', 'signal']
const knownOptions = [...ruleOptions, ...scaleOptions, ...otherOptions]

/** Larger ranks are mistakes: no weight has that many rows. */
const maxRank = 2 ** 20

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
  checkOptions(options)
  const { normGradient = 'detached', name = 'default', backend } = options
  const modules = chooseModules(graph, options)
  const kernels = await openKernels({ ...(backend && { backend }) })
  const random = randomGenerator(options.seed ?? 0)
  const values = new Map<string, ModuleValues>()
  const pacer = new Pacer(options.signal)
  for (const module of modules) {
    await pacer.pause()
    const [a, b] = initialValues(random, module, options.init ?? true)
    const magnitude =
      options.method === 'lora' ? undefined : await initialMagnitude(kernels, graph, module, a, b)
    values.set(module.name, { a, b, magnitude })
  }
  const config = configOf(options, modules, findModules(graph))
  const empty = { extra: new Map(), replaced: new Map() }
  const adapter = new Adapter({ base: graph, name, config, normGradient, modules, values, ...empty })
  debug(String(adapter))
  return adapter
}

function checkOptions(options: AdapterOptions): void {
  expectKnownOptions('options', options, knownOptions)
  const { targetModules, rank = 16, alpha = 16, dropout = 0, seed = 0, init = true } = options
  if (targetModules === undefined) throw argumentError('options.targetModules', 'given', targetModules)
  expectNames('options.targetModules', targetModules)
  expectNames('options.excludeModules', options.excludeModules)
  expectNames('options.layersPattern', options.layersPattern)
  expectOneOf('options.method', options.method ?? 'dora', ['dora', 'lora'])
  expectOneOf('options.match', options.match ?? 'peft', ['peft', 'substring'])
  expectOneOf('options.normGradient', options.normGradient ?? 'detached', ['detached', 'exact'])
  if (typeof init !== 'boolean') expectOneOf('options.init', init, ['gaussian'])
  expectInteger('options.rank', rank, 1, maxRank)
  expectBoolean('options.rslora', options.rslora ?? false)
  expectText('options.name', options.name ?? 'default')
  expectSignal('options.signal', options.signal)
  expectNumber('options.alpha', alpha)
  expectNumber('options.dropout', dropout, 0, 1 - 2 ** -24)
  expectInteger('options.seed', seed, 0, 2 ** 32 - 1)
  for (const name of ['rankPattern', 'alphaPattern'] as const) {
    const patterns = options[name] ?? {}
    if (typeof patterns !== 'object') throw argumentError(`options.${name}`, 'an object', patterns)
    for (const [pattern, value] of Object.entries(patterns)) {
      const argument = `options.${name}['${pattern}']`
      if (name === 'rankPattern') expectInteger(argument, value, 1, maxRank)
      else expectNumber(argument, value)
    }
  }
}

function expectNames(argument: string, names: unknown): void {
  const isList = Array.isArray(names) && names.every(name => typeof name === 'string')
  if (names !== undefined && typeof names !== 'string' && !isList) {
    throw argumentError(argument, 'a string or a list of strings', names)
  }
}

/** The modules that match the rules, with their ranks and scales. */
function chooseModules(graph: Graph, options: AdapterOptions): AdapterModule[] {
  const {
    rank = 16,
    alpha = 16,
    rslora = false,
    rankPattern = {},
    alphaPattern = {},
    targetModules,
  } = options
  const all = findModules(graph)
  const match = targetMatcher(options)
  const used = new Set<string>()
  const chosen = all.filter(module => {
    const target = match(module)
    if (target !== undefined) used.add(target)
    return target !== undefined
  })
  const unadaptable = unadaptableLayers(graph, all).filter(layer => match(layer) !== undefined)
  if (chosen.length === 0) throw nothingMatched(all, unadaptable, options)
  for (const { name, reason } of unadaptable) {
    warnOnce('SPARK_NO_ADAPTER', name, `'${name}' gets no adapter although targetModules names it: ${reason}`)
  }
  const ranks = firstPattern('rankPattern', rankPattern)
  const alphas = firstPattern('alphaPattern', alphaPattern)
  const usedPatterns = new Set<string>()
  const modules = chosen.map(module => {
    const r = ranks(module.name)
    const a = alphas(module.name)
    if (r) usedPatterns.add(`rankPattern '${r.pattern}'`)
    if (a) usedPatterns.add(`alphaPattern '${a.pattern}'`)
    return adapterModule(module, r?.value ?? rank, a?.value ?? alpha, rslora)
  })
  const patterns = [
    ...Object.keys(rankPattern).map(pattern => `rankPattern '${pattern}'`),
    ...Object.keys(alphaPattern).map(pattern => `alphaPattern '${pattern}'`),
  ]
  for (const pattern of patterns) if (!usedPatterns.has(pattern)) warnUnused(pattern)
  if (typeof targetModules !== 'string') {
    const named = [...chosen, ...unadaptable]
    const unused = targetModules.filter(target => !named.some(({ name }) => endsWith(name, target, options)))
    for (const target of unused) warnUnused(`targetModules '${target}'`)
  }
  warnOfUnusedFilters(all, modules, options)
  return modules
}

/** Warns about filters that match no module, or no layer of a chosen module. */
function warnOfUnusedFilters(
  all: readonly GraphModule[],
  chosen: readonly AdapterModule[],
  { excludeModules = [], layersToTransform = [], layersPattern = [] }: AdapterOptions,
): void {
  const excluded = typeof excludeModules === 'string' ? [excludeModules] : excludeModules.map(name => [name])
  for (const names of excluded) {
    const test = nameTest('excludeModules', names)
    if (!all.some(({ name }) => test(name))) warnUnused(`excludeModules '${names}'`, 'module')
  }
  for (const pattern of typeof layersPattern === 'string' ? [layersPattern] : layersPattern) {
    const number = layerNumber({ layersPattern: pattern })
    if (!all.some(({ name }) => number(name) !== undefined))
      warnUnused(`layersPattern '${pattern}'`, 'module')
  }
  const numbers = new Set(chosen.map(({ name }) => layerNumber({ layersPattern })(name)))
  for (const layer of [layersToTransform].flat()) {
    if (!numbers.has(layer)) warnUnused(`layersToTransform ${layer}`)
  }
}

const endsWith = (name: string, target: string, { match }: TargetRules): boolean =>
  match === 'substring' ? name.includes(target) : name === target || name.endsWith(`.${target}`)

function warnUnused(pattern: string, what = 'module that gets an adapter'): void {
  warnOnce('SPARK_UNUSED_PATTERN', pattern, `${pattern} matches no ${what}`)
}

function nothingMatched(
  all: readonly GraphModule[],
  [unadaptable]: readonly UnadaptableLayer[],
  { targetModules: targets, match }: AdapterOptions,
): SparkError {
  const names = all.map(({ name }) => name)
  const wanted = typeof targets === 'string' ? [targets] : targets
  const shown = JSON.stringify(targets)
  if (unadaptable) {
    const message = `targetModules ${shown} names '${unadaptable.name}', which cannot have an adapter: ${unadaptable.reason}`
    return new SparkError('ERR_ARGUMENT', message)
  }
  if (names.length === 0) {
    return new SparkError(
      'ERR_ARGUMENT',
      `targetModules ${shown}: the model has no layer that can be adapted`,
    )
  }
  const target = targetMatcher({ targetModules: targets, ...(match && { match }) })
  const wide = all.filter(module => target(module) !== undefined).map(({ name }) => name)
  if (wide.length > 0) {
    const some = wide.slice(0, 5).join(', ')
    const reason = 'excludeModules or layersToTransform excludes all of them'
    return new SparkError('ERR_ARGUMENT', `targetModules ${shown} matches ${some}, but ${reason}`)
  }
  const near = nearNames(names, wanted).join(', ')
  return new SparkError(
    'ERR_ARGUMENT',
    `targetModules ${shown} matches none of the ${names.length} layers that can be adapted; similar names: ${near}`,
  )
}

function initialValues(
  random: () => number,
  { kind, rank, rows, cols }: AdapterModule,
  init: boolean | 'gaussian',
): [a: Float32Array, b: Float32Array] {
  if (kind === 'embedding') {
    const a = init === false ? normal(random, rank * cols, 1) : new Float32Array(rank * cols)
    return [a, normal(random, rows * rank, 1)]
  }
  const a =
    init === 'gaussian' ? normal(random, rank * cols, 1 / rank) : kaimingUniform(random, rank * cols, cols)
  return [a, init === false ? kaimingUniform(random, rows * rank, rank) : new Float32Array(rows * rank)]
}

/** Lists of names that PEFT understands stay; `all-linear`, patterns and other rules become the names that they matched. */
function configOf(options: AdapterOptions, modules: readonly AdapterModule[], all: readonly GraphModule[]) {
  const { rank = 16, alpha = 16, rslora = false, dropout = 0, init = true, targetModules } = options
  const isKept = (options.match ?? 'peft') === 'peft' && typeof targetModules !== 'string'
  const names = new Set(modules.map(({ name }) => name))
  // PEFT matches ends of names, too.
  const others = all.filter(
    ({ name }) => !names.has(name) && [...names].some(end => name.endsWith(`.${end}`)),
  )
  const rules = isKept
    ? {
        target_modules: targetModules,
        exclude_modules: options.excludeModules ?? null,
        layers_to_transform: options.layersToTransform ?? null,
        layers_pattern: options.layersPattern ?? null,
      }
    : {
        target_modules: [...names],
        exclude_modules: others.length > 0 ? others.map(({ name }) => name) : null,
      }
  return newConfig({
    r: rank,
    lora_alpha: alpha,
    lora_dropout: dropout,
    use_dora: options.method !== 'lora',
    use_rslora: rslora,
    ...rules,
    rank_pattern: options.rankPattern ?? {},
    alpha_pattern: options.alphaPattern ?? {},
    init_lora_weights: init,
  })
}
