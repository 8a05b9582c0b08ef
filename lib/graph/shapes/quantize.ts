// quantize.ts: shapes of conversions between floats and quantized tensors.
import type { ElementType } from '../../core/dtype.js'
import { type Rule, tensorOrUnknown } from './call.js'
import type { OperatorTable } from './row.js'

const quantize: Rule = call => [
  tensorOrUnknown(quantizedType(call.typeAttribute('output_dtype'), call.dtype(2)), call.shape(0)),
]

function quantizedType(attribute: ElementType | undefined, zeroPoint: ElementType | undefined): ElementType {
  return attribute ?? zeroPoint ?? 'u8'
}

const dequantize: Rule = call => [
  tensorOrUnknown(call.typeAttribute('output_dtype', call.dtype(1)), call.shape(0)),
]

const dynamicQuantize: Rule = call => [
  tensorOrUnknown('u8', call.shape(0)),
  tensorOrUnknown('f32', []),
  tensorOrUnknown('u8', []),
]

/** Rows of conversions. */
export const quantization: OperatorTable = {
  '': {
    QuantizeLinear: { shape: quantize },
    DequantizeLinear: { shape: dequantize },
    DynamicQuantizeLinear: { shape: dynamicQuantize },
  },
}
