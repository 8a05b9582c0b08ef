// gather.ts: shapes of gathers and scatters.
import { givenInt } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './context.js'
import { remap, smallShape } from './known-values.js'
import { type Choices, type OperatorTable, sameAs, sameAsFirst, type ValueRule } from './row.js'

const gather: Rule = ctx => {
  const [data, indices] = [ctx.shape(0), ctx.shape(1)]
  if (!data || !indices) return [tensorOrUnknown(ctx.dtype(0), undefined)]
  const axis = ctx.axis(ctx.int('axis'), data.length)
  return [tensorOrUnknown(ctx.dtype(0), [...data.slice(0, axis), ...indices, ...data.slice(axis + 1)])]
}

const gatherElements: Rule = ctx => [tensorOrUnknown(ctx.dtype(0), ctx.shape(1))]

const gatherNd: Rule = ctx => {
  const [data, indices] = [ctx.shape(0), ctx.shape(1)]
  const depth = indices?.at(-1)
  if (!data || !indices || typeof depth !== 'number') return [tensorOrUnknown(ctx.dtype(0), undefined)]
  const picked = ctx.int('batch_dims') + depth
  if (picked > data.length) throw ctx.fail(`indices of length ${depth} are too long for the data`)
  return [tensorOrUnknown(ctx.dtype(0), [...indices.slice(0, -1), ...data.slice(picked)])]
}

const oneHot: Rule = ctx => {
  const indices = ctx.shape(0)
  const depth = ctx.known(1)?.elements[0] ?? null
  if (!indices) return [tensorOrUnknown(ctx.dtype(2), undefined)]
  const axis = ctx.axis(ctx.int('axis'), indices.length + 1)
  return [tensorOrUnknown(ctx.dtype(2), [...indices.slice(0, axis), depth, ...indices.slice(axis)])]
}

const compress: Rule = ctx => {
  const axis = givenInt(ctx.node, 'axis')
  const shape = ctx.shape(0)
  if (axis === undefined) return [tensorOrUnknown(ctx.dtype(0), [null])]
  const at = shape && ctx.axis(axis, shape.length)
  return [
    tensorOrUnknown(
      ctx.dtype(0),
      shape?.map((dim, i) => (i === at ? null : dim)),
    ),
  ]
}

const gatheredValues: ValueRule = (ctx, [type]) => {
  const [data, shape, picked] = [ctx.known(0), smallShape(type), ctx.known(1)?.shape]
  if (!data || !shape || !picked) return []
  const indices = ctx.numbers(1)
  if (!indices) return []
  const axis = ctx.axis(ctx.int('axis'), data.shape.length)
  const size = data.shape[axis]!
  const wrong = indices.find(index => index < -size || index >= size)
  if (wrong !== undefined) throw ctx.fail(`index ${wrong} is outside of ${size} elements`)
  return [
    remap(data, shape, position => {
      const inner = position.slice(axis, axis + picked.length)
      const index = indices[inner.reduce((flat, at, i) => flat * picked[i]! + at, 0)]!
      return [
        ...position.slice(0, axis),
        index < 0 ? index + size : index,
        ...position.slice(axis + picked.length),
      ]
    }),
  ]
}

/** Ways to combine updates. */
const scatterReductions: Choices = { reduction: ['none', 'add', 'mul', 'max', 'min'] }

/** Rows of operators with indices. */
export const gathers: OperatorTable = {
  '': {
    Gather: { shape: gather, integers: [1], values: gatheredValues },
    GatherElements: { shape: gatherElements, integers: [1] },
    GatherND: { shape: gatherNd, integers: [1] },
    ScatterElements: { shape: sameAsFirst, integers: [1], choices: scatterReductions },
    ScatterND: { shape: sameAsFirst, integers: [1], choices: scatterReductions },
    TensorScatter: { shape: sameAsFirst, integers: [2], choices: { mode: ['linear', 'circular'] } },
    OneHot: { shape: oneHot },
    Compress: { shape: compress, conditions: [1] },
  },
  [sparkDomain]: {
    GatherGrad: { shape: sameAs(1) },
  },
}
