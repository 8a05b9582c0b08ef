// gather.ts: shapes of operators that pick elements by index.
import { type Rule, tensorOrUnknown } from './call.js'
import { unknownShape } from './dimensions.js'

/** Rules by operator. */
export const gatherRules: Readonly<Record<string, Rule>> = {
  Gather: call => {
    const [data, indices] = [call.shape(0), call.shape(1)]
    if (!data || !indices) return [tensorOrUnknown(call.dtype(0), undefined)]
    const axis = call.axis(call.int('axis', 0), data.length)
    return [tensorOrUnknown(call.dtype(0), [...data.slice(0, axis), ...indices, ...data.slice(axis + 1)])]
  },
  GatherElements: call => [tensorOrUnknown(call.dtype(0), call.shape(1))],
  GatherND: call => {
    const [data, indices] = [call.shape(0), call.shape(1)]
    const depth = indices?.at(-1)
    if (!data || !indices || typeof depth !== 'number') return [tensorOrUnknown(call.dtype(0), undefined)]
    const picked = call.int('batch_dims', 0) + depth
    if (picked > data.length) throw call.fail(`indices of length ${depth} are too long for the data`)
    return [tensorOrUnknown(call.dtype(0), [...indices.slice(0, -1), ...data.slice(picked)])]
  },
  OneHot: call => {
    const indices = call.shape(0)
    const depth = call.known(1)?.elements[0] ?? null
    if (!indices) return [tensorOrUnknown(call.dtype(2), undefined)]
    const axis = call.axis(call.int('axis', -1), indices.length + 1)
    return [tensorOrUnknown(call.dtype(2), [...indices.slice(0, axis), depth, ...indices.slice(axis)])]
  },
  Compress: call => {
    const axis = call.int('axis', undefined)
    const shape = call.shape(0)
    if (axis === undefined) return [tensorOrUnknown(call.dtype(0), [null])]
    const at = shape && call.axis(axis, shape.length)
    return [
      tensorOrUnknown(
        call.dtype(0),
        shape?.map((dim, i) => (i === at ? null : dim)),
      ),
    ]
  },
  NonZero: call => [tensorOrUnknown('i64', [call.shape(0)?.length ?? null, null])],
  Unique: call => {
    const axis = call.int('axis', undefined)
    const shape = call.shape(0)
    const at = axis === undefined || !shape ? undefined : call.axis(axis, shape.length)
    const values = axis === undefined ? [null] : shape?.map((dim, i) => (i === at ? null : dim))
    const index = tensorOrUnknown('i64', [null])
    return [tensorOrUnknown(call.dtype(0), values), index, index, index]
  },
  NonMaxSuppression: () => [tensorOrUnknown('i64', [null, 3])],
  RoiAlign: call => [
    tensorOrUnknown(call.dtype(0), [
      call.shape(1)?.[0] ?? null,
      call.shape(0)?.[1] ?? null,
      call.int('output_height', 1),
      call.int('output_width', 1),
    ]),
  ],
  MaxRoiPool: call => {
    const pooled = call.ints('pooled_shape') ?? unknownShape(2)
    return [
      tensorOrUnknown(call.dtype(0), [call.shape(1)?.[0] ?? null, call.shape(0)?.[1] ?? null, ...pooled]),
    ]
  },
}
