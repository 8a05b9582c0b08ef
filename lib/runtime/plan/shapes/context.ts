// context.ts: what a shape rule sees.
import { SparkError } from '../../../core/errors.js'
import { describeNode, intOf, intsOf } from '../../../graph/attributes.js'
import type { Node } from '../../../graph/graph.js'
import type { TensorShape, Value } from '../lowering.js'

/** Rules by domain and operator. */
export type ShapeTable = Readonly<
  Record<string, Readonly<Record<string, (at: ShapeContext) => TensorShape[]>>>
>

/** A node and the types of its inputs. */
export class ShapeContext {
  /** The node. */
  readonly node: Node
  readonly #values: ReadonlyMap<string, Value>

  /** `values` holds those that the node reads. */
  constructor(node: Node, values: ReadonlyMap<string, Value>) {
    this.node = node
    this.#values = values
  }

  /** Whether input `i` is there. */
  has(i: number): boolean {
    return (this.node.inputs[i] ?? '') !== ''
  }

  /** Type of input `i`. */
  type(i: number): TensorShape {
    const { dtype, shape } = this.#value(i)
    return { dtype, shape }
  }

  /** Sizes of input `i`. */
  shape(i: number): readonly number[] {
    return this.#value(i).shape
  }

  /** The integers of input `i`, which must be known at compile time. */
  integers(i: number): number[] {
    const { constant } = this.#value(i)
    if (!constant) throw new SparkError('ERR_UNSUPPORTED', `${this.describe()}: input ${i} depends on data`)
    return constant.integers()
  }

  /** An integer attribute. */
  integer(name: string, fallback: number): number {
    return intOf(this.node, name, fallback)
  }

  /** A list of integers as an attribute. */
  integersOf(name: string): number[] | undefined {
    return intsOf(this.node, name)
  }

  /** How errors name the node. */
  describe(): string {
    return describeNode(this.node)
  }

  /** An error about two inputs whose shapes do not fit. */
  mismatch(i: number, j: number): SparkError {
    const shapes = `[${this.shape(i).join(', ')}] and [${this.shape(j).join(', ')}]`
    return new SparkError('ERR_SHAPE', `${this.describe()}: inputs ${i} and ${j} do not fit: ${shapes}`)
  }

  #value(i: number): Value {
    const value = this.has(i) ? this.#values.get(this.node.inputs[i]!) : undefined
    if (!value) throw new SparkError('ERR_FORMAT', `${this.describe()}: input ${i} is missing`)
    return value
  }
}
