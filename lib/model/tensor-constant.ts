// tensor-constant.ts: tensors as constants of graphs.
import { type ElementArray, type ElementType, elementBits, elementBytes } from '../core/dtype.js'
import { Constant, type NumericType } from '../graph/constant.js'
import type { Tensor } from '../memory/tensor.js'

/** A constant of the elements of a tensor, not copied unless they take less than a byte each. */
export function constantOf({ dtype, shape, data }: Tensor<ElementType>): Constant {
  if (dtype === 'string') return Constant.strings(shape, data as string[])
  const packed = elementBits[dtype] < 8 ? packedCodes(dtype, data as Uint8Array) : (data as ElementArray)
  return Constant.from(dtype as NumericType, shape, packed)
}

/** Codes in a byte each as files hold them; the first one of a byte in its low bits. */
function packedCodes(dtype: ElementType, codes: Uint8Array): Uint8Array {
  const bits = elementBits[dtype]
  const packed = new Uint8Array(elementBytes(dtype, codes.length))
  codes.forEach((code, i) => {
    const bit = i * bits
    packed[bit >> 3]! |= code << (bit & 7)
  })
  return packed
}
