// graph.ts: a model as data. Nothing here ever changes: a rewrite makes a new graph and shares what stayed the same.
import type { ElementType } from '../core/dtype.js'
import type { Constant } from './constant.js'

/**
 * Size of a dimension: a number, the name of a size that is known only at run time, or null when nothing is known. Two
 * sizes of the same name are probably equal: nothing may depend on it.
 */
export type Dimension = number | string | null

/** A dense tensor. `shape` is absent when not even the number of dimensions is known. */
export interface TensorType {
  readonly kind: 'tensor'
  readonly dtype: ElementType
  readonly shape?: readonly Dimension[]
}

/** What a value of a graph is. */
export type ValueType =
  | TensorType
  | { readonly kind: 'sparse'; readonly dtype: ElementType; readonly shape?: readonly Dimension[] }
  | { readonly kind: 'sequence'; readonly element: ValueType }
  | { readonly kind: 'optional'; readonly element: ValueType }
  | { readonly kind: 'map'; readonly key: ElementType; readonly value: ValueType }

/** A named value; `type` is absent where the file says nothing about it. */
export interface ValueInfo {
  readonly name: string
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

/** What a node is told besides its inputs. */
export type Attribute =
  | { readonly type: 'float'; readonly value: number }
  | { readonly type: 'floats'; readonly value: readonly number[] }
  | { readonly type: 'int'; readonly value: IntegerValue }
  | { readonly type: 'ints'; readonly value: readonly IntegerValue[] }
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'strings'; readonly value: readonly string[] }
  /** A string attribute that is not UTF-8. */
  | { readonly type: 'bytes'; readonly value: Uint8Array }
  | { readonly type: 'tensor'; readonly value: Constant }
  | { readonly type: 'tensors'; readonly value: readonly Constant[] }
  | { readonly type: 'sparse'; readonly value: SparseConstant }
  | { readonly type: 'sparses'; readonly value: readonly SparseConstant[] }
  | { readonly type: 'graph'; readonly value: Subgraph }
  | { readonly type: 'graphs'; readonly value: readonly Subgraph[] }
  | { readonly type: 'type'; readonly value: ValueType }
  | { readonly type: 'types'; readonly value: readonly ValueType[] }
  /** In the body of a function: the attribute of that name of the calling node, of the given ONNX type number. */
  | { readonly type: 'reference'; readonly value: string; readonly of: number }

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
  readonly attributes: Attributes
  /** Which of several functions of the same name is meant. */
  readonly overload?: string
  /** Remarks of the exporter, such as the module a node comes from. */
  readonly metadata?: ReadonlyMap<string, string>
}

/** Nodes with inputs and outputs: a whole model, or what an `If`, `Loop` or `Scan` runs, which also sees outer values. */
export interface Subgraph {
  readonly name: string
  /** Values from outside, in the order of the file; initializers are not among them. */
  readonly inputs: readonly ValueInfo[]
  readonly outputs: readonly ValueInfo[]
  /** In an order in which each reads only what is there already. */
  readonly nodes: readonly Node[]
  /** Weights and other constants by the name of their value. */
  readonly initializers: ReadonlyMap<string, Constant>
  /** What is known of values in between, by name. */
  readonly values: ReadonlyMap<string, ValueType>
  readonly metadata: ReadonlyMap<string, string>
}

/** An operator defined by other operators. */
export interface GraphFunction {
  readonly name: string
  readonly domain: string
  readonly overload: string
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  /** Attributes a calling node must have. */
  readonly attributes: readonly string[]
  /** Values of attributes a calling node may leave out. */
  readonly defaults: Attributes
  readonly nodes: readonly Node[]
  /** Version of each domain its nodes use. */
  readonly opsets: ReadonlyMap<string, number>
}

/** Who made a model, as its file says. */
export interface Producer {
  readonly name: string
  readonly version: string
}

/** A model. */
export interface Graph extends Subgraph {
  /** Version of each domain the nodes use; '' is the ONNX standard. */
  readonly opsets: ReadonlyMap<string, number>
  readonly functions: readonly GraphFunction[]
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
