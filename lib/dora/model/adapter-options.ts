// adapter-options.ts: options of a new adapter.
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
import type { NormGradient } from '../layer/layer-types.js'
import type { TargetRules } from '../peft/target-matching.js'

/** Options of `createAdapter`; those of PEFT's LoraConfig have the same meaning. */
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
 * Checks the options of an adapter.
 * @throws SparkError ERR_ARGUMENT naming one that is unknown or out of range
 */
export function checkAdapterOptions(options: AdapterOptions): void {
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
