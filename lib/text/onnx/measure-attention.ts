// measure-attention.ts: what the attention of an exported decoder computes, measured on an example: the factor of scores and
// their limit. What was taken for attention is then compared with attention, so that nothing rests on the form of its nodes.
import { SparkError } from '../../core/errors.js'
import { randomGenerator } from '../../core/random.js'
import { describeNode, givenFloat, givenInt } from '../../graph/attributes.js'
import type { Graph } from '../../graph/graph.js'
import type { AttentionSite } from './attention-site.js'
import type { DecoderPorts } from './decoder-ports.js'
import { Probe, type ProbedValues, type ProbeSizes } from './probe.js'
import type { SoftmaxSite } from './softmax-attention.js'

const sizes: ProbeSizes = { past: 5, added: 3 }
const total = sizes.past + sizes.added

/** Queries so small that tanh is linear, and so large that it is 1. */
const [small, large] = [2 ** -12, 2 ** 20]

/** Largest difference from attention: that of rounding in sums of a few numbers below 1. */
const tolerance = 1e-4

/** Attention without the factor of its scores. */
export type UnmeasuredSite = SoftmaxSite & { readonly heads: number }

/** Attention that was measured. */
export interface MeasuredSite extends AttentionSite {
  /** Compares it with attention over a window. */
  expectAttention(window: number): void
}

/** Measures the attention of layers. */
export async function measureAttention(
  graph: Graph,
  ports: DecoderPorts,
  sites: readonly UnmeasuredSite[],
): Promise<MeasuredSite[]> {
  if (sites.length === 0) return []
  const names = sites.flatMap(({ scores, node }) => [
    ...(scores === undefined ? [] : [scores]),
    node.outputs[0]!,
  ])
  const shapes = new Map(sites.flatMap(site => [...shapesOf(site, ports)]))
  using probe = await Probe.open(graph, ports, names, sizes, shapes)
  const queries = new Set(sites.map(({ query }) => query))
  const random = randomGenerator(18)
  const given = new Map([...shapes].map(([name, shape]) => [name, numbers(shape, random)]))
  const scaled = (factor: number): Map<string, Float32Array> =>
    new Map(
      [...given].map(([name, values]) => [name, queries.has(name) ? values.map(x => x * factor) : values]),
    )
  const bySmall = await probe.run(scaled(small))
  const byLarge = sites.some(({ isCapped }) => isCapped) ? await probe.run(scaled(large)) : bySmall
  const usual = await probe.run(given)
  return sites.map(site => {
    const example = new Example(site, ports, given)
    const { scale, softcap } = factorsOf(site, example, bySmall, byLarge)
    return measuredSite(site, ports, { scale, softcap }, window => {
      const difference = example.difference(usual, { scale, softcap, window })
      if (difference <= tolerance) return
      const what = `it differs from causal attention (scale ${scale}, softcap ${softcap}, window ${window}) by ${difference}`
      throw new SparkError('ERR_UNSUPPORTED', `${describeNode(site.node)}: ${what}`)
    })
  })
}

/** Factor and limit of scores: of Attention those that it says, else as measured. */
function factorsOf(
  { node, scores, isCapped }: UnmeasuredSite,
  example: Example,
  bySmall: ProbedValues,
  byLarge: ProbedValues,
): { scale: number; softcap: number } {
  if (scores === undefined)
    return {
      scale: givenFloat(node, 'scale') ?? example.usualScale,
      softcap: givenFloat(node, 'softcap') ?? 0,
    }
  return { scale: example.scale(bySmall, scores), softcap: isCapped ? maxOf(byLarge, scores) : 0 }
}

function measuredSite(
  site: UnmeasuredSite,
  ports: DecoderPorts,
  measured: { scale: number; softcap: number },
  expectAttention: (window: number) => void,
): MeasuredSite {
  const { layer, node, heads, masks } = site
  const { kvHeads, headSize } = ports.layers[layer]!
  const apart = (name: string) => ({ name, layout: 'apart' }) as const
  return {
    ...{ layer, node, heads, kvHeads, headSize, masks, ...measured, expectAttention },
    isCausal: givenInt(node, 'is_causal') === 1,
    ...{ query: apart(site.query), key: apart(site.key), value: apart(site.value) },
    output: apart(node.outputs[0]!),
  }
}

