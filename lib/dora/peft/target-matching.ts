// target-matching.ts: selection of the modules to adapt, by the rules of PEFT 0.21.
import { argumentError } from '../../core/checks.js'
import { type ErrorCode, SparkError } from '../../core/errors.js'
import { Regex } from '../../core/regex.js'

/** One regular expression or name, or a list of names. */
export type Names = string | readonly string[]

/** Rules that select the modules to adapt. */
export interface TargetRules {
  /**
   * A string is `all-linear` or a regular expression in Python's syntax that must match the whole name. A list contains
   * names, each of which must equal the module's name or its last components. Expressions that cannot be matched in
   * linear time, such as those with backreferences, are rejected.
   */
  readonly targetModules: Names
  /** `peft`: as above. `substring`: any part of the name, literally. Default: peft. */
  readonly match?: 'peft' | 'substring'
  /** Modules to exclude, in the syntax of `targetModules`. */
  readonly excludeModules?: Names
  /** Indices of the layers to adapt; requires `targetModules` to be a list. */
  readonly layersToTransform?: number | readonly number[]
  /** The component of a name before the index of its layer. Default: the first component that an index follows. */
  readonly layersPattern?: Names
  /** Modules that are trained entirely, and therefore not adapted: components of their names. */
  readonly modulesToSave?: readonly string[]
}

/** A module that may be adapted. */
export interface NamedModule {
  /** Path in the model, such as `h.0.attn.c_attn`. */
  readonly name: string
  /** What PEFT would call the layer's type. */
  readonly kind: 'linear' | 'conv' | 'embedding'
  /** Whether it computes the logits of a language model. */
  readonly isOutputEmbedding?: boolean
}

/** Returns the entry of `targetModules` that selects a module, or undefined. */
export type Matcher = (module: NamedModule) => string | undefined

/**
 * Compiles rules into a function.
 * @throws SparkError ERR_ARGUMENT for contradictory rules or an invalid regular expression
 */
export function targetMatcher(rules: TargetRules): Matcher {
  const { targetModules, match = 'peft', excludeModules, modulesToSave = [] } = rules
  const layers = layerFilter(rules)
  const excluded = excludeModules === undefined ? () => false : nameTest('excludeModules', excludeModules)
  const saved = modulesToSave.map(name => new Regex('modulesToSave', fromStart(`(^|.*\\.)${name}($|\\..*)`)))
  const isExcluded = ({ name }: NamedModule): boolean =>
    excluded(name) || saved.some(test => test.matches(name))
  if (match === 'substring') {
    const parts = typeof targetModules === 'string' ? [targetModules] : targetModules
    return module => (isExcluded(module) ? undefined : parts.find(part => module.name.includes(part)))
  }
  if (typeof targetModules === 'string') {
    if (targetModules.toLowerCase() === 'all-linear') {
      return module => (isExcluded(module) || !isInnerLinear(module) ? undefined : targetModules)
    }
    const test = new Regex('targetModules', targetModules)
    return module => (isExcluded(module) || !test.matches(module.name) ? undefined : targetModules)
  }
  return module => {
    if (isExcluded(module)) return undefined
    if (targetModules.includes(module.name)) return module.name
    const target = targetModules.find(target => module.name.endsWith(`.${target}`))
    return target !== undefined && layers(module.name) ? target : undefined
  }
}

/** An expression that matches the whole of any name that begins with a match of `pattern`, as Python's re.match does. */
const fromStart = (pattern: string): string => `(?:${pattern})(?s:.*)`

const isInnerLinear = ({ kind, isOutputEmbedding }: NamedModule): boolean =>
  kind === 'linear' && !isOutputEmbedding

/**
 * Returns a test for names. A list matches names that equal an entry or end in a dot and an entry; a string is a regular
 * expression for the whole name.
 * @throws SparkError `code` naming `argument`
 */
