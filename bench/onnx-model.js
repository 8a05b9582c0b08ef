// onnx-model.js: the few protobuf messages of an ONNX model of one node; field numbers are those of onnx.proto3.

/**
 * @typedef {object} Operator
 * @property {string} type
 * @property {Record<string, number[]>} inputs shapes of f32 tensors, in the order of the operator
 * @property {Record<string, number[]>} outputs
 * @property {Record<string, { shape: number[], data: Float32Array }>} [constants] inputs behind the others
 * @property {Record<string, number | number[]>} [attributes] integers
 * @property {Record<string, number>} [floats] attributes that are real numbers
 * @property {Record<string, string>} [strings] attributes that are texts
 * @property {number} [opset]
 */

/** @param {number} number @param {number} value */
const varintField = (number, value) => Buffer.from([...varint(number * 8), ...varint(value)])

/** @param {number} number @param {string | Buffer} content */
const field = (number, content) => {
  const bytes = Buffer.from(content)
  return Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(bytes.length)]), bytes])
}

/** @param {number} value @returns {number[]} */
const varint = value => (value < 128 ? [value] : [(value & 127) | 128, ...varint(value >>> 7)])

/** ValueInfoProto of a float tensor. @param {string} name @param {number[]} shape */
function valueInfo(name, shape) {
  const dims = shape.map(size => field(1, varintField(1, size)))
  const tensorType = Buffer.concat([varintField(1, 1), field(2, Buffer.concat(dims))])
  return Buffer.concat([field(1, name), field(2, field(1, tensorType))])
}

/** AttributeProto: INT is type 2, INTS 7. @param {string} name @param {number | number[]} value */
function attribute(name, value) {
  const content = Array.isArray(value)
    ? [...value.map(item => varintField(8, item)), varintField(20, 7)]
    : [varintField(3, value), varintField(20, 2)]
  return Buffer.concat([field(1, name), ...content])
}

/** AttributeProto of type FLOAT. @param {string} name @param {number} value */
function floatAttribute(name, value) {
  const bits = Buffer.alloc(4)
  bits.writeFloatLE(value)
  return Buffer.concat([field(1, name), Buffer.from(varint(2 * 8 + 5)), bits, varintField(20, 1)])
}

/** AttributeProto of type STRING. @param {string} name @param {string} value */
const stringAttribute = (name, value) => Buffer.concat([field(1, name), field(4, value), varintField(20, 3)])

/** TensorProto. @param {string} name @param {number[]} shape @param {Float32Array} data */
function tensor(name, shape, data) {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  return Buffer.concat([
    ...shape.map(size => varintField(1, size)),
    varintField(2, 1),
    field(8, name),
    field(9, bytes),
  ])
}

/** ModelProto. @param {Operator} operator */
export function operatorModel({
  type,
  inputs,
  outputs,
  constants = {},
  attributes = {},
  floats = {},
  strings = {},
  opset = 23,
}) {
  const node = Buffer.concat([
    ...[...Object.keys(inputs), ...Object.keys(constants)].map(name => field(1, name)),
    ...Object.keys(outputs).map(name => field(2, name)),
    field(4, type),
    ...Object.entries(attributes).map(([name, value]) => field(5, attribute(name, value))),
    ...Object.entries(floats).map(([name, value]) => field(5, floatAttribute(name, value))),
    ...Object.entries(strings).map(([name, value]) => field(5, stringAttribute(name, value))),
  ])
  const graph = Buffer.concat([
    field(1, node),
    field(2, type),
    ...Object.entries(constants).map(([name, { shape, data }]) => field(5, tensor(name, shape, data))),
    ...Object.entries(inputs).map(([name, shape]) => field(11, valueInfo(name, shape))),
    ...Object.entries(outputs).map(([name, shape]) => field(12, valueInfo(name, shape))),
  ])
  return Buffer.concat([varintField(1, 10), field(7, graph), field(8, varintField(2, opset))])
}
