// selections.ts: operators that choose elements, so that the sizes of their outputs depend on data.
import { isHalf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { contiguousStrides } from '../../core/shape.js'
import { describeNode, givenInt, intOf } from '../../graph/attributes.js'
import type { Node } from '../../graph/graph.js'
import { axisOf } from '../../plan/views.js'
import { decode } from '../../precision/casts.js'
import { expectTensor, type HostTensor, hostIntegers, hostTensor, hostZeros, numbersOf } from '../values.js'
import { concatAlong, sliceAlong } from './axes.js'
import { nonMaxSuppression } from './non-max-suppression.js'
import type { HostOperator } from './table.js'

const flattened = ({ dtype, data }: HostTensor): HostTensor => hostTensor(dtype, [data.length], data)

/** Whether an element is not 0; the sign bit of a 16-bit float alone is 0. */
function isNonZero(dtype: HostTensor['dtype'], element: number | bigint | string): boolean {
  if (isHalf(dtype)) return (Number(element) & 0x7fff) !== 0
  return typeof element === 'string' ? element !== '' : Number(element) !== 0
}

/** Indices [rank, count] of the elements that are not 0. */
const nonZero: HostOperator = ({ node, inputs }) => {
  const { dtype, shape, data } = expectTensor(node, inputs[0])
  const found: number[] = []
  for (let i = 0; i < data.length; i++) if (isNonZero(dtype, data[i]!)) found.push(i)
  const indices = contiguousStrides(shape).flatMap((stride, axis) =>
    found.map(flat => Math.floor(flat / stride) % shape[axis]!),
  )
  return [hostIntegers([shape.length, found.length], indices)]
}

/** The slices along an axis, or the elements, whose condition holds. */
const compress: HostOperator = ({ node, inputs }) => {
  const whole = expectTensor(node, inputs[0])
  const given = givenInt(node, 'axis')
  const source = given === undefined ? flattened(whole) : whole
  const axis = axisOf(given ?? 0, source.shape.length)
  const kept = numbersOf(expectTensor(node, inputs[1])).flatMap((keep, i) => (keep ? [i] : []))
  const size = source.shape[axis]!
  if ((kept.at(-1) ?? -1) >= size) {
    const what = `condition ${kept.at(-1)} is true, but axis ${axis} has ${size} elements`
    throw new SparkError('ERR_SHAPE', `${describeNode(node)}: ${what}`)
  }
  if (kept.length === 0) return [hostZeros(source.dtype, source.shape.with(axis, 0))]
  return [
    concatAlong(
      kept.map(i => sliceAlong(source, axis, [i, i + 1])),
      axis,
    ),
  ]
}

/** The slices along an axis, or the elements, that differ: Y, first indices, inverse indices, counts. */
const unique: HostOperator = ({ node, inputs }) => {
  const whole = expectTensor(node, inputs[0])
  const given = givenInt(node, 'axis')
  const source = given === undefined ? flattened(whole) : whole
  const axis = axisOf(given ?? 0, source.shape.length)
  const slices = Array.from({ length: source.shape[axis]! }, (_, i) => sliceAlong(source, axis, [i, i + 1]))
  const groups = new Map<string, { slice: HostTensor; first: number; members: number[] }>()
  slices.forEach((slice, i) => {
    const key = JSON.stringify(Array.from(comparable(slice), String))
    const group = groups.get(key) ?? { slice, first: i, members: [] }
    group.members.push(i)
    groups.set(key, group)
  })
  const ordered = [...groups.values()]
  if (intOf(node, 'sorted')) ordered.sort((a, b) => compareElements(a.slice, b.slice))
  const inverse = new Array<number>(slices.length)
  for (const [i, { members }] of ordered.entries()) for (const member of members) inverse[member] = i
  const { length } = ordered
  return [
    length > 0
      ? concatAlong(
          ordered.map(({ slice }) => slice),
          axis,
        )
      : source,
    hostIntegers(
      [length],
      ordered.map(({ first }) => first),
    ),
    hostIntegers([slices.length], inverse),
    hostIntegers(
      [length],
      ordered.map(({ members }) => members.length),
    ),
  ]
}

/** Elements that are ordered as their values are: those of 16 bits are bit patterns. */
function comparable({ dtype, data }: HostTensor): ArrayLike<string | number | bigint> {
  return isHalf(dtype) ? decode(data as Uint16Array, dtype) : data
}

/** The order of the first elements that differ. */
function compareElements(first: HostTensor, second: HostTensor): number {
  const [a, b] = [Array.from(comparable(first)), comparable(second)]
  const i = a.findIndex((element, at) => element !== b[at])
  if (i < 0) return 0
  return a[i]! < b[i]! ? -1 : 1
}

/** Boxes [N, B, 4], scores [N, C, B], limits → [count, 3] of batch, class, box. */
const suppress: HostOperator = ({ node, inputs }) => {
  const [boxes, scores] = [expectTensor(node, inputs[0]), expectTensor(node, inputs[1])]
  expectBoxes(node, boxes, scores)
  const limit = (i: number, fallback: number): number =>
    inputs[i] ? (numbersOf(expectTensor(node, inputs[i]))[0] ?? fallback) : fallback
  const [batches = 0, classes = 0, count = 0] = scores.shape
  const found: number[] = []
  for (let batch = 0; batch < batches; batch++) {
    const corners = (boxes.data as Float32Array).subarray(batch * count * 4, (batch + 1) * count * 4)
    for (let kind = 0; kind < classes; kind++) {
      const start = (batch * classes + kind) * count
      const kept = nonMaxSuppression(corners, (scores.data as Float32Array).subarray(start, start + count), {
        centered: intOf(node, 'center_point_box') !== 0,
        limit: limit(2, 0),
        overlap: limit(3, 0),
        threshold: inputs[4] ? limit(4, 0) : Number.NEGATIVE_INFINITY,
      })
      for (const box of kept) found.push(batch, kind, box)
    }
  }
  return [hostIntegers([found.length / 3, 3], found)]
}

function expectBoxes(node: Node, boxes: HostTensor, scores: HostTensor): void {
  if (boxes.dtype !== 'f32' || scores.dtype !== 'f32') {
    const what = `boxes are ${boxes.dtype} and scores ${scores.dtype}; both must be f32: add a Cast`
    throw new SparkError('ERR_DTYPE', `${describeNode(node)}: ${what}`)
  }
  const [batches, , count] = scores.shape
  const fits = [batches, count, 4].every((size, axis) => boxes.shape[axis] === size)
  if (scores.shape.length !== 3 || boxes.shape.length !== 3 || !fits) {
    const what = `boxes are [${boxes.shape.join(', ')}] and scores [${scores.shape.join(', ')}]; it wants [N, B, 4] and [N, C, B]`
    throw new SparkError('ERR_SHAPE', `${describeNode(node)}: ${what}`)
  }
}

/** Operators whose outputs have sizes that depend on data. */
export const selections: Readonly<Record<string, HostOperator>> = {
  NonZero: nonZero,
  Compress: compress,
  Unique: unique,
  NonMaxSuppression: suppress,
}
