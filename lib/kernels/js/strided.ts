// strided.ts: loops over operands that are views.

/** Calls body(a, b) with the places of two operands at each index of `shape`, in row-major order. */
export function forEachIndex(
  shape: readonly number[],
  aStrides: readonly number[],
  bStrides: readonly number[],
  body: (a: number, b: number) => void,
): void {
  const walk = (axis: number, a: number, b: number): void => {
    if (axis === shape.length) {
      body(a, b)
      return
    }
    for (let i = 0; i < shape[axis]!; i++) walk(axis + 1, a + i * aStrides[axis]!, b + i * bStrides[axis]!)
  }
  walk(0, 0, 0)
}

/** Elements an operand must have so that a loop from `offset` on stays inside; negative when it would start before it. */
export function reach(offset: number, shape: readonly number[], strides: readonly number[]): number {
  if (shape.includes(0)) return 0
  let [low, high] = [offset, offset]
  shape.forEach((size, axis) => {
    const far = (size - 1) * strides[axis]!
    if (far < 0) low += far
    else high += far
  })
  return low < 0 ? low : high + 1
}
