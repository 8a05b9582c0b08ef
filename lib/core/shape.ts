// shape.ts: element counts and strides of tensors.

/** The number of elements of a tensor of `shape`; 1 for a scalar. */
export function numel(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1)
}

/** Strides, in elements, of a contiguous row-major tensor of `shape`. */
export function contiguousStrides(shape: readonly number[]): number[] {
  return shape.map((_, axis) => numel(shape.slice(axis + 1)))
}
