// signal.ts: shapes of signal transforms and their windows.
import { add, floorDivide, isSize, subtract } from '../../core/size.js'
import { type Rule, type ShapeContext, tensorOrUnknown } from './context.js'
import { type Shape, unknownShape } from './dimensions.js'
import type { OperatorTable } from './row.js'

function dft(ctx: ShapeContext): Shape | undefined {
  const x = ctx.shape(0)
  if (!x) return undefined
  const axis = ctx.has(2) ? ctx.numbers(2)?.[0] : -2
  if (axis === undefined) return unknownShape(x.length)
  const at = ctx.axis(axis, x.length)
  const size = ctx.has(1) ? (ctx.known(1)?.elements[0] ?? null) : x[at]!
  const oneSided = ctx.int('onesided') === 1
  const inverse = ctx.int('inverse') === 1
  const bins = oneSided && isSize(size) ? add(floorDivide(size, 2), 1) : size
  const result = x.map((dim, i) => (i === at ? (inverse ? size : bins) : dim))
  result[x.length - 1] = oneSided && inverse ? 1 : 2
  return result
}

const window: Rule = ctx => [
  tensorOrUnknown(ctx.typeAttribute('output_datatype', 'f32'), [ctx.known(0)?.elements[0] ?? null]),
]

const stft: Rule = ctx => {
  const signal = ctx.shape(0)
  const length = ctx.has(3) ? ctx.sizes(3)?.[0] : ctx.shape(2)?.[0]
  const step = ctx.numbers(1)?.[0]
  const samples = signal?.[1]
  const frames =
    isSize(samples) && isSize(length) && step ? add(floorDivide(subtract(samples, length), step), 1) : null
  const bins = !isSize(length) ? null : ctx.int('onesided') ? add(floorDivide(length, 2), 1) : length
  return [tensorOrUnknown(ctx.dtype(0), [signal?.[0] ?? null, frames, bins, 2])]
}

const melWeightMatrix: Rule = ctx => {
  const [mel, length] = [ctx.known(0)?.elements[0] ?? null, ctx.numbers(1)?.[0]]
  const bins = length === undefined ? null : Math.floor(length / 2) + 1
  return [tensorOrUnknown(ctx.typeAttribute('output_datatype', 'f32'), [bins, mel])]
}

/** Rows of signal transforms. */
export const signals: OperatorTable = {
  '': {
    DFT: { shape: ctx => [tensorOrUnknown(ctx.dtype(0), dft(ctx))], integers: [1, 2] },
    STFT: { shape: stft, integers: [1, 3] },
    BlackmanWindow: { shape: window, integers: [0] },
    HammingWindow: { shape: window, integers: [0] },
    HannWindow: { shape: window, integers: [0] },
    MelWeightMatrix: { shape: melWeightMatrix, integers: [0, 1, 2] },
  },
}
