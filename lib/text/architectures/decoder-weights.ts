// decoder-weights.ts: the weights of a decoder by what they are for, whatever their file calls them.
import { SparkError } from '../../core/errors.js'
import type { Constant } from '../../graph/constant.js'
import type { WeightSource } from './config.js'
import {
  expertNames,
  type LayerPart,
  layerNames,
  layerPrefixes,
  modelNames,
  unusedNames,
} from './weight-names.js'

/** A matrix and what is added to its products. */
export interface LinearWeights {
  /** [out features, in features], or the transpose of it. */
  readonly weight: Constant
  /** Whether it is [in features, out features], as in GPT-2's files. */
  readonly isTransposed: boolean
  /** [out features]. */
  readonly bias: Constant | undefined
}

/** Matrices of all experts. */
export interface ExpertWeights {
  /** [experts, out features, in features] */
  readonly weight: Constant
  /** [experts, out features]. */
  readonly bias: Constant | undefined
}

/** Finds the weights of a model, and knows which tensors of the file nobody asked for. */
export class DecoderWeights {
  readonly #source: WeightSource
  readonly #used = new Set<string>()
  readonly #layers: string

  /** @throws SparkError ERR_FORMAT when there are no layers */
  constructor(source: WeightSource) {
    this.#source = source
    const { names } = source
    const prefix = layerPrefixes.find(start => names.some(name => name.startsWith(`${start}0.`)))
    if (!prefix)
      throw new SparkError('ERR_FORMAT', `there is no tensor of a layer 0, such as ${layerPrefixes[0]}0.…`)
    this.#layers = prefix
  }

  /** Table of the vocabulary, [tokens, hidden size]. */
  get embedding(): Constant {
    return this.#first('embedding', modelNames.embedding)
  }

  /** Learned positions, [positions, hidden size]. */
  get positions(): Constant | undefined {
    const name = modelNames.positions.find(candidate => this.#source.has(candidate))
    return name === undefined ? undefined : this.#take(name)
  }

  /** Normalization behind the last layer. */
  get norm(): LinearWeights {
    const name = modelNames.norm.find(candidate => this.#source.has(`${candidate}.weight`))
    if (name === undefined) throw missing('the last normalization', modelNames.norm[0])
    return this.#linear(name)
  }

  /** What makes logits; undefined: the table of the vocabulary. */
  get head(): LinearWeights | undefined {
    const name = modelNames.head.find(candidate => this.#source.has(`${candidate}.weight`))
    return name === undefined ? undefined : this.#linear(name)
  }

  /** A part of a layer that must be there. */
  part(layer: number, part: LayerPart): LinearWeights {
    const found = this.optional(layer, part)
    if (found) return found
    throw missing(`${part} of layer ${layer}`, `${this.#layers}${layer}.${layerNames[part][0]}.weight`)
  }

  /** A part of a layer, where the file has it. */
  optional(layer: number, part: LayerPart): LinearWeights | undefined {
    const name = this.#nameOf(layer, part)
    return name === undefined ? undefined : this.#linear(name)
  }

  /** A vector of a layer that has no `.weight` in its name, or has. */
  vector(layer: number, part: LayerPart): Constant | undefined {
    for (const name of layerNames[part])
      for (const full of [`${this.#layers}${layer}.${name}`, `${this.#layers}${layer}.${name}.weight`])
        if (this.#source.has(full)) return this.#take(full)
    return undefined
  }

  /** Whether the rows of queries, keys and values in one matrix are those of one head after another: GPT-NeoX. */
  get isSplitByHead(): boolean {
    return this.#layers === 'gpt_neox.layers.'
  }

  /** Matrices of all experts of a layer in one tensor that must be there. */
  experts(layer: number, part: LayerPart): ExpertWeights {
    const found = this.optionalExperts(layer, part)
    if (found) return found
    throw missing(`${part} of layer ${layer}`, `${this.#layers}${layer}.${layerNames[part][0]}.weight`)
  }

  /** The same, where the file has it. */
  optionalExperts(layer: number, part: LayerPart): ExpertWeights | undefined {
    for (const candidate of layerNames[part]) {
      const name = `${this.#layers}${layer}.${candidate}`
      const full = [name, `${name}.weight`].find(one => this.#source.has(one))
      if (full === undefined) continue
      const bias = [`${name}_bias`, `${name}.bias`].find(one => this.#source.has(one))
      return { weight: this.#take(full), bias: bias === undefined ? undefined : this.#take(bias) }
    }
    return undefined
  }

  /** Matrices of the experts of a layer where each has tensors of its own: gates, ups, downs. */
  expertStacks(layer: number, count: number): [Constant, Constant, Constant] | undefined {
    const names = expertNames.find(([gate]) =>
      this.#source.has(`${this.#layers}${layer}.${gate.replace('{}', '0')}.weight`),
    )
    if (!names) return undefined
    const [gates, ups, downs] = names.map(name => {
      const all = Array.from(
        { length: count },
        (_, expert) => `${this.#layers}${layer}.${name.replace('{}', `${expert}`)}.weight`,
      )
      for (const one of all) {
        if (!this.#source.has(one)) throw missing(`an expert of layer ${layer}`, one)
        this.#used.add(one)
      }
      return this.#source.stack(all)
    }) as [Constant, Constant, Constant]
    return [gates, ups, downs]
  }

  /** @throws SparkError ERR_UNSUPPORTED when the file has tensors that nobody asked for */
  expectAllUsed(type: string): void {
    const left = this.#source.names.filter(name => !this.#used.has(name) && !unusedNames.test(name))
    if (left.length === 0) return
    const shown = left.slice(0, 3).join(', ')
    const more = left.length > 3 ? ` and ${left.length - 3} more` : ''
    const message = `the file has tensors that a model of type '${type}' does not know: ${shown}${more}`
    throw new SparkError('ERR_UNSUPPORTED', `${message}. It is a variant that is not supported`)
  }

  #nameOf(layer: number, part: LayerPart): string | undefined {
    return layerNames[part]
      .map(name => `${this.#layers}${layer}.${name}`)
      .find(name => this.#source.has(`${name}.weight`))
  }

  #linear(name: string): LinearWeights {
    const [bias, matrix] = [`${name}.bias`, `${name}.weight`]
    const isTransposed =
      this.#layers.endsWith('h.') && name.startsWith(this.#layers) && this.#source.shape(matrix).length === 2
    return {
      weight: this.#take(matrix, isTransposed),
      isTransposed,
      bias: this.#source.has(bias) ? this.#take(bias) : undefined,
    }
  }

  #first(what: string, names: readonly string[]): Constant {
    const name = names.find(candidate => this.#source.has(candidate))
    if (name === undefined) throw missing(what, names[0]!)
    return this.#take(name)
  }

  #take(name: string, isTransposed = false): Constant {
    this.#used.add(name)
    return this.#source.constant(name, isTransposed)
  }
}

const missing = (what: string, name: string): SparkError =>
  new SparkError('ERR_FORMAT', `the file has no weights of ${what}, such as ${name}`)
