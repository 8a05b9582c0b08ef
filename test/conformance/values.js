// values.js: the files of a case: tensors, sequences of them, and optional values.
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import { Tensor } from 'dgx-spark'
import { parseTensor } from '#lib/io/onnx/read-tensor.js'
import { unpackedData } from '#lib/runtime/plan/packed.js'

/** Numbers of fields: SequenceProto.tensor_values, OptionalProto.tensor_value and OptionalProto.sequence_value. */
const fields = { items: 3, tensor: 3, sequence: 5 }

/** @param {Uint8Array} bytes - a TensorProto */
export function readTensor(bytes) {
  const constant = parseTensor(bytes)
  const data = constant.dtype === 'string' ? [...constant.strings] : unpackedData(constant)
  return Tensor.of(/** @type {any} */ (data), constant.shape, constant.dtype)
}

/**
 * @param {'tensor' | 'sequence' | 'optional'} kind
 * @param {Uint8Array} bytes
 * @returns {any} a tensor, an array of tensors, or null
 */
export function readValue(kind, bytes) {
  if (kind === 'tensor') return readTensor(bytes)
  if (kind === 'sequence') return messages(bytes, fields.items).map(readTensor)
  const [tensor] = messages(bytes, fields.tensor)
  if (tensor) return readTensor(tensor)
  const [sequence] = messages(bytes, fields.sequence)
  return sequence ? readValue('sequence', sequence) : null
}

/**
 * @param {Uint8Array} bytes
 * @param {number} wanted - number of a field
 * @returns {Uint8Array[]} its values
 */
function messages(bytes, wanted) {
  const reader = new BinaryReader(bytes)
  const found = []
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag()
    if (number === wanted && type === WireType.LengthDelimited) found.push(reader.bytes())
    else reader.skip(type)
  }
  return found
}
