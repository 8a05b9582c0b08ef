// feed.ts: the elements of inputs, from what a caller gives to the memory of a plan.
import { argumentError, expectAttached } from '../core/checks.js'
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { BoundProgram } from './bind.js'

/**
 * Copies the elements of all inputs to where a plan reads them.
 * @param feeds - the elements of each input by its name
 * @throws SparkError ERR_ARGUMENT for an input that is missing, unknown or of another type; ERR_SHAPE for a wrong number of
 * elements
 */
export function feed(bound: BoundProgram, feeds: Readonly<Record<string, ElementArray>>): void {
  const { inputs } = bound
  for (const name of Object.keys(feeds)) {
    if (!inputs.some(input => input.name === name)) {
      const known = inputs.map(input => input.name).join(', ')
      throw new SparkError('ERR_ARGUMENT', `the plan has no input '${name}'; it has: ${known}`)
    }
  }
  for (const { name, dtype, shape, buffer } of inputs) {
    const [given, area] = [feeds[name], bound.arrayOf(buffer)]
    if (ArrayBuffer.isView(given)) expectAttached(`feeds['${name}']`, given)
    if (given?.constructor !== area.constructor) {
      throw argumentError(`feeds['${name}']`, `a ${area.constructor.name} for ${dtype}`, given)
    }
    if (given.length !== area.length) {
      const needed = `[${shape.join(', ')}] has ${area.length}`
      throw new SparkError('ERR_SHAPE', `feeds['${name}'] has ${given.length} elements, but ${needed}`)
    }
    ;(area as Float64Array).set(given as Float64Array)
  }
}
