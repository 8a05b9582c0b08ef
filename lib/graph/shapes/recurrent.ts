// recurrent.ts: shapes of recurrent layers, normalizations with statistics, signal transforms and optimizers.
import { stringOf } from '../attributes.js'
import type { Dimension } from '../graph.js'
import { type Call, type Rule, tensorOrUnknown } from './call.js'
import { type Shape, unknownShape } from './dimensions.js'

/** Y and the last states of a recurrent layer; with `layout` 1 the batch comes first. */
const recurrent: Rule = call => {
  const x = call.shape(0)
  const dtype = call.dtype(0)
  const directions = stringOf(call.node, 'direction', 'forward') === 'bidirectional' ? 2 : 1
  const hidden: Dimension = call.int('hidden_size', undefined) ?? call.shape(2)?.[2] ?? null
  const batchFirst = call.int('layout', 0) === 1
  const [length, batch] = batchFirst ? [x?.[1] ?? null, x?.[0] ?? null] : [x?.[0] ?? null, x?.[1] ?? null]
  const state = batchFirst ? [batch, directions, hidden] : [directions, batch, hidden]
  const output = batchFirst ? [batch, length, directions, hidden] : [length, directions, batch, hidden]
  return [output, state, state].map(shape => tensorOrUnknown(dtype, shape))
}

const layerNormalization: Rule = call => {
  const x = call.shape(0)
  const axis = x && call.axis(call.int('axis', -1), x.length)
  const statistics = tensorOrUnknown(
    call.typeAttribute('stash_type', 'f32'),
    x?.map((dim, i) => (i < axis! ? dim : 1)),
  )
  return [call.type(0), statistics, statistics]
}

/** Optimizers: learning rate, step count, then tensors, gradients and states, a group of each. */
const optimizer =
  (groups: number): Rule =>
  call => {
    const count = (call.node.inputs.length - 2) / groups
    return call.node.outputs.map((_, i) => call.type(2 + (i < count ? i : i + count)))
  }

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

/** Rules by operator. */
export const recurrentRules: Readonly<Record<string, Rule>> = {
  RNN: recurrent,
  GRU: recurrent,
  LSTM: recurrent,
  LayerNormalization: layerNormalization,
  DFT: call => [tensorOrUnknown(call.dtype(0), dft(call))],
  STFT: call => {
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
  },
  BlackmanWindow: window,
  HammingWindow: window,
  HannWindow: window,
  MelWeightMatrix: call => {
    const [mel, length] = [call.known(0)?.elements[0] ?? null, call.numbers(1)?.[0]]
    const bins = length === undefined ? null : Math.floor(length / 2) + 1
    return [tensorOrUnknown(call.typeAttribute('output_datatype', 'f32'), [bins, mel])]
  },
  Multinomial: call => [
    tensorOrUnknown(call.typeAttribute('dtype', 'i32'), [
      call.shape(0)?.[0] ?? null,
      call.int('sample_size', 1),
    ]),
  ],
  Adagrad: optimizer(3),
  Adam: optimizer(4),
  Momentum: optimizer(3),
}
