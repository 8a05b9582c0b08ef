// number-heap.ts: a binary heap of numbers, the smallest first.

/** Numbers of which the smallest comes out first. */
export class NumberHeap {
  readonly #values: number[] = []

  push(value: number): void {
    const values = this.#values
    let i = values.length
    while (i > 0) {
      const parent = (i - 1) >> 1
      if (values[parent]! <= value) break
      values[i] = values[parent]!
      i = parent
    }
    values[i] = value
  }

  /** The smallest number, which leaves the heap; undefined when it is empty. */
  pop(): number | undefined {
    const values = this.#values
    const top = values[0]
    const last = values.pop()
    const count = values.length
    if (count === 0 || last === undefined) return top
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= count) break
      if (child + 1 < count && values[child + 1]! < values[child]!) child++
      if (values[child]! >= last) break
      values[i] = values[child]!
      i = child
    }
    values[i] = last
    return top
  }
}
