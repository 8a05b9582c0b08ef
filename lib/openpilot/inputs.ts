// inputs.ts: numbers of a caller as the inputs of a model want them.
import { argumentError } from '../core/checks.js'
import { type ElementArray, type ElementType, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import type { Feeds } from '../model/feeds.js'
import type { ModelValue } from '../model/model-value.js'

/** Names of inputs that are the same thing in models of different years. */
export const inputNames = {
  img: ['img', 'input_imgs'],
  bigImg: ['big_img', 'big_input_imgs'],
  bothImages: ['warped', 'new_img'],
  desire: ['desire_pulse', 'desire'],
  features: ['features_buffer', 'initial_state'],
  curvature: ['prev_desired_curv', 'prev_desired_curvs'],
} as const

/** A value for an input: a tensor of its type, or numbers in an array, which are converted to it. */
export type DrivingInput = Tensor<ElementType> | Float32Array | Uint8Array | Uint16Array | readonly number[]

/** Values by the names of the inputs. */
export type DrivingInputs = Readonly<Record<string, DrivingInput>>

/**
 * The inputs in the types that a model wants; what it does not know stays as it is, for `Model.run` to refuse.
 * @throws SparkError ERR_ARGUMENT, ERR_RANGE for numbers that are no bytes where bytes are wanted
 */
export function castInputs(values: readonly ModelValue[], inputs: DrivingInputs): Feeds {
  if (typeof inputs !== 'object' || inputs === null)
    throw argumentError('inputs', 'an object with a value for each input by its name', inputs)
  const cast = ([name, given]: [string, DrivingInput]): [string, Feeds[string]] => {
    const value = values.find(value => value.name === name)
    return [name, value ? castInput(value, given) : (given as Feeds[string])]
  }
  return Object.fromEntries(Object.entries(inputs).map(cast))
}

function castInput({ name, dtype, shape }: ModelValue, given: DrivingInput): Feeds[string] {
  if (given instanceof Tensor || dtype === null) return given as Feeds[string]
  const label = `inputs.${name}`
  if (!ArrayBuffer.isView(given) && !Array.isArray(given))
    throw argumentError(label, 'a Tensor or an array of numbers', given)
  if (ArrayBuffer.isView(given) && given instanceof elementArrayOf(dtype)) return given as ElementArray
  const numbers = given instanceof Float32Array ? given : Float32Array.from(given as ArrayLike<number>)
  if (dtype === 'u8') return bytesOf(label, numbers)
  const sizes = shapeFor(shape, numbers.length)
  const tensor = Tensor.of(numbers, sizes ?? [numbers.length], 'f32').to(dtype)
  return sizes ? tensor : (tensor.data as ElementArray)
}

function bytesOf(label: string, numbers: Float32Array): Uint8Array {
  const index = numbers.findIndex(x => !(Number.isInteger(x) && x >= 0 && x <= 255))
  if (index < 0) return Uint8Array.from(numbers)
  const what = `${label}[${index}] is ${numbers[index]}, but the model reads bytes`
  throw new SparkError('ERR_RANGE', `${what}: give integers from 0 to 255`)
}

/** The shape of an input for `count` elements, where one size at most is open; undefined where they do not fit. */
function shapeFor(shape: ModelValue['shape'], count: number): number[] | undefined {
  if (!shape) return undefined
  const open = shape.filter(size => typeof size !== 'number').length
  const rest = shape.reduce<number>(
    (product, size) => (typeof size === 'number' ? product * size : product),
    1,
  )
  const missing = count / rest
  if (open > 1 || !Number.isInteger(missing) || (open === 0 && missing !== 1)) return undefined
  return shape.map(size => (typeof size === 'number' ? size : missing))
}
