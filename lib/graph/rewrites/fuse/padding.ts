// padding.ts: a convolution takes in the zeros that a Pad in front of it puts around its image.
import { ints, intsOf, stringOf } from '../../attributes.js'
import type { Node } from '../../graph.js'
import type { Fusion, GraphView } from './pattern.js'

/** Pad → convolution: `pads` of both are added. Who else reads what the Pad makes still does. */
export function fusePadding(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'Conv') return undefined
  if (!['NOTSET', 'VALID', ''].includes(stringOf(node, 'auto_pad'))) return undefined
  const pad = view.producer(node.inputs[0], 'Pad')
  const around = pad && zerosOf(pad, view)
  if (!around) return undefined
  const spatial = around.length / 2 - 2
  const own = stringOf(node, 'auto_pad') === 'VALID' ? undefined : intsOf(node, 'pads')
  const more = [...around.slice(2, 2 + spatial), ...around.slice(4 + spatial)]
  const pads = more.map((zeros, i) => zeros + (own?.[i] ?? 0))
  const isOfImage = [0, 1].every(axis => around[axis] === 0 && around[axis + 2 + spatial] === 0)
  if (!isOfImage || !pads.every((zeros, i) => zeros >= 0 && more[i]! >= 0)) return undefined
  const { auto_pad: _, ...others } = node.attributes
  const inputs = [pad.inputs[0]!, ...node.inputs.slice(1)]
  return { nodes: [{ ...node, inputs, attributes: { ...others, pads: ints(pads) } }], absorbed: [] }
}

/** How many zeros a Pad puts before and behind each axis; undefined for anything else, or a number that is not known. */
function zerosOf(pad: Node, view: GraphView): number[] | undefined {
  const [x, counts, value = '', axes = ''] = pad.inputs
  const rank = view.shape(x)?.length
  const given = view.integers(counts)
  const of = axes === '' ? rank && Array.from({ length: rank }, (_, axis) => axis) : view.integers(axes)
  if (stringOf(pad, 'mode') !== 'constant' || (value !== '' && view.scalar(value) !== 0)) return undefined
  if (rank === undefined || !given || !of || given.length !== 2 * of.length) return undefined
  const around = new Array<number>(2 * rank).fill(0)
  for (const [i, axis] of of.entries()) {
    const at = axis < 0 ? axis + rank : axis
    around[at] = given[i]!
    around[at + rank] = given[i + of.length]!
  }
  return around
}
