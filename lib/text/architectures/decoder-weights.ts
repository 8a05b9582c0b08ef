// decoder-weights.ts: the weights of a decoder by what they are for, whatever their file calls them.
import type { Constant } from '../../graph/constant.js'
import type { MatrixStack, WeightSource } from './config.js'
import { type LinearWeights, missing, NamedWeights } from './named-weights.js'
import {
  expertNames,
  type LayerPart,
  layerNames,
  layerPrefixes,
  modelNames,
  unusedNames,
} from './weight-names.js'

/** Matrices of all experts. */
export interface ExpertWeights extends MatrixStack {
  /** [experts, out features]. */
  readonly bias: Constant | undefined
}

/** The weights of a decoder. */
export class DecoderWeights extends NamedWeights<LayerPart> {
  /** @throws SparkError ERR_FORMAT when there are no layers */
  constructor(source: WeightSource) {
    super(source, { prefixes: layerPrefixes, parts: layerNames, unused: unusedNames })
  }

  /** Table of the vocabulary, [tokens, hidden size]. */
  get embedding(): Constant {
    return this.firstOf('embedding', modelNames.embedding)
  }

  /** Learned positions, [positions, hidden size]. */
  get positions(): Constant | undefined {
    return this.optionalOf(modelNames.positions)
  }

  /** Normalization behind the last layer. */
  get norm(): LinearWeights {
    return this.optionalLinear(modelNames.norm) ?? missing('the last normalization', modelNames.norm[0])
  }

  /** What makes logits; undefined: the table of the vocabulary. */
  get head(): LinearWeights | undefined {
    return this.optionalLinear(modelNames.head)
  }

  /** A vector of a layer that has no `.weight` in its name, or has. */
  vector(layer: number, part: LayerPart): Constant | undefined {
    return this.optionalOf(this.namesOf(layer, part).flatMap(name => [name, `${name}.weight`]))
  }

  /** Whether the rows of queries, keys and values in one matrix are those of one head after another: GPT-NeoX. */
  get isSplitByHead(): boolean {
    return this.source.has(`${this.prefix}0.attention.query_key_value.weight`)
  }

  /** Matrices of all experts of a layer in one tensor that must be there. */
  experts(layer: number, part: LayerPart): ExpertWeights {
    return this.optionalExperts(layer, part) ?? this.missingPart(layer, part)
  }

  /** The same, where the file has it. */
  optionalExperts(layer: number, part: LayerPart): ExpertWeights | undefined {
    for (const name of this.namesOf(layer, part)) {
      const weight = this.optionalOf([name, `${name}.weight`])
      if (!weight) continue
      return { weight, factors: undefined, bias: this.optionalOf([`${name}_bias`, `${name}.bias`]) }
    }
    return undefined
  }

  /** Matrices of the experts of a layer where each has tensors of its own: gates, ups, downs. */
  expertStacks(layer: number, count: number): [ExpertWeights, ExpertWeights, ExpertWeights] | undefined {
    const nameOf = (name: string, expert: number): string =>
      `${this.prefix}${layer}.${name.replace('{}', `${expert}`)}.weight`
    const names = expertNames.find(([gate]) => this.source.has(nameOf(gate, 0)))
    if (!names) return undefined
    const [gates, ups, downs] = names.map(name => {
      const all = Array.from({ length: count }, (_, expert) => nameOf(name, expert))
      for (const one of all) {
        if (!this.source.has(one)) missing(`an expert of layer ${layer}`, one)
        this.use(one)
      }
      return { ...this.source.stack(all), bias: undefined }
    }) as [ExpertWeights, ExpertWeights, ExpertWeights]
    return [gates, ups, downs]
  }

  protected override isTransposed(name: string): boolean {
    const isInLayer = this.prefix.endsWith('h.') && name.startsWith(this.prefix)
    return isInLayer && this.source.shape(`${name}.weight`).length === 2
  }
}
