// constant.ts: tensors made of attributes and sizes.
import { SparkError } from '../../core/errors.js'
import { tensorOf } from '../../graph/attributes.js'
import { Constant } from '../../graph/constant.js'
import { constantValue, type Lowering, type Value } from '../lowering.js'
import { addFill } from './copy.js'
import { pattern } from './slice.js'
import type { LowerTable } from './table.js'

function eyeLike(at: Lowering): void {
  const { shape, dtype } = at.output()
  const k = at.integer('k', 0)
  const ones = pattern(at, shape, (row, col) => col === row + k)
  at.give(at.constantOf(at.kernelType(dtype), shape, ones))
}

/** 0, 1, 2, … */
function counting(count: number): Float64Array {
  try {
    return Float64Array.from({ length: count }, (_, i) => i)
  } catch (cause) {
    throw new SparkError('ERR_OUT_OF_MEMORY', `a list of ${count} numbers does not fit`, { cause })
  }
}

/** start, limit, delta: start + i · delta, computed in the type of the output. */
function range(at: Lowering): void {
  const { shape, dtype } = at.output()
  const counts = constantValue(Constant.from('f64', shape, counting(shape[0]!)))
  const steps = at.call('Mul', [at.cast(counts, at.kernelType(dtype)), at.input(2)])
  at.give(at.call('Add', [steps, at.input(0)]))
}

function constantOfShape(at: Lowering): void {
  const { shape, dtype } = at.output()
  const value = tensorOf(at.node, 'value')
  const fill: Value = value ? constantValue(value) : at.one(0, at.kernelType(dtype))
  addFill(at, shape, fill.buffer.read(), at.write())
}

/** Lowerings of operators that make tensors. */
export const constants: LowerTable = {
  '': {
    Constant: at => at.constant(at.tensor('value')),
    ConstantOfShape: constantOfShape,
    Range: range,
    EyeLike: eyeLike,
  },
}
