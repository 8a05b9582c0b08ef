// matching.ts: which modules an adapter goes to, by the rules of PEFT 0.21.
import { argumentError } from '../../core/checks.js'
import { type ErrorCode, SparkError } from '../../core/errors.js'
import { Regex } from '../../core/regex.js'

/** One regular expression or name, or several names. */
export type Names = string | readonly string[]

/** Which modules get an adapter. */
export interface TargetRules {
  /**
   * A string is a regular expression, in Python's syntax, that must match the whole name, or `all-linear`; a list holds
   * names, each of which matches the whole name or its last components. What cannot be matched in linear time, such as
   * references back to groups, is refused.
   */
  readonly targetModules: Names
  /** `peft`: as above. `substring`: any part of the name, literally. Default: peft. */
  readonly match?: 'peft' | 'substring'
  /** Modules that get none whatever `targetModules` says; a string is a regular expression. */
  readonly excludeModules?: Names
  /** Numbers of the layers that get one; only with a list of `targetModules`. */
  readonly layersToTransform?: number | readonly number[]
  /** The component of a name that the number of a layer follows. Default: the first component with a number behind it. */
  readonly layersPattern?: Names
  /** Modules that are trained whole and so get none: a component of their name. */
  readonly modulesToSave?: readonly string[]
}

/** What is known of a module before it has an adapter. */
export interface NamedModule {
  /** Such as `h.0.attn.c_attn`. */
  readonly name: string
  /** Which kind of layer. */
  readonly kind: 'linear' | 'conv' | 'embedding'
  /** Whether it makes the logits of a language model. */
  readonly isOutputEmbedding?: boolean
}

/** Whether a module gets an adapter, and which entry of `targetModules` says so. */
export type Matcher = (module: NamedModule) => string | undefined

/**
 * Turns rules into a function.
 * @throws SparkError ERR_ARGUMENT for rules that exclude each other or a string that is no regular expression
 */
export function targetMatcher(rules: TargetRules): Matcher {
  const { targetModules, match = 'peft', excludeModules, modulesToSave = [] } = rules
  const layers = layerFilter(rules)
  const excluded = excludeModules === undefined ? () => false : nameTest('excludeModules', excludeModules)
  const saved = modulesToSave.map(name => new Regex('modulesToSave', fromStart(`(^|.*\\.)${name}($|\\..*)`)))
  const isOut = ({ name }: NamedModule): boolean => excluded(name) || saved.some(test => test.matches(name))
  if (match === 'substring') {
    const parts = typeof targetModules === 'string' ? [targetModules] : targetModules
    return module => (isOut(module) ? undefined : parts.find(part => module.name.includes(part)))
  }
  if (typeof targetModules === 'string') {
    if (targetModules.toLowerCase() === 'all-linear') {
      return module => (isOut(module) || !isInnerLinear(module) ? undefined : targetModules)
    }
    const test = new Regex('targetModules', targetModules)
    return module => (isOut(module) || !test.matches(module.name) ? undefined : targetModules)
  }
  return module => {
    if (isOut(module)) return undefined
    if (targetModules.includes(module.name)) return module.name
    const target = targetModules.find(target => module.name.endsWith(`.${target}`))
    return target !== undefined && layers(module.name) ? target : undefined
  }
}

/** An expression that matches whole names of which `pattern` matches the start, as Python's re.match does. */
const fromStart = (pattern: string): string => `(?:${pattern})(?s:.*)`

const isInnerLinear = ({ kind, isOutputEmbedding }: NamedModule): boolean =>
  kind === 'linear' && !isOutputEmbedding

/**
 * Whether a name is one of several or ends in one behind a dot, or matches a regular expression as a whole.
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

/** Whether a module is in one of the layers that are asked for. */
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

/** Gives the number of the layer that a module is in; undefined of one that is in none. */
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
 * The value of the first pattern that matches a name or its last components; the patterns are regular expressions.
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

/** Up to `count` names that resemble one of `wanted`, the nearest first. */
export function nearNames(names: readonly string[], wanted: readonly string[], count = 5): string[] {
  const last = (name: string): string => name.slice(name.lastIndexOf('.') + 1)
  const distance = (name: string): number =>
    wanted.reduce(
      (nearest, word) => Math.min(nearest, editDistance(name, word), editDistance(last(name), last(word))),
      Number.POSITIVE_INFINITY,
    )
  return names
    .map(name => ({ name, distance: distance(name) }))
    .sort((a, b) => a.distance - b.distance)
    .slice(0, count)
    .map(({ name }) => name)
}

/** Insertions, deletions and replacements that make `b` of `a`. */
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
