// new-adapter.ts: modules and initial values of a new adapter.
import { SparkError } from '../../core/errors.js'
import { debug, warnOnce } from '../../core/log.js'
import { Pacer } from '../../core/paced.js'
import { kaimingUniform, normal, randomGenerator } from '../../core/random.js'
import type { Graph } from '../../graph/graph.js'
import { openKernels } from '../../kernels/open.js'
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
import type { AdapterOptions } from './adapter-options.js'
import { findModules, type GraphModule } from './find-modules.js'
import { type UnadaptableLayer, unadaptableLayers } from './unadaptable-layers.js'

/** As `createAdapter`, of a graph and with options that were checked. */
export async function newAdapter(graph: Graph, options: AdapterOptions): Promise<Adapter> {
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
