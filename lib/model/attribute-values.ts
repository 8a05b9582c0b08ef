// attribute-values.ts: attributes of nodes from values of JavaScript.
import { argumentError } from '../core/checks.js'
import type { ElementType } from '../core/dtype.js'
import type { Attribute, Graph, Subgraph } from '../graph/graph.js'
import { Tensor } from '../memory/tensor.js'
import { constantOf } from './tensor-constant.js'

/**
 * The value of an attribute: a number, which is a float where ONNX has one there and else an integer; a text; lists of them;
 * true or false for 1 or 0; a tensor; a graph; or an attribute that says its own type.
 */
export type AttributeValue =
  | number
  | bigint
  | boolean
  | string
  | readonly number[]
  | readonly string[]
  | Tensor<ElementType>
  | Graph
  | Attribute

/** Attributes that are floats, also where the number is whole, in all operators that have one of the name. */
const floats = new Set(
  `activation_alpha activation_beta alpha beta bias clip cubic_coeff_a epsilon extrapolation_value gamma high lambd low mean
  momentum ratio scale scales seed softcap spatial_scale value_float value_floats`.split(/\s+/),
)

/**
 * An attribute.
 * @param what - names it in errors
 * @throws SparkError ERR_ARGUMENT for a value that no attribute can have
 */
export function attributeOf(what: string, name: string, value: AttributeValue): Attribute {
  if (typeof value === 'bigint') return { type: 'int', value }
  if (typeof value === 'boolean') return { type: 'int', value: Number(value) }
  if (typeof value === 'string') return { type: 'string', value }
  if (typeof value === 'number')
    return floats.has(name) || !Number.isInteger(value) ? { type: 'float', value } : { type: 'int', value }
  if (value instanceof Tensor) return { type: 'tensor', value: constantOf(value) }
  if (Array.isArray(value)) return listOf(what, name, value)
  if (typeof value === 'object' && value !== null) {
    if (Array.isArray((value as Subgraph).nodes)) return { type: 'graph', value: value as Graph }
    if (typeof (value as Attribute).type === 'string' && 'value' in value) return value as Attribute
  }
  throw argumentError(what, 'a number, a text, a list of them, a tensor or a graph', value)
}

function listOf(what: string, name: string, value: readonly (number | string)[]): Attribute {
  if (value.every(item => typeof item === 'string') && value.length > 0)
    return { type: 'strings', value: value as string[] }
  if (!value.every(item => typeof item === 'number'))
    throw argumentError(what, 'a list of numbers or of texts', value)
  const whole = !floats.has(name) && value.every(item => Number.isInteger(item))
  return whole ? { type: 'ints', value: value as number[] } : { type: 'floats', value: value as number[] }
}
