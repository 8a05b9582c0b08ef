// graph.ts: a model as data. Nothing here ever changes: a rewrite makes a new graph and shares what stayed the same.
import type { ElementType } from '../core/dtype.js'
import type { SizeExpression } from '../core/size.js'
import type { Constant } from './constant.js'

/**
 * Size of a dimension: a number, the name of a size that is known only at run time, or null when nothing is known. Two
 * sizes of the same name are probably equal: nothing may depend on it.
 */
export type Dimension = number | string | null

/** Size of a dimension; in a graph that is compiled for all sizes also an expression of these. */
export type SymbolicDimension = Dimension | SizeExpression

/** A dense tensor. */
export interface TensorType {
  /** Which of the types of values it is. */
  readonly kind: 'tensor'
  /** Element type. */
  readonly dtype: ElementType
  /** Sizes of the dimensions; absent when not even their number is known. */
  readonly shape?: readonly SymbolicDimension[]
}

/** A tensor most of whose elements are 0. */
export interface SparseType {
  /** Which of the types of values it is. */
  readonly kind: 'sparse'
  /** Element type. */
  readonly dtype: ElementType
  /** Sizes of the dimensions; absent when not even their number is known. */
  readonly shape?: readonly SymbolicDimension[]
}

/** A list of values of one type, or a value that may be missing. */
export interface ContainerType<Kind extends 'sequence' | 'optional'> {
  /** Which of the types of values it is. */
  readonly kind: Kind
  /** Type of what is in it. */
  readonly element: ValueType
}

/** Values by key. */
export interface MapType {
  /** Which of the types of values it is. */
  readonly kind: 'map'
  /** Type of the keys. */
  readonly key: ElementType
  /** Type of the values. */
  readonly value: ValueType
}

/** What a value of a graph is. */
export type ValueType =
  | TensorType
  | SparseType
  | ContainerType<'sequence'>
  | ContainerType<'optional'>
  | MapType

/** A named value. */
export interface ValueInfo {
  /** Its name. */
  readonly name: string
  /** What it is; absent where the file says nothing about it. */
  readonly type?: ValueType
}

/** A constant most of whose elements are 0. */
export interface SparseConstant {
  /** Sizes of the dimensions of the whole. */
  readonly shape: readonly number[]
  /** The other elements, [count]. */
  readonly values: Constant
  /** Where they are: i64 [count] into the flattened tensor, or [count, rank]. */
  readonly indices: Constant
}

/** An integer attribute: a bigint only where a number would round it. */
export type IntegerValue = number | bigint

/** What an attribute of each type holds. */
export interface AttributeTypes {
  /** A number. */
  readonly float: number
  /** Numbers. */
  readonly floats: readonly number[]
  /** An integer. */
  readonly int: IntegerValue
  /** Integers. */
  readonly ints: readonly IntegerValue[]
  /** A text. */
  readonly string: string
  /** Texts. */
  readonly strings: readonly string[]
  /** A string attribute that is not UTF-8. */
  readonly bytes: Uint8Array
  /** A constant. */
  readonly tensor: Constant
  /** Constants. */
  readonly tensors: readonly Constant[]
  /** A sparse constant. */
  readonly sparse: SparseConstant
  /** Sparse constants. */
  readonly sparses: readonly SparseConstant[]
  /** A branch, or the body of a loop. */
  readonly graph: Subgraph
  /** Branches. */
  readonly graphs: readonly Subgraph[]
  /** The type of a value. */
  readonly type: ValueType
  /** Types of values. */
  readonly types: readonly ValueType[]
}

/** An attribute of one type. */
export interface TypedAttribute<T extends keyof AttributeTypes> {
  /** Its type. */
  readonly type: T
  /** What it holds. */
  readonly value: AttributeTypes[T]
}

/** In the body of a function: an attribute of the calling node. */
export interface AttributeReference {
  /** Its type. */
  readonly type: 'reference'
  /** Name of the attribute. */
  readonly value: string
  /** ONNX's number of its type. */
  readonly of: number
}

/** What a node is told besides its inputs. */
export type Attribute =
  | { [T in keyof AttributeTypes]: TypedAttribute<T> }[keyof AttributeTypes]
  | AttributeReference

/** Attributes by name. */
export type Attributes = Readonly<Record<string, Attribute>>

