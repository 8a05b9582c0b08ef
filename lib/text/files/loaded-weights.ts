// loaded-weights.ts: the weights of a model, each in the format of its file.
import { SparkError } from '../../core/errors.js'
import { Constant } from '../../graph/constant.js'
import { concatWeights, rowsOf } from '../../weights/concat.js'
import { isLazy, LazyRows, readWeight } from '../../weights/lazy-weight.js'
import type { Weight } from '../../weights/weight.js'
import type { MatrixStack, WeightSource } from '../architectures/config.js'
import { type ModelTensor, tensorOf, WeightTensor } from './model-tensors.js'

/** The tensors of a file by name. */
export class LoadedWeights implements WeightSource {
  readonly #tensors: Map<string, ModelTensor>

  constructor(tensors: ReadonlyMap<string, ModelTensor>) {
    this.#tensors = new Map(tensors)
  }

  get names(): readonly string[] {
    return [...this.#tensors.keys()]
  }

  has(name: string): boolean {
    return this.#tensors.has(name)
  }

  shape(name: string): readonly number[] {
    return this.#tensor(name).shape
  }

  constant(name: string, transposed = false): Constant {
    return this.#tensor(name).constant(transposed)
  }

  stack(names: readonly string[]): MatrixStack {
    const tensors = names.map(name => this.#tensor(name))
    const [first] = tensors
    const odd = names.find((_, i) => tensors[i]!.shape.join() !== first!.shape.join())
    if (odd !== undefined)
      throw new SparkError(
        'ERR_FORMAT',
        `'${odd}' is [${this.shape(odd).join(', ')}], but '${names[0]}' is [${first!.shape.join(', ')}]`,
      )
    const shape = [tensors.length, ...first!.shape]
    const lazy = tensors.map(({ weight }) => weight)
    if (areUniform(lazy))
      return { weight: tensorOf(shape, LazyRows.concat(lazy)).constant(false), factors: undefined }
    const { weight, factors } = concatMatrices(lazy.map(readWeight))
    // The memory of the matrices is free once they are parts of the stack.
    const rows = weight.rows / names.length
    for (const [i, name] of names.entries())
      this.#tensors.set(name, new WeightTensor(scaled(rowsOf(weight, i * rows, rows), factors?.[i])))
    return { weight: tensorOf(shape, weight).constant(false), factors: factors && Constant.f32(factors) }
  }

  #tensor(name: string): ModelTensor {
    const tensor = this.#tensors.get(name)
    if (!tensor) throw new SparkError('ERR_FORMAT', `the file has no tensor '${name}'`)
    return tensor
  }
}

/** Whether all are rows in files, of one format. */
const areUniform = (weights: readonly ModelTensor['weight'][]): weights is [LazyRows, ...LazyRows[]] =>
  weights.every(
    weight => isLazy(weight) && weight instanceof LazyRows && weight.format === weights[0]!.format,
  )

/** Matrices of one shape below each other, in their format where it is the same, and a factor of each that has one of its own. */
function concatMatrices(weights: readonly Weight[]): { weight: Weight; factors: number[] | undefined } {
  const factors = factorsOf(weights)
  return { weight: concatWeights(factors ? weights.map(each => scaled(each, 1)) : weights), factors }
}

/** Scales of whole matrices of NVFP4, where they differ. */
function factorsOf(weights: readonly Weight[]): number[] | undefined {
  const factors = weights.flatMap(weight => (weight.format === 'nvfp4' ? [weight.tensorScale] : []))
  const differ = factors.length === weights.length && factors.some(factor => factor !== factors[0])
  return differ ? factors : undefined
}

/** A weight of NVFP4 with another scale; any weight without one. */
const scaled = (weight: Weight, tensorScale: number | undefined): Weight =>
  weight.format === 'nvfp4' && tensorScale !== undefined ? { ...weight, tensorScale } : weight
