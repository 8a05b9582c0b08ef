// read-attribute.ts: conversion of AttributeProto messages to attributes.
import { SparkError } from '../../core/errors.js'
import type { Paced } from '../../core/paced.js'
import type { Attribute, Attributes, IntegerValue, Subgraph, ValueType } from '../../graph/graph.js'
import type { Message } from './messages.js'
import { readSparse, readTensor, type TensorContext } from './read-tensor.js'
import { readType } from './read-type.js'

/** Attribute types by their number in the format (AttributeProto.AttributeType). */
export const attributeNumbers = {
  float: 1,
  int: 2,
  string: 3,
  tensor: 4,
  graph: 5,
  floats: 6,
  ints: 7,
  strings: 8,
  tensors: 9,
  graphs: 10,
  sparse: 11,
  sparses: 12,
  type: 13,
  types: 14,
} as const

type AttributeName = keyof typeof attributeNumbers

const namesByNumber = new Map(
  Object.entries(attributeNumbers).map(([name, number]) => [number as number, name as AttributeName]),
)

/** Reads the graph inside of an attribute. */
export type ReadGraph = (graph: Message<'Graph'>, what: string) => Paced<Subgraph>

/**
 * The attributes of a node or the defaults of a function.
 * @param what - names the node in errors
 * @throws SparkError ERR_FORMAT
 */
export function* readAttributes(
  context: TensorContext,
  list: readonly Message<'Attribute'>[],
  what: string,
  readGraph: ReadGraph,
): Paced<Attributes> {
  const attributes = new Map<string, Attribute>()
  for (const attribute of list) {
    const { name = '' } = attribute
    const location = `${what}: attribute '${name}'`
    if (attributes.has(name)) throw new SparkError('ERR_FORMAT', `${context.label}: ${location} occurs twice`)
    attributes.set(name, yield* readAttribute(context, attribute, location, readGraph))
  }
  return Object.fromEntries(attributes)
}

function* readAttribute(
  context: TensorContext,
  attribute: Message<'Attribute'>,
  what: string,
  readGraph: ReadGraph,
): Paced<Attribute> {
  const number = attribute.type ?? impliedType(attribute)
  if (attribute.refAttrName) return { type: 'reference', value: attribute.refAttrName, of: number }
  const type = namesByNumber.get(number)
  const fail = (why: string): SparkError => new SparkError('ERR_FORMAT', `${context.label}: ${what} ${why}`)
  const present = <T>(value: T | undefined): T => {
    if (value === undefined) throw fail(`is of type ${type} but has no value`)
    return value
  }
  switch (type) {
    case 'float':
      return { type, value: attribute.f ?? 0 }
    case 'floats':
      return { type, value: attribute.floats ?? [] }
    case 'int':
      return { type, value: toInteger(attribute.i ?? 0n) }
    case 'ints':
      return { type, value: (attribute.ints ?? []).map(toInteger) }
    case 'string':
      return readString(attribute.s ?? new Uint8Array())
    case 'strings':
      return { type, value: readStrings(attribute.strings ?? [], fail) }
    case 'tensor':
      return { type, value: yield* readTensor(context, present(attribute.t), what) }
    case 'tensors':
      return {
        type,
        value: yield* each(attribute.tensors, (t, i) => readTensor(context, t, `${what}[${i}]`)),
      }
    case 'sparse':
      return { type, value: yield* readSparse(context, present(attribute.sparseTensor), what) }
    case 'sparses':
      return { type, value: yield* each(attribute.sparseTensors, t => readSparse(context, t, what)) }
    case 'graph':
      return { type, value: yield* readGraph(present(attribute.g), what) }
    case 'graphs':
      return { type, value: yield* each(attribute.graphs, (g, i) => readGraph(g, `${what}[${i}]`)) }
    case 'type':
      return { type, value: typeIn(present(attribute.typeProto), what, fail) }
    case 'types':
      return { type, value: (attribute.typeProtos ?? []).map(t => typeIn(t, what, fail)) }
    default:
      throw fail(`has the unknown type ${number}`)
  }
}

function* each<T, U>(list: readonly T[] = [], read: (item: T, i: number) => Paced<U>): Paced<U[]> {
  const values: U[] = []
  for (const [i, item] of list.entries()) values.push(yield* read(item, i))
  return values
}

/** Files before IR version 2 leave the type to be told from the field that is there. */
function impliedType(attribute: Message<'Attribute'>): number {
  const fields = {
    f: 1,
    i: 2,
    s: 3,
    t: 4,
    g: 5,
    floats: 6,
    ints: 7,
    strings: 8,
    tensors: 9,
    graphs: 10,
  } as const
  for (const [field, number] of Object.entries(fields)) {
    if (attribute[field as keyof typeof fields] !== undefined) return number
  }
  return 0
}

function typeIn(type: Message<'Type'>, what: string, fail: (why: string) => SparkError): ValueType {
  const value = readType(type, what)
  if (!value) throw fail('is a type that is not known')
  return value
}

function toInteger(value: bigint): IntegerValue {
  const number = Number(value)
  return Number.isSafeInteger(number) ? number : value
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function readString(bytes: Uint8Array): Attribute {
  try {
    return { type: 'string', value: utf8.decode(bytes) }
  } catch {
    return { type: 'bytes', value: bytes }
  }
}

function readStrings(list: readonly Uint8Array[], fail: (why: string) => SparkError): string[] {
  try {
    return list.map(bytes => utf8.decode(bytes))
  } catch {
    throw fail('has a string that is not UTF-8')
  }
}
