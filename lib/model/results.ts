// results.ts: what a run gives, and its types.
import type { ElementType, TypedArrayOf } from '../core/dtype.js'
import { Tensor } from '../memory/tensor.js'
import type { HostTensor, HostValue } from './values.js'

/** A tensor of any element type: where `dtype` is compared with a name, `data` is the array of that type. */
export type AnyTensor = { [D in ElementType]: Tensor<D> }[ElementType]

/** What a run gives for an output: a tensor, the tensors of a sequence, or null for an optional value that is not there. */
export type ModelOutput = Tensor<ElementType> | readonly Tensor<ElementType>[] | null

/** What the outputs of a model are, by name: an element type, or for what is no tensor a type of {@link ModelOutput}. */
export type OutputTypes = Readonly<Record<string, ElementType | ModelOutput>>

/** The results of a run by the names of the outputs: all of one type, or each of its own. */
export type RunResults<T extends ModelOutput | OutputTypes> = [T] extends [ModelOutput]
  ? Record<string, T>
  : { [Name in keyof T]: T[Name] extends ElementType ? Tensor<T[Name]> : T[Name] }

/** A value for the caller, with elements of its own. */
export function outputOf(value: HostValue): ModelOutput {
  const tensor = ({ data, shape, dtype }: HostTensor): Tensor<ElementType> =>
    Tensor.of(data.slice() as TypedArrayOf<ElementType>, shape, dtype)
  if (value.kind === 'tensor') return tensor(value)
  return value.kind === 'sequence' ? value.items.map(tensor) : null
}
