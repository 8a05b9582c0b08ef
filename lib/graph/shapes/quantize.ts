// quantize.ts: shapes of conversions between floats and quantized tensors.
import type { ElementType } from '../../core/dtype.js'
import { type Rule, tensorOrUnknown } from './context.js'
import type { OperatorTable } from './row.js'

const quantize: Rule = ctx => [
  tensorOrUnknown(quantizedType(ctx.typeAttribute('output_dtype'), ctx.dtype(2)), ctx.shape(0)),
]

function quantizedType(attribute: ElementType | undefined, zeroPoint: ElementType | undefined): ElementType {
  return attribute ?? zeroPoint ?? 'u8'
}

const dequantize: Rule = ctx => [
  tensorOrUnknown(ctx.typeAttribute('output_dtype', ctx.dtype(1)), ctx.shape(0)),
]

const dynamicQuantize: Rule = ctx => [
  tensorOrUnknown('u8', ctx.shape(0)),
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
