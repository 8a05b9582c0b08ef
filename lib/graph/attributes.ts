// attributes.ts: reading and making attributes of nodes.
import { SparkError } from '../core/errors.js'
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
 * An integer attribute of `node`, or `fallback`. The ends of the 64-bit range round to ±2^63, which no size reaches.
 * @throws SparkError ERR_FORMAT when it has another type; so do the functions below
 */
export function intOf<F extends number | undefined>(node: Node, name: string, fallback: F): number | F {
  const value = attributeValue(node, name, 'int')
  return value === undefined ? fallback : toNumber(value)
}

/** A list of integers, or undefined. */
export function intsOf(node: Node, name: string): number[] | undefined {
  return attributeValue(node, name, 'ints')?.map(toNumber)
}

/** A float attribute, or `fallback`. */
export function floatOf<F extends number | undefined>(node: Node, name: string, fallback: F): number | F {
  return attributeValue(node, name, 'float') ?? fallback
}

/** A list of floats, or undefined. */
export function floatsOf(node: Node, name: string): readonly number[] | undefined {
  return attributeValue(node, name, 'floats')
}

/** A string attribute, or `fallback`. */
export function stringOf<F extends string | undefined>(node: Node, name: string, fallback: F): string | F {
  return attributeValue(node, name, 'string') ?? fallback
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
