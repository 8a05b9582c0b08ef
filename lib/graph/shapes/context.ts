// context.ts: the context of a shape rule: its node, and the facts of its inputs.
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Paced } from '../../core/paced.js'
import { fixSizes, isSize, type Size } from '../../core/size.js'
import { describeNode, givenInt, intOf, intsOf, stringOf } from '../attributes.js'
import { elementTypeOf } from '../element-types.js'
import type { Node, Subgraph, SymbolicDimension, ValueType } from '../graph.js'
import { broadcastShapes, type Shape } from './dimensions.js'

/** Elements of a small tensor as far as they are known: a number or an expression of sizes, the name of a size, or null. */
export interface KnownValue {
  readonly shape: readonly number[]
  readonly elements: readonly SymbolicDimension[]
}

/** Elements a value may have to be followed. */
export const maxKnownElements = 1024

/** What is known of a value. */
export interface Fact {
  readonly type?: ValueType | undefined
  readonly known?: KnownValue | undefined
}

/** Types of the outputs of a node; undefined or missing where nothing is known. */
export type Rule = (ctx: ShapeContext) => Types | Paced<Types>

type Types = readonly (ValueType | undefined)[]

/**
 * Infers a subgraph whose inputs are the given facts, and returns the facts of its outputs. One that may not run at all
 * (`certain` false) may not fit its inputs.
 */
export type InferSubgraph = (
  graph: Subgraph,
  inputs: readonly Fact[],
  certain?: boolean,
) => Paced<readonly Fact[]>

/** A node whose outputs are to be inferred. */
export class ShapeContext {
  readonly node: Node
  readonly #facts: ReadonlyMap<string, Fact>
  /** How many graphs the node lies in. */
  readonly depth: number
  /** Infers a subgraph of the node. */
  readonly inferSubgraph: InferSubgraph

  constructor(node: Node, facts: ReadonlyMap<string, Fact>, depth: number, inferSubgraph: InferSubgraph) {
    this.node = node
    this.depth = depth
    this.#facts = facts
    this.inferSubgraph = inferSubgraph
  }

  /** Whether the node has input `i`. */
  has(i: number): boolean {
    return (this.node.inputs[i] ?? '') !== ''
  }

  /** Everything that is known of input `i`. */
  fact(i: number): Fact {
    return this.factOf(this.node.inputs[i] ?? '')
  }

  /** Everything that is known of a value by its name. */
  factOf(name: string): Fact {
    return this.#facts.get(name) ?? {}
  }

  /** Type of input `i`. */
  type(i: number): ValueType | undefined {
    return this.fact(i).type
  }

  /** Element type of input `i`, where it is a tensor. */
  dtype(i: number): ElementType | undefined {
    const type = this.type(i)
    return type?.kind === 'tensor' ? type.dtype : undefined
  }

  /** Shape of input `i`, where it is a tensor. */
  shape(i: number): Shape | undefined {
    const type = this.type(i)
    return type?.kind === 'tensor' ? type.shape : undefined
  }

  /** Shapes of all inputs. */
  shapes(): (Shape | undefined)[] {
    return this.node.inputs.map((_, i) => this.shape(i))
  }

  /** The elements of input `i`, as far as they are known. */
  known(i: number): KnownValue | undefined {
    return this.fact(i).known
  }

  /** The elements of input `i`, when all of them are known. */
  sizes(i: number): readonly Size[] | undefined {
    const elements = this.known(i)?.elements
    return elements?.every(isSize) ? (elements as readonly Size[]) : undefined
  }

  /** The elements of input `i`, when all of them are known; sizes are fixed. */
  numbers(i: number): number[] | undefined {
    const sizes = this.sizes(i)
    return sizes && fixSizes(sizes)
  }

  /** An integer attribute. */
  int(name: string): number {
    return intOf(this.node, name)
  }

  /** A list of integers. */
  ints(name: string): number[] | undefined {
    return intsOf(this.node, name)
  }

  /** A text attribute. */
  text(name: string): string {
    return stringOf(this.node, name)
  }

  /** The element type that an attribute names by its ONNX number. */
  typeAttribute(name: string, fallback?: ElementType): ElementType | undefined {
    const number = givenInt(this.node, name)
    return number === undefined ? fallback : elementTypeOf(number, `${describeNode(this.node)}: ${name}`)
  }

  /** An error about this node. */
  fail(message: string): SparkError {
    return new SparkError('ERR_SHAPE', `${describeNode(this.node)}: ${message}`)
  }

  /**
   * The element type that inputs share, as far as it is known; by default all of them.
   * @throws SparkError ERR_DTYPE when they differ
   */
  commonDtype(inputs: Iterable<number> = this.node.inputs.keys()): ElementType | undefined {
    const types = Array.from(inputs, i => this.dtype(i)).filter(type => type !== undefined)
    const other = types.find(type => type !== types[0])
    if (other) {
      throw new SparkError(
        'ERR_DTYPE',
        `${describeNode(this.node)}: its inputs are ${types[0]} and ${other}; they must have one type: add a Cast`,
      )
    }
    return types[0]
  }

  /**
   * `axis` counted from the start, in a tensor of `rank` dimensions.
   * @throws SparkError ERR_SHAPE when there is no such axis
   */
  axis(axis: number, rank: number): number {
    const positive = axis < 0 ? axis + rank : axis
    if (!(positive >= 0 && positive < rank)) {
      throw this.fail(`axis ${axis} is outside of a tensor of ${rank} dimensions`)
    }
    return positive
  }

  /**
   * The shape to which shapes broadcast; by default those of all inputs.
   * @throws SparkError ERR_SHAPE when they do not fit together
   */
  broadcast(shapes: readonly (Shape | undefined)[] = this.shapes()): Shape | undefined {
    const shape = broadcastShapes(shapes)
    if (shape === null) {
      throw this.fail(`shapes ${showShapes(shapes)} do not broadcast`)
    }
    return shape
  }
}

/** How a shape looks in a message. */
export function showShape(shape: Shape | undefined): string {
  return shape ? `[${shape.map(dim => dim ?? '?').join(', ')}]` : '[?]'
}

/** How the first of several shapes look in a message. */
export function showShapes(shapes: readonly (Shape | undefined)[]): string {
  const shown = shapes.slice(0, 8).map(showShape).join(' and ')
  return shapes.length > 8 ? `${shown} and ${shapes.length - 8} more` : shown
}

/** A tensor type, or undefined when the element type is not known. */
export function tensorOrUnknown(
  dtype: ElementType | undefined,
  shape: Shape | undefined,
): ValueType | undefined {
  return dtype && (shape ? { kind: 'tensor', dtype, shape } : { kind: 'tensor', dtype })
}