export function nameTest(
  argument: string,
  names: Names,
  code: ErrorCode = 'ERR_ARGUMENT',
): (name: string) => boolean {
  if (typeof names !== 'string') return name => names.some(end => endsIn(name, end))
  const test = new Regex(argument, names, code)
  return name => test.matches(name)
}

const endsIn = (name: string, end: string): boolean => name === end || name.endsWith(`.${end}`)

/** A test whether a module is in one of the selected layers. */
function layerFilter({ targetModules, match, ...rules }: TargetRules): (name: string) => boolean {
  const { layersToTransform, layersPattern } = rules
  const patterns = typeof layersPattern === 'string' ? [layersPattern] : (layersPattern ?? [])
  const hasPattern = patterns.some(pattern => pattern !== '')
  if (layersToTransform !== undefined || hasPattern) {
    if (typeof targetModules === 'string' || match === 'substring') {
      const asked = layersToTransform === undefined ? 'layersPattern' : 'layersToTransform'
      throw new SparkError('ERR_ARGUMENT', `${asked} needs targetModules to be a list of names`)
    }
  }
  if (layersToTransform === undefined) {
    if (!hasPattern) return () => true
    throw new SparkError('ERR_ARGUMENT', 'layersPattern needs layersToTransform')
  }
  const wanted = typeof layersToTransform === 'number' ? [layersToTransform] : layersToTransform
  if (!Array.isArray(wanted) || !wanted.every(Number.isInteger))
    throw argumentError('layersToTransform', 'integers', layersToTransform)
  if (wanted.length === 0) return () => true
  const numberOf = layerNumber(rules)
  return name => {
    const number = numberOf(name)
    return number !== undefined && wanted.includes(number)
  }
}

/** A function from the name of a module to the index of its layer, or undefined outside of layers. */
export function layerNumber({
  layersPattern = [],
}: Pick<TargetRules, 'layersPattern'>): (name: string) => number | undefined {
  const patterns = typeof layersPattern === 'string' ? [layersPattern] : layersPattern
  const indices = patterns.some(pattern => pattern !== '')
    ? patterns.map(pattern => `(?:.*?\\.)?${pattern}\\.(\\d+)\\.`)
    : ['.*?\\.[^.]*\\.(\\d+)\\.']
  const tests = indices.map(index => new Regex('layersPattern', fromStart(index)))
  return name => {
    const found = tests.map(test => test.lastGroup(name)).find(number => number !== undefined)
    return found === undefined ? undefined : Number(found)
  }
}

/**
 * A function from a name to the first pattern, a regular expression, that matches it or its last components.
 * @throws SparkError `code` naming `argument`
 */
export function firstPattern<T>(
  argument: string,
  patterns: Readonly<Record<string, T>>,
  code: ErrorCode = 'ERR_ARGUMENT',
): (name: string) => { pattern: string; value: T } | undefined {
  const tests = Object.entries(patterns).map(([pattern, value]) => ({
    pattern,
    value,
    test: new Regex(argument, `(.*\\.)?(${pattern})$`, code),
  }))
  return name => tests.find(({ test }) => test.matches(name))
}

/** Up to `count` names that resemble one of `wanted`, most similar first. */
export function nearNames(names: readonly string[], wanted: readonly string[], count = 5): string[] {
  const lastPart = (name: string): string => name.slice(name.lastIndexOf('.') + 1)
  const distance = (name: string): number =>
    wanted.reduce(
      (nearest, word) =>
        Math.min(nearest, editDistance(name, word), editDistance(lastPart(name), lastPart(word))),
      Number.POSITIVE_INFINITY,
    )
  return names
    .map(name => ({ name, distance: distance(name) }))
    .sort((a, b) => a.distance - b.distance)
    .slice(0, count)
    .map(({ name }) => name)
}

/** Levenshtein distance. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 0; i < a.length; i++) {
    const next = [i + 1]
    for (let j = 0; j < b.length; j++) {
      next.push(Math.min(next[j]! + 1, row[j + 1]! + 1, row[j]! + (a[i] === b[j] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length]!
}
