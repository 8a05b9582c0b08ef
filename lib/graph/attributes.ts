// attributes.ts: reading and making attributes of nodes.
import { SparkError } from '../core/errors.js'
import { defaultOf } from './attribute-defaults.js'
import type { Constant } from './constant.js'
import type { Attribute, IntegerValue, Node, Subgraph } from './graph.js'

/** An integer attribute. */
export const int = (value: number): Attribute => ({ type: 'int', value })
/** A list of integers as an attribute. */
export const ints = (value: readonly number[]): Attribute => ({ type: 'ints', value })
/** A float attribute. */
export const float = (value: number): Attribute => ({ type: 'float', value })
/** A list of floats as an attribute. */
export const floats = (value: readonly number[]): Attribute => ({ type: 'floats', value })
/** A string attribute. */
export const string = (value: string): Attribute => ({ type: 'string', value })
/** A tensor as an attribute. */
export const tensor = (value: Constant): Attribute => ({ type: 'tensor', value })
/** A graph as an attribute. */
export const graph = (value: Subgraph): Attribute => ({ type: 'graph', value })

/** What an attribute of each type holds. */
type AttributeValues = { [A in Attribute as A['type']]: A['value'] }

function attributeValue<T extends keyof AttributeValues>(
  node: Node,
  name: string,
  type: T,
): AttributeValues[T] | undefined {
  const attribute = Object.hasOwn(node.attributes, name) ? node.attributes[name] : undefined
  if (attribute === undefined) return undefined
  if (attribute.type !== type) {
    throw new SparkError(
      'ERR_FORMAT',
      `${describeNode(node)}: attribute '${name}' must be of type ${type}, got ${attribute.type}`,
    )
  }
  return attribute.value as AttributeValues[T]
}

const toNumber = (value: IntegerValue): number => Number(value)

/**
 * An integer attribute, undefined if the node leaves it out. The ends of the 64-bit range round to ±2^63, which no size
 * reaches.
 * @throws SparkError ERR_FORMAT when it has another type; so do the functions below
 */
export function givenInt(node: Node, name: string): number | undefined {
  const value = attributeValue(node, name, 'int')
  return value === undefined ? undefined : toNumber(value)
}

/** An integer attribute, or the default of the operator, which must have one. */
export function intOf(node: Node, name: string): number {
  return givenInt(node, name) ?? defaultNumber(node, name)
}

/** A list of integers, or undefined. */
export function intsOf(node: Node, name: string): number[] | undefined {
  return attributeValue(node, name, 'ints')?.map(toNumber)
}

/** A float attribute, or undefined. */
export function givenFloat(node: Node, name: string): number | undefined {
  return attributeValue(node, name, 'float')
}

/** A float attribute, or the default of the operator. */
export function floatOf(node: Node, name: string): number {
  return givenFloat(node, name) ?? defaultNumber(node, name)
}

/** A list of floats, or undefined. */
export function floatsOf(node: Node, name: string): readonly number[] | undefined {
  return attributeValue(node, name, 'floats')
}

/** A string attribute, or undefined. */
export function givenString(node: Node, name: string): string | undefined {
  return attributeValue(node, name, 'string')
}

/** A string attribute, or the default of the operator. */
export function stringOf(node: Node, name: string): string {
  return givenString(node, name) ?? defaultString(node, name)
}

/** A list of strings, or undefined. */
export function stringsOf(node: Node, name: string): readonly string[] | undefined {
  return attributeValue(node, name, 'strings')
}

/** A tensor attribute, or undefined. */
export function tensorOf(node: Node, name: string): Constant | undefined {
  return attributeValue(node, name, 'tensor')
}

/** A graph attribute, or undefined. */
export function graphOf(node: Node, name: string): Subgraph | undefined {
  return attributeValue(node, name, 'graph')
}

/** The default of a number, at an opset of the node's domain. */
export function defaultNumber(node: Node, name: string, opset?: number): number {
  const value = defaultOf(node, name, opset)
  if (typeof value !== 'number') throw noDefault(node, name)
  return value
}

/** The default of a string, at an opset of the node's domain. */
export function defaultString(node: Node, name: string, opset?: number): string {
  const value = defaultOf(node, name, opset)
  if (typeof value !== 'string') throw noDefault(node, name)
  return value
}

const noDefault = (node: Node, name: string): SparkError =>
  new SparkError(
    'ERR_INTERNAL',
    `${describeNode(node)}: attribute '${name}' has no default in lib/graph/attribute-defaults.ts`,
  )

/** How errors name a node: its operator, its name, and its first output where it has no name. */
export function describeNode(node: Node): string {
  const op = node.domain === '' ? node.op : `${node.domain}::${node.op}`
  return `node '${node.name || node.outputs.find(name => name !== '') || ''}' (${op})`
}

/** Does something for a node, which errors then name if they name none. */
export function namingNode<T>(node: Node, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof SparkError) || error.message.startsWith("node '")) throw error
    throw new SparkError(error.code, `${describeNode(node)}: ${error.message}`, { cause: error })
  }
}
