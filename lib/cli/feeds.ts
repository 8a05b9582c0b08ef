// feeds.ts: inputs of a model for `dgx-spark run`: from files, the others random.
import { InvalidArgumentError } from 'commander'
import { type ElementType, isFloat, isWideFloat, isWideInteger, type TypedArrayOf } from '../core/dtype.js'
import type { Dimension } from '../graph/graph.js'
import { parseNpy } from '../io/npy.js'
import { readBytes } from '../io/read-file.js'
import { readSafetensors } from '../io/safetensors.js'
import { Tensor } from '../memory/tensor.js'
import type { Model } from '../model/model.js'
import { randomFeeds } from '../model/random-feeds.js'
import { printError } from './output.js'
import { inputShapes, type SizeOptions } from './shapes.js'

/** Tensors by the name of the input. */
export type Tensors = Record<string, Tensor<ElementType>>

/** Files of inputs: .npy files by the name of the input, and one safetensors file. */
export interface FileOptions {
  readonly input?: Readonly<Record<string, string>>
  readonly inputs?: string
}

/** Reads `name=file.npy`, again and again. */
export function parseInput(
  text: string,
  inputs: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const at = text.indexOf('=')
  if (at <= 0) throw new InvalidArgumentError('expected <name>=<file.npy>')
  return { ...inputs, [text.slice(0, at)]: text.slice(at + 1) }
}

/** The tensors of a .npy or safetensors file; that of a .npy file has the name `name`. */
export async function readTensors(file: string, name: string): Promise<Tensors> {
  if (file.endsWith('.npy')) return { [name]: parseNpy(await readBytes(file), file) }
  const { tensors } = await readSafetensors(file)
  return Object.fromEntries(
    Array.from(tensors, ([name, { dtype, shape, data }]) => [
      name,
      Tensor.of(data as TypedArrayOf<ElementType>, shape, dtype.toLowerCase() as ElementType),
    ]),
  )
}

/**
 * Inputs from files, in the types that the model wants, as far as no number changes its kind: NumPy's f64 is rounded
 * to the float type of the input.
 */
export async function fileFeeds(model: Model, { input = {}, inputs }: FileOptions): Promise<Tensors> {
  const feeds: Tensors = inputs ? await readTensors(inputs, '') : {}
  for (const [name, file] of Object.entries(input)) feeds[name] = parseNpy(await readBytes(file), file)
  for (const { name, dtype } of model.inputs) {
    const given = Object.hasOwn(feeds, name) ? feeds[name] : undefined
    if (!given || dtype === null || given.dtype === dtype) continue
    const fitting = converted(given, dtype)
    if (!fitting) continue
    printError(`input '${name}': ${given.dtype} converted to ${dtype}`)
    feeds[name] = fitting
  }
  return feeds
}

/** Floats rounded to another float type, or integers in another integer type that holds all of them. */
function converted(tensor: Tensor<ElementType>, dtype: ElementType): Tensor<ElementType> | undefined {
  if (isWideFloat(tensor.dtype) && isFloat(dtype)) return tensor.to(dtype)
  if (!isWideInteger(tensor.dtype) || !isWideInteger(dtype)) return undefined
  const other = tensor.to(dtype)
  const values = tensor.data as ArrayLike<number | bigint>
  const same = Array.from(
    other.data as ArrayLike<number | bigint>,
    (value, i) => BigInt(value) === BigInt(values[i]!),
  )
  return same.every(Boolean) ? other : undefined
}

/** Sizes that given tensors fix, by their names in the model. */
function sizesOf(model: Model, feeds: Tensors): Record<string, number> {
  const pairs = model.inputs.flatMap(({ name, shape }) => {
    const given = Object.hasOwn(feeds, name) ? feeds[name]!.shape : undefined
    const named = (dim: Dimension, i: number) => (typeof dim === 'string' ? [[dim, given![i]!] as const] : [])
    return given && shape?.length === given.length ? shape.flatMap(named) : []
  })
  return Object.fromEntries(pairs)
}

/**
 * `given`, and for each other input random numbers as {@link randomFeeds} makes them. Open sizes are those of the options, or of
 * given tensors with a size of the same name, or 1.
 */
export function feedsFor(model: Model, given: Tensors, options: SizeOptions, seed: number): Tensors {
  const size = { ...sizesOf(model, given), ...options.size }
  const shapes = inputShapes(model.graph, { ...options, size })
  return randomFeeds(model.inputs, shapes, given, seed)
}