/** One operation. */
export interface Node {
  /** Name of the operator, such as `Conv`. */
  readonly op: string
  /** Who defines the operator; '' is the ONNX standard. */
  readonly domain: string
  /** Name of the node; may be ''. */
  readonly name: string
  /** Names of the values it reads; '' is an optional input left out. */
  readonly inputs: readonly string[]
  /** Names of the values it makes; '' is an optional output left out. */
  readonly outputs: readonly string[]
  /** What it is told besides its inputs. */
  readonly attributes: Attributes
  /** Which of several functions of the same name is meant. */
  readonly overload?: string
  /** Remarks of the exporter, such as the module a node comes from. */
  readonly metadata?: ReadonlyMap<string, string>
}

/** Nodes with inputs and outputs: a whole model, or what an `If`, `Loop` or `Scan` runs, which also sees outer values. */
export interface Subgraph {
  /** Its name. */
  readonly name: string
  /** Values from outside, in the order of the file; initializers are not among them. */
  readonly inputs: readonly ValueInfo[]
  /** Values that it gives. */
  readonly outputs: readonly ValueInfo[]
  /** In an order in which each reads only what is there already. */
  readonly nodes: readonly Node[]
  /** Weights and other constants by the name of their value. */
  readonly initializers: ReadonlyMap<string, Constant>
  /** What is known of values in between, by name. */
  readonly values: ReadonlyMap<string, ValueType>
  /** Remarks of the exporter. */
  readonly metadata: ReadonlyMap<string, string>
}

/** An operator defined by other operators. */
export interface GraphFunction {
  /** Its name. */
  readonly name: string
  /** Who defines it. */
  readonly domain: string
  /** Which of several functions of the same name it is. */
  readonly overload: string
  /** Names of the values it reads. */
  readonly inputs: readonly string[]
  /** Names of the values it makes. */
  readonly outputs: readonly string[]
  /** Attributes a calling node must have. */
  readonly attributes: readonly string[]
  /** Values of attributes a calling node may leave out. */
  readonly defaults: Attributes
  /** Its operations. */
  readonly nodes: readonly Node[]
  /** Version of each domain its nodes use. */
  readonly opsets: ReadonlyMap<string, number>
}

/** Who made a model, as its file says. */
export interface Producer {
  /** Its name. */
  readonly name: string
  /** Its version. */
  readonly version: string
}

/** A model. */
export interface Graph extends Subgraph {
  /** Version of each domain the nodes use; '' is the ONNX standard. */
  readonly opsets: ReadonlyMap<string, number>
  /** Operators of its own. */
  readonly functions: readonly GraphFunction[]
  /** Who made it. */
  readonly producer: Producer
  /** Initializers that are inputs, too: a run may feed another value. */
  readonly overridable?: readonly ValueInfo[]
  /** State: the value that replaces an initializer after a run, by the name of the initializer. */
  readonly updates?: ReadonlyMap<string, string>
}

/** The domain of the operators that ONNX lacks. */
export const sparkDomain = 'dgx.spark'

/** The version of the ONNX standard that rewrites work on: every graph is brought to it first. */
export const canonicalOpset = 25

/** An empty graph at the canonical opset; `parts` fills it. */
export function makeGraph(parts: Partial<Graph>): Graph {
  return {
    name: 'graph',
    inputs: [],
    outputs: [],
    nodes: [],
    initializers: new Map(),
    values: new Map(),
    metadata: new Map(),
    opsets: new Map([['', canonicalOpset]]),
    functions: [],
    producer: { name: 'dgx-spark', version: '' },
    ...parts,
  }
}

/** What {@link makeNode} fills in by itself. */
export interface NodeOptions {
  domain?: string
  name?: string
  attributes?: Attributes
}

/** A node: `makeNode('Add', ['a', 'b'], ['sum'])`. */
export function makeNode(
  op: string,
  inputs: readonly string[],
  outputs: readonly string[],
  { domain = '', name = '', attributes = {} }: NodeOptions = {},
): Node {
  return { op, domain, name, inputs, outputs, attributes }
}

/** Type of a dense tensor. */
export function tensorType(dtype: ElementType, shape?: readonly Dimension[]): TensorType {
  return shape ? { kind: 'tensor', dtype, shape } : { kind: 'tensor', dtype }
}
