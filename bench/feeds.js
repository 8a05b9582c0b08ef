// feeds.js: inputs of a model at a given size, as tensors of either engine.
import { uniform } from './random.js'

/** @import { EngineTensor, Package } from './engines.js' */

/** @typedef {Record<string, number>} Size values of the symbols of a model; a symbol without one is 1 */
/** @typedef {{ name: string, dtype: string, shape: (number | string)[] }} Input sizes and symbols */

/** @type {Record<string, (from: Float32Array) => Float32Array | BigInt64Array>} */
const conversions = {
  f32: values => values,
  i64: values => BigInt64Array.from(values, value => BigInt(Math.floor(Math.abs(value) * 100))),
}

/** @type {Map<string, Float32Array | BigInt64Array>} */
const held = new Map()

/** The first `count` of the same random numbers, as a view. @param {string} dtype @param {number} count */
function values(dtype, count) {
  const convert = conversions[dtype]
  if (!convert) throw new Error(`no random ${dtype}`)
  const known = held.get(dtype)
  if (known && known.length >= count) return known.subarray(0, count)
  held.set(dtype, convert(uniform(2 ** Math.ceil(Math.log2(Math.max(count, 1024))), 1)))
  return values(dtype, count)
}

/** @param {readonly number[]} shape */
export const numel = shape => shape.reduce((a, b) => a * b, 1)

/** @param {Input} input @param {Size} size */
const shapeOf = ({ shape }, size) => shape.map(dim => (typeof dim === 'number' ? dim : (size[dim] ?? 1)))

/** @param {Package} engine @param {readonly Input[]} inputs @param {Size} size @returns {Record<string, EngineTensor>} */
export function feedsOf(engine, inputs, size) {
  return Object.fromEntries(
    inputs.map(input => {
      const shape = shapeOf(input, size)
      return [input.name, engine.tensor(values(input.dtype, numel(shape)), shape)]
    }),
  )
}

/** Bytes of the inputs. @param {readonly Input[]} inputs @param {Size} size */
export const feedBytes = (inputs, size) =>
  inputs.reduce((sum, input) => sum + numel(shapeOf(input, size)) * (input.dtype === 'i64' ? 8 : 4), 0)
