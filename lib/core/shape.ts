// shape.ts: sizes of tensors and places of their elements.

/** Number of elements of a tensor of `shape`; 1 for a scalar. */
export function volume(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1)
}

/** Elements between neighbours along each axis of a contiguous row-major tensor of `shape`. */
export function contiguousStrides(shape: readonly number[]): number[] {
  return shape.map((_, axis) => volume(shape.slice(axis + 1)))
}
