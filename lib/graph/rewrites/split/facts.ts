// facts.ts: what rules know of the values of a graph that is split.
import type { ElementType } from '../../../core/dtype.js'
import { isSize, type Size } from '../../../core/size.js'
import { consumersOf, producersOf } from '../../edit.js'
import type { Graph, Node } from '../../graph.js'
import { type Fact, integersOf } from '../../shape-inference.js'
import { livingOf } from '../cut/living.js'
import { symbolicFacts } from '../cut/values.js'

/** Sizes, constants and readers of the values of a graph. */
export class SplitFacts {
  readonly graph: Graph
  readonly producers: ReadonlyMap<string, Node>
  readonly consumers: ReadonlyMap<string, readonly Node[]>
  readonly world: number
  readonly #facts: ReadonlyMap<string, Fact>
  readonly #fixed: ReadonlySet<string>

  constructor(graph: Graph, world: number) {
    this.graph = graph
    this.world = world
    this.producers = producersOf(graph)
    this.consumers = consumersOf(graph)
    this.#facts = symbolicFacts(graph, undefined)
    this.#fixed = livingOf(graph, this.#facts).fixed
  }

  /** Sizes of a value, undefined ones among them; undefined when not even their number is known. */
  shape(name: string): readonly (Size | undefined)[] | undefined {
    const type = this.#facts.get(name)?.type
    return type?.kind === 'tensor' ? type.shape?.map(size => (isSize(size) ? size : undefined)) : undefined
  }

  /** A size that is a number. */
  size(name: string, axis: number): number | undefined {
    const size = this.shape(name)?.[axis]
    return typeof size === 'number' ? size : undefined
  }

  /** Element type of a value; undefined where it is no tensor. */
  dtype(name: string): ElementType | undefined {
    const type = this.#facts.get(name)?.type
    return type?.kind === 'tensor' ? type.dtype : undefined
  }

  /** Whether a value follows from constants. */
  isFixed(name: string | undefined): boolean {
    return name !== undefined && this.#fixed.has(name)
  }

  /** The elements of a value, where all are known. */
  integers(name: string | undefined): readonly number[] | undefined {
    return integersOf(this.#facts.get(name ?? '')?.known)
  }

  /** Whether all ranks can have equal parts. */
  divides(size: number | undefined): size is number {
    return size !== undefined && size > 0 && size % this.world === 0
  }
}
