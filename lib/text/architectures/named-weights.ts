// named-weights.ts: the weights of a model by what they are for, whatever their file calls them.
import { SparkError } from '../../core/errors.js'
import type { Constant } from '../../graph/constant.js'
import type { WeightSource } from './config.js'

/** A matrix and what is added to its products. */
export interface LinearWeights {
  /** [out features, in features], or the transpose of it. */
  readonly weight: Constant
  /** Whether it is [in features, out features], as in GPT-2's files. */
  readonly isTransposed: boolean
  /** [out features]. */
  readonly bias: Constant | undefined
}

/** What files call the weights of a kind of models. */
export interface WeightNames<Part extends string> {
  /** What names of a layer start with; the number of the layer and a point follow. */
  readonly prefixes: readonly string[]
  /** Names of the parts of a layer, the first that a file has. `.weight` and `.bias` follow. */
  readonly parts: Readonly<Record<Part, readonly string[]>>
  /** Tensors that files have and that are not needed. */
  readonly unused: RegExp
}

/** Finds the weights of a model, and knows which tensors of the file nobody asked for. */
export class NamedWeights<Part extends string> {
  /** What names of a layer start with in this file. */
  protected readonly prefix: string
  protected readonly source: WeightSource
  readonly #names: WeightNames<Part>
  readonly #used = new Set<string>()

  /** @throws SparkError ERR_FORMAT when there are no layers */
  constructor(source: WeightSource, names: WeightNames<Part>) {
    this.source = source
    this.#names = names
    const prefix = names.prefixes.find(start => source.names.some(name => name.startsWith(`${start}0.`)))
    if (prefix === undefined)
      throw new SparkError('ERR_FORMAT', `there is no tensor of a layer 0, such as ${names.prefixes[0]}0.…`)
    this.prefix = prefix
  }

  /** A part of a layer that must be there. */
  part(layer: number, part: Part): LinearWeights {
    return this.optional(layer, part) ?? this.missingPart(layer, part)
  }

  /** A part of a layer, where the file has it. */
  optional(layer: number, part: Part): LinearWeights | undefined {
    const name = this.namesOf(layer, part).find(candidate => this.source.has(`${candidate}.weight`))
    return name === undefined ? undefined : this.linear(name)
  }

  /** @throws SparkError ERR_UNSUPPORTED when the file has tensors that nobody asked for */
  expectAllUsed(type: string): void {
    const { unused } = this.#names
    const left = this.source.names.filter(name => !this.#used.has(name) && !unused.test(name))
    if (left.length === 0) return
    const shown = left.slice(0, 3).join(', ')
    const more = left.length > 3 ? ` and ${left.length - 3} more` : ''
    const message = `the file has tensors that a model of type '${type}' does not know: ${shown}${more}`
    throw new SparkError('ERR_UNSUPPORTED', `${message}. It is a variant that is not supported`)
  }

  /** Full names that a part of a layer may have, without `.weight`. */
  protected namesOf(layer: number, part: Part): string[] {
    return this.#names.parts[part].map(name => `${this.prefix}${layer}.${name}`)
  }

  /** The first of these tensors that the file has. */
  protected firstOf(what: string, names: readonly string[]): Constant {
    return this.optionalOf(names) ?? missing(what, names[0]!)
  }

  /** The first of these tensors, where the file has one. */
  protected optionalOf(names: readonly string[]): Constant | undefined {
    const name = names.find(candidate => this.source.has(candidate))
    return name === undefined ? undefined : this.#take(name, false)
  }

  /** The first of these matrices, where the file has one; names lack `.weight`. */
  protected optionalLinear(names: readonly string[]): LinearWeights | undefined {
    const name = names.find(candidate => this.source.has(`${candidate}.weight`))
    return name === undefined ? undefined : this.linear(name)
  }

  /** The matrix of a name, which lacks `.weight`. */
  protected linear(name: string): LinearWeights {
    const isTransposed = this.isTransposed(name)
    return {
      weight: this.#take(`${name}.weight`, isTransposed),
      isTransposed,
      bias: this.optionalOf([`${name}.bias`]),
    }
  }

  /** Whether the matrix of a name, which lacks `.weight`, is [in features, out features]. */
  protected isTransposed(_name: string): boolean {
    return false
  }

  /** Notes that a tensor is used. */
  protected use(name: string): void {
    this.#used.add(name)
  }

  protected missingPart(layer: number, part: Part): never {
    return missing(`${part} of layer ${layer}`, `${this.namesOf(layer, part)[0]}.weight`)
  }

  #take(name: string, isTransposed: boolean): Constant {
    this.use(name)
    return this.source.constant(name, isTransposed)
  }
}

/** @throws SparkError ERR_FORMAT that names what the file lacks */
export function missing(what: string, name: string): never {
  throw new SparkError('ERR_FORMAT', `the file has no weights of ${what}, such as ${name}`)
}
