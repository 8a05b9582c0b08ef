// shape.ts: element counts and strides of tensors.
import { multiply, type Size } from './size.js'

/** The number of elements of a tensor of `shape`; 1 for a scalar. */
export function numel(shape: readonly number[]): number
export function numel(shape: readonly Size[]): Size
export function numel(shape: readonly Size[]): Size {
  return multiply(...shape)
}

/** Strides, in elements, of a contiguous row-major tensor of `shape`. */
export function contiguousStrides(shape: readonly number[]): number[]
export function contiguousStrides(shape: readonly Size[]): Size[]
export function contiguousStrides(shape: readonly Size[]): Size[] {
  return shape.map((_, axis) => numel(shape.slice(axis + 1)))
}
