// compare.ts: differences between the outputs of two models.
import { argumentError } from '../core/checks.js'
import type { ElementArray, ElementType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { floatReader, integerReader, isInteger } from '../kernels/js/elements.js'
import type { KernelType } from '../kernels/precision-args.js'
import type { Tensor } from '../memory/tensor.js'
import type { Feeds } from '../model/feeds.js'
import { Model } from '../model/model.js'

/** How far apart an output of two models is, over all data. */
export interface OutputDifference {
  /** Name of the output. */
  readonly name: string
  /** Σ ab / √(Σ a² · Σ b²); 1 when both are 0 everywhere. */
  readonly cosine: number
  /** ‖a − b‖ / ‖b‖; 0 when they are equal, infinite when only b is 0. */
  readonly relativeError: number
  /** max |a − b| */
  readonly maxError: number
  /** Mean of |a − b|; 0 without elements. */
  readonly meanError: number
  /** Elements that were compared. */
  readonly elements: number
}

/**
 * Runs two models on the same data and compares their outputs: the accuracy of a precision mode against fp32, of an
 * adapter against a merged model, of one engine against another.
 *
 * @param a - the model that is judged
 * @param b - the model it is judged by
 * @param data - inputs of each run, as `Model.run` takes them
 * @returns a line for each output of `b`, in its order
 * @throws SparkError ERR_ARGUMENT when there is no data or `a` lacks an output, ERR_SHAPE when outputs differ in shape, and as
 * `Model.run`
 * @example
 * const [logits] = await compare(quantized, model, images.map(image => ({ image })))
 * logits.cosine // 0.9971
 */
export async function compare(
  a: Model,
  b: Model,
  data: Iterable<Feeds> | AsyncIterable<Feeds>,
): Promise<OutputDifference[]> {
  for (const [name, model] of Object.entries({ a, b }))
    if (!(model instanceof Model)) throw argumentError(name, 'a Model', model)
  const iterable = data as Partial<Iterable<Feeds> & AsyncIterable<Feeds>> | undefined
  const iterates = iterable?.[Symbol.iterator] ?? iterable?.[Symbol.asyncIterator]
  if (!iterates || ArrayBuffer.isView(data)) throw argumentError('data', 'an iterable of feeds', data)
  const sums = new Map(b.outputs.map(({ name }) => [name, new DifferenceSums()]))
  let runs = 0
  for await (const feeds of data) {
    const [ours, theirs] = [await a.run(feeds), await b.run(feeds)]
    for (const [name, sum] of sums) sum.add(name, ours[name], theirs[name]!)
    runs++
  }
  if (runs === 0) throw new SparkError('ERR_ARGUMENT', 'data is empty: there is nothing to compare')
  return Array.from(sums, ([name, sum]) => sum.difference(name))
}

/**
 * Compares two sets of tensors by their names, those of `b`. Texts count as 1 where they are equal, otherwise as 0.
 * @throws SparkError ERR_ARGUMENT when `a` lacks one, ERR_SHAPE when two differ in shape
 */
export function compareOutputs(
  a: Readonly<Record<string, Tensor<ElementType>>>,
  b: Readonly<Record<string, Tensor<ElementType>>>,
): OutputDifference[] {
  return Object.entries(b).map(([name, theirs]) => {
    const sum = new DifferenceSums()
    sum.add(name, Object.hasOwn(a, name) ? a[name] : undefined, theirs)
    return sum.difference(name)
  })
}

/**
 * Compares outputs of one model with each other.
 * @throws SparkError as {@link compare}
 */
export async function comparePairs(
  model: Model,
  pairs: readonly { readonly a: string; readonly b: string }[],
  data: Iterable<Feeds> | AsyncIterable<Feeds>,
): Promise<OutputDifference[]> {
  const sums = pairs.map(pair => ({ ...pair, sum: new DifferenceSums() }))
  let runs = 0
  for await (const feeds of data) {
    const outputs = await model.run(feeds)
    for (const { a, b, sum } of sums) sum.add(b, outputs[a], outputs[b]!)
    runs++
  }
  if (runs === 0) throw new SparkError('ERR_ARGUMENT', 'data is empty: there is nothing to compare')
  return sums.map(({ b, sum }) => sum.difference(b))
}

/** Sums over outputs of which the differences are made. */
export class DifferenceSums {
  #products = 0
  #a = 0
  #b = 0
  #errors = 0
  #most = 0
  #absolute = 0
  #elements = 0

  add(name: string, ours: Tensor<ElementType> | undefined, theirs: Tensor<ElementType>): void {
    if (!ours)
      throw new SparkError('ERR_ARGUMENT', `there is no output '${name}' to compare with the other one`)
    if (ours.shape.join() !== theirs.shape.join()) {
      const shapes = `[${ours.shape.join(', ')}] and [${theirs.shape.join(', ')}]`
      throw new SparkError('ERR_SHAPE', `output '${name}' has the shapes ${shapes}`)
    }
    const [a, b] = numbers(ours, theirs)
    for (let i = 0; i < a.length; i++) {
      const [x, y] = [a[i]!, b[i]!]
      this.#products += x * y
      this.#a += x * x
      this.#b += y * y
      this.#errors += (x - y) ** 2
      this.#most = Math.max(this.#most, Math.abs(x - y))
      this.#absolute += Math.abs(x - y)
    }
    this.#elements += a.length
  }

  difference(name: string): OutputDifference {
    const scale = Math.sqrt(this.#a * this.#b)
    return {
      name,
      cosine: scale > 0 ? this.#products / scale : this.#a === this.#b ? 1 : 0,
      relativeError: this.#errors === 0 ? 0 : Math.sqrt(this.#errors / this.#b),
      maxError: this.#most,
      meanError: this.#absolute / Math.max(1, this.#elements),
      elements: this.#elements,
    }
  }
}

/** The elements of two tensors of one shape as numbers. */
function numbers(ours: Tensor<ElementType>, theirs: Tensor<ElementType>): ArrayLike<number>[] {
  if (ours.dtype === 'string' || theirs.dtype === 'string') {
    const equal = Array.from(theirs.data as ArrayLike<unknown>, (text, i) => Number(text === ours.data[i]))
    return [equal, equal.map(() => 1)]
  }
  return [numbersOf(ours), numbersOf(theirs)]
}

/** The elements of a tensor as numbers; of a complex one the parts in turn. It must not hold texts. */
export function numbersOf({ dtype, data }: Tensor<ElementType>): Float64Array {
  if (dtype === 'f64') return data as Float64Array
  const type = dtype as KernelType
  const element = (isInteger(type) ? integerReader : floatReader)(type, data as ElementArray)
  return Float64Array.from({ length: data.length }, (_, i) => Number(element(i)))
}
