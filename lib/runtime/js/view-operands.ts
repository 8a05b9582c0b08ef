// view-operands.ts: checks of the arguments of operations on views.
import { argumentError, expectInteger, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { binaryFns, poolFns, reduceFns, unaryFns } from '../tensor-kernel-args.js'

const fns: Readonly<Record<string, readonly string[]>> = {
  unary: unaryFns,
  binary: binaryFns,
  reduce: reduceFns,
  copyStrided: [],
  pool: poolFns,
  poolBackward: poolFns,
}
const maxAxes = 8

/** Whether `op` works on views. */
export const isOnViews = (op: string): boolean => Object.hasOwn(fns, op)

/** Shapes, strides and the function of an operation on views. */
export function expectViews(op: string, given: Readonly<Record<string, unknown>>): void {
  if (op !== 'copyStrided') expectOneOf('fn', given.fn, fns[op]!)
  if (op.startsWith('pool')) return
  const loops = op === 'unary' ? [] : op === 'reduce' ? ['shape', 'reduced'] : ['shape']
  for (const name of loops) expectIntegers(name, given[name], 0)
  const least = op === 'copyStrided' ? -Number.MAX_SAFE_INTEGER : 0
  for (const [name, value] of Object.entries(given)) {
    if (!/strides$/i.test(name)) continue
    const axes = given[name === 'reducedStrides' ? 'reduced' : 'shape'] as readonly number[]
    expectIntegers(name, value, least)
    if ((value as readonly number[]).length !== axes.length) {
      throw new SparkError('ERR_SHAPE', `${name} has ${(value as []).length} entries for ${axes.length} axes`)
    }
  }
  for (const name of ['srcOffset', 'dstOffset']) if (name in given) expectInteger(name, given[name], 0)
}

function expectIntegers(name: string, value: unknown, least: number): void {
  if (!Array.isArray(value)) throw argumentError(name, 'an array of integers', value)
  if (value.length > maxAxes) throw new SparkError('ERR_SHAPE', `${name} has more than ${maxAxes} entries`)
  value.forEach((entry, i) => {
    expectInteger(`${name}[${i}]`, entry, least)
  })
}
