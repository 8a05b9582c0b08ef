// signal.ts: shapes of signal transforms and their windows.
import { type Call, type Rule, tensorOrUnknown } from './call.js'
import { type Shape, unknownShape } from './dimensions.js'
import type { OperatorTable } from './row.js'

function dft(call: Call): Shape | undefined {
  const x = call.shape(0)
  if (!x) return undefined
  const axis = call.has(2) ? call.numbers(2)?.[0] : -2
  if (axis === undefined) return unknownShape(x.length)
  const at = call.axis(axis, x.length)
  const size = call.has(1) ? (call.known(1)?.elements[0] ?? null) : x[at]!
  const oneSided = call.int('onesided', 0) === 1
  const inverse = call.int('inverse', 0) === 1
  const bins = !oneSided || size === null || typeof size === 'string' ? size : Math.floor(size / 2) + 1
  const result = x.map((dim, i) => (i === at ? (inverse ? size : bins) : dim))
  result[x.length - 1] = oneSided && inverse ? 1 : 2
  return result
}

const window: Rule = call => [
  tensorOrUnknown(call.typeAttribute('output_datatype', 'f32'), [call.known(0)?.elements[0] ?? null]),
]

const stft: Rule = call => {
  const signal = call.shape(0)
  const length = call.has(3) ? call.numbers(3)?.[0] : call.shape(2)?.[0]
  const step = call.numbers(1)?.[0]
  const samples = signal?.[1]
  const frames =
    typeof samples === 'number' && typeof length === 'number' && step
      ? Math.floor((samples - length) / step) + 1
      : null
  const bins =
    typeof length !== 'number' ? null : call.int('onesided', 1) ? Math.floor(length / 2) + 1 : length
  return [tensorOrUnknown(call.dtype(0), [signal?.[0] ?? null, frames, bins, 2])]
}

const melWeightMatrix: Rule = call => {
  const [mel, length] = [call.known(0)?.elements[0] ?? null, call.numbers(1)?.[0]]
  const bins = length === undefined ? null : Math.floor(length / 2) + 1
  return [tensorOrUnknown(call.typeAttribute('output_datatype', 'f32'), [bins, mel])]
}

/** Rows of signal transforms. */
export const signals: OperatorTable = {
  '': {
    DFT: { shape: call => [tensorOrUnknown(call.dtype(0), dft(call))], integers: [1, 2] },
    STFT: { shape: stft, integers: [1, 3] },
    BlackmanWindow: { shape: window, integers: [0] },
    HammingWindow: { shape: window, integers: [0] },
    HannWindow: { shape: window, integers: [0] },
    MelWeightMatrix: { shape: melWeightMatrix, integers: [0, 1, 2] },
  },
}
