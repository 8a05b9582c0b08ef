// write-parts.ts: conversion of tensors, types, attributes, nodes and functions to ONNX messages.
import type { Constant } from '../../graph/constant.js'
import { onnxNumbers } from '../../graph/element-types.js'
import type {
  Attribute,
  Attributes,
  GraphFunction,
  IntegerValue,
  Node,
  SparseConstant,
  Subgraph,
  SymbolicDimension,
  ValueInfo,
  ValueType,
} from '../../graph/graph.js'
import type { LazyBytes } from './encode.js'
import type { Message, MessageName } from './messages.js'
import { attributeNumbers } from './read-attribute.js'

type Out<N extends MessageName> = Message<N, LazyBytes>

/** Says where the elements of an initializer go: into the model (undefined) or into a file beside it. */
export type StoreExternally = (name: string, constant: Constant) => Message<'Entry'>[] | undefined

const inside: StoreExternally = () => undefined

/** A GraphProto. */
export function graphMessage(graph: Subgraph, storeExternally: StoreExternally = inside): Out<'Graph'> {
  return {
    node: graph.nodes.map(nodeMessage),
    name: graph.name || 'graph',
    initializer: Array.from(graph.initializers, ([name, constant]) =>
      tensorMessage(constant, name, storeExternally(name, constant)),
    ),
    input: graph.inputs.map(valueInfoMessage),
    output: graph.outputs.map(valueInfoMessage),
    valueInfo: Array.from(graph.values, ([name, type]) => valueInfoMessage({ name, type })),
    metadata: entryMessages(graph.metadata),
  }
}

/** Entries of a StringStringEntryProto list. */
export function entryMessages(entries: Iterable<readonly [string, string]>): Message<'Entry'>[] {
  return Array.from(entries, ([key, value]) => ({ key, value }))
}

/** Entries of an opset_import list. */
export function opsetMessages(opsets: ReadonlyMap<string, number>): Message<'OperatorSet'>[] {
  return Array.from(opsets, ([domain, version]) => ({ domain, version: BigInt(version) }))
}

/** A FunctionProto. */
export function functionMessage(definition: GraphFunction): Out<'Function'> {
  return {
    name: definition.name,
    domain: definition.domain,
    overload: definition.overload || undefined,
    input: definition.inputs,
    output: definition.outputs,
    attribute: definition.attributes,
    attributeProto: attributeMessages(definition.defaults),
    node: definition.nodes.map(nodeMessage),
    opsetImport: opsetMessages(definition.opsets),
  }
}

function nodeMessage({
  op,
  domain,
  name,
  inputs,
  outputs,
  attributes,
  overload,
  metadata,
}: Node): Out<'Node'> {
  return {
    input: inputs,
    output: outputs,
    name: name || undefined,
    opType: op,
    attribute: attributeMessages(attributes),
    domain: domain || undefined,
    overload: overload || undefined,
    metadata: metadata && entryMessages(metadata),
  }
}

function attributeMessages(attributes: Attributes): Out<'Attribute'>[] {
  return Object.entries(attributes).map(([name, attribute]) =>
    attribute.type === 'reference'
      ? { name, type: attribute.of, refAttrName: attribute.value }
      : { name, type: attributeType(attribute), ...attributeValue(attribute) },
  )
}

function attributeType({ type }: Exclude<Attribute, { type: 'reference' }>): number {
  return attributeNumbers[type === 'bytes' ? 'string' : type]
}

function attributeValue(attribute: Exclude<Attribute, { type: 'reference' }>): Out<'Attribute'> {
  switch (attribute.type) {
    case 'float':
      return { f: attribute.value }
    case 'floats':
      return { floats: attribute.value }
    case 'int':
      return { i: toInt64(attribute.value) }
    case 'ints':
      return { ints: attribute.value.map(toInt64) }
    case 'string':
      return { s: Buffer.from(attribute.value) }
    case 'strings':
      return { strings: attribute.value.map(text => Buffer.from(text)) }
    case 'bytes':
      return { s: attribute.value }
    case 'tensor':
      return { t: tensorMessage(attribute.value) }
    case 'tensors':
      return { tensors: attribute.value.map(value => tensorMessage(value)) }
    case 'sparse':
      return { sparseTensor: sparseMessage(attribute.value) }
    case 'sparses':
      return { sparseTensors: attribute.value.map(sparseMessage) }
    case 'graph':
      return { g: graphMessage(attribute.value) }
    case 'graphs':
      return { graphs: attribute.value.map(value => graphMessage(value)) }
    case 'type':
      return { typeProto: typeMessage(attribute.value) }
    case 'types':
      return { typeProtos: attribute.value.map(typeMessage) }
  }
}

/** Beyond the 64-bit range, a number becomes the end of it. */
function toInt64(value: IntegerValue): bigint {
  const wide = BigInt(value)
  const max = 2n ** 63n - 1n
  return wide > max ? max : wide < -max - 1n ? -max - 1n : wide
}

function tensorMessage(constant: Constant, name?: string, external?: Message<'Entry'>[]): Out<'Tensor'> {
  const head = {
    dims: constant.shape.map(BigInt),
    dataType: onnxNumbers[constant.dtype],
    name: name || undefined,
  }
  if (constant.dtype === 'string') {
    return { ...head, stringData: constant.strings.map(text => Buffer.from(text)) }
  }
  if (external) return { ...head, externalData: external, dataLocation: 1 }
  return { ...head, rawData: { byteLength: constant.byteLength, read: () => constant.bytes } }
}

function sparseMessage({ shape, values, indices }: SparseConstant): Out<'SparseTensor'> {
  return { values: tensorMessage(values), indices: tensorMessage(indices), dims: shape.map(BigInt) }
}

function valueInfoMessage({ name, type }: ValueInfo): Message<'ValueInfo'> {
  return { name, type: type && typeMessage(type) }
}

function typeMessage(type: ValueType): Message<'Type'> {
  switch (type.kind) {
    case 'tensor':
      return { tensor: tensorTypeMessage(type) }
    case 'sparse':
      return { sparse: tensorTypeMessage(type) }
    case 'sequence':
      return { sequence: { elemType: typeMessage(type.element) } }
    case 'optional':
      return { optional: { elemType: typeMessage(type.element) } }
    case 'map':
      return { map: { keyType: onnxNumbers[type.key], valueType: typeMessage(type.value) } }
  }
}

function tensorTypeMessage({
  dtype,
  shape,
}: Extract<ValueType, { kind: 'tensor' | 'sparse' }>): Message<'TensorType'> {
  return { elemType: onnxNumbers[dtype], shape: shape && { dim: shape.map(dimensionMessage) } }
}

function dimensionMessage(dimension: SymbolicDimension): Message<'Dimension'> {
  if (typeof dimension === 'number') return { value: BigInt(dimension) }
  return typeof dimension === 'string' ? { param: dimension } : {}
}