/** Shapes of what the attention of a layer reads. */
function shapesOf(
  { layer, heads, query, key, value, pastKey, pastValue }: UnmeasuredSite,
  ports: DecoderPorts,
) {
  const { kvHeads, headSize } = ports.layers[layer]!
  const { past, added } = sizes
  return new Map([
    [query, [1, heads, added, headSize]],
    [key, [1, kvHeads, added, headSize]],
    [value, [1, kvHeads, added, headSize]],
    [pastKey, [1, kvHeads, past, headSize]],
    [pastValue, [1, kvHeads, past, headSize]],
  ])
}

/** Numbers in [−1, 1). */
const numbers = (shape: readonly number[], random: () => number): Float32Array =>
  Float32Array.from({ length: shape.reduce((product, size) => product * size, 1) }, () => 2 * random() - 1)

const maxOf = (values: ProbedValues, name: string): number =>
  (values.get(name)!.data as Float32Array).reduce((most, value) => Math.max(most, value), 0)

/** The attention of a layer in the example. */
class Example {
  readonly #site: UnmeasuredSite
  readonly #size: number
  readonly #kvHeads: number
  readonly #given: ReadonlyMap<string, Float32Array>

  constructor(site: UnmeasuredSite, ports: DecoderPorts, given: ReadonlyMap<string, Float32Array>) {
    const { kvHeads, headSize } = ports.layers[site.layer]!
    this.#site = site
    this.#size = headSize
    this.#kvHeads = kvHeads
    this.#given = given
  }

  get usualScale(): number {
    return 1 / Math.sqrt(this.#size)
  }

  /** The factor of scores, from that of a query and its own key whose product is the largest one. */
  scale(values: ProbedValues, name: string): number {
    const scores = values.get(name)!.data as Float32Array
    const { past, added } = sizes
    let best = { product: 0, score: 0 }
    for (let head = 0; head < this.#site.heads; head++)
      for (let i = 0; i < added; i++) {
        const product = small * this.#product(head, i, past + i)
        const score = scores[(head * added + i) * total + past + i]!
        if (Math.abs(product) > Math.abs(best.product)) best = { product, score }
      }
    const scale = best.score / best.product
    // Rounding aside, most are one over the root of an integer.
    const usual = 1 / Math.sqrt(Math.round(scale ** -2))
    return Math.abs(scale / usual - 1) < 1e-5 ? usual : scale
  }

  /** The largest difference of what was computed from attention. */
  difference(values: ProbedValues, attention: { scale: number; softcap: number; window: number }): number {
    const output = values.get(this.#site.node.outputs[0]!)!
    const { heads } = this.#site
    const size = this.#size
    if (output.data.length !== heads * sizes.added * size) return Number.POSITIVE_INFINITY
    let worst = 0
    for (let head = 0; head < heads; head++)
      for (let i = 0; i < sizes.added; i++) {
        const wanted = this.#attended(head, i, attention)
        const begin = (head * sizes.added + i) * size
        for (let j = 0; j < size; j++) {
          const difference = Math.abs(wanted[j]! - Number(output.data[begin + j]))
          if (!(difference <= worst)) worst = difference
        }
      }
    return worst
  }

  #attended(
    head: number,
    query: number,
    { scale, softcap, window }: { scale: number; softcap: number; window: number },
  ): Float64Array {
    const position = sizes.past + query
    const result = new Float64Array(this.#size)
    let sum = 0
    for (let key = Math.max(0, position - window + 1); key <= position; key++) {
      const score = scale * this.#product(head, query, key)
      const weight = Math.exp(softcap === 0 ? score : softcap * Math.tanh(score / softcap))
      sum += weight
      const value = this.#row('value', head, key)
      for (let j = 0; j < result.length; j++) result[j]! += weight * value[j]!
    }
    return result.map(value => value / sum)
  }

  #product(head: number, query: number, key: number): number {
    const begin = (head * sizes.added + query) * this.#size
    const row = this.#given.get(this.#site.query)!.subarray(begin, begin + this.#size)
    const other = this.#row('key', head, key)
    return row.reduce((sum, value, j) => sum + value * other[j]!, 0)
  }

  /** A key or a value, of the past or new. */
  #row(kind: 'key' | 'value', head: number, at: number): Float32Array {
    const { past, added } = sizes
    const own = Math.floor((head * this.#kvHeads) / this.#site.heads)
    const isPast = at < past
    const name =
      kind === 'key' ? [this.#site.pastKey, this.#site.key] : [this.#site.pastValue, this.#site.value]
    const values = this.#given.get(isPast ? name[0]! : name[1]!)!
    const begin = (isPast ? own * past + at : own * added + at - past) * this.#size
    return values.subarray(begin, begin + this.#size)
  }
}
