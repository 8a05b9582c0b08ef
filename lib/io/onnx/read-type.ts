// read-type.ts: conversion of TypeProto messages to value types.
import { SparkError } from '../../core/errors.js'
import { elementTypeOf } from '../../graph/element-types.js'
import type { Dimension, ValueInfo, ValueType } from '../../graph/graph.js'
import type { Message } from './messages.js'

/**
 * The type a TypeProto describes; undefined when it describes none that is known.
 * @param what - names the value in errors
 * @throws SparkError ERR_FORMAT
 */
export function readType(type: Message<'Type'>, what: string): ValueType | undefined {
  if (type.tensor) return readTensorType('tensor', type.tensor, what)
  if (type.sparse) return readTensorType('sparse', type.sparse, what)
  if (type.sequence) return { kind: 'sequence', element: readElement(type.sequence, what) }
  if (type.optional) return { kind: 'optional', element: readElement(type.optional, what) }
  if (type.map) {
    const key = elementTypeOf(type.map.keyType, `${what} (keys)`)
    return { kind: 'map', key, value: readElement({ elemType: type.map.valueType ?? {} }, what) }
  }
  return undefined
}

function readElement({ elemType }: Message<'ElementOf'>, what: string): ValueType {
  const element = readType(elemType ?? {}, what)
  if (!element) throw new SparkError('ERR_FORMAT', `${what} holds elements of an unknown type`)
  return element
}

function readTensorType<K extends 'tensor' | 'sparse'>(
  kind: K,
  { elemType, shape }: Message<'TensorType'>,
  what: string,
): Extract<ValueType, { kind: K }> | undefined {
  // Exporters write 0 for the type of a value of which they know only the shape.
  if (!elemType) return undefined
  const dtype = elementTypeOf(elemType, what)
  const dims = shape && { shape: (shape.dim ?? []).map(dim => readDimension(dim, what)) }
  return { kind, dtype, ...dims } as Extract<ValueType, { kind: K }>
}

function readDimension({ value, param }: Message<'Dimension'>, what: string): Dimension {
  // Exporters write '?' for what they do not know, all dimensions alike.
  if (param && param !== '?') return param
  // Some exporters write -1 for what they do not know.
  if (value === undefined || value === -1n) return null
  const size = Number(value)
  if (!Number.isSafeInteger(size) || size < 0) {
    throw new SparkError('ERR_FORMAT', `${what} has a dimension of size ${value}`)
  }
  return size
}

/**
 * A ValueInfoProto.
 * @throws SparkError ERR_FORMAT
 */
export function readValueInfo({ name = '', type }: Message<'ValueInfo'>, label: string): ValueInfo {
  const known = type && readType(type, `${label}: value '${name}'`)
  return known ? { name, type: known } : { name }
}
