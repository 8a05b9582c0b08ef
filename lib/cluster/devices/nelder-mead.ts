// nelder-mead.ts: minimization without derivatives, by the simplex method of Nelder and Mead (1965).

/** A point and the value of the function there. */
export interface Minimum {
  readonly point: readonly number[]
  readonly cost: number
}

/**
 * Looks for a minimum near a point.
 * @param cost - may be infinite outside of its domain
 * @param options - `size`: how far the first simplex reaches along each axis; `iterations`: at most
 */
export function nelderMead(
  cost: (point: readonly number[]) => number,
  start: readonly number[],
  options: { readonly size: number; readonly iterations: number },
): Minimum {
  const at = (point: readonly number[]): Minimum => ({ point, cost: cost(point) })
  const simplex = [
    at(start),
    ...start.map((_, axis) => at(start.map((x, i) => (i === axis ? x + options.size : x)))),
  ]
  const order = (): void => void simplex.sort((a, b) => a.cost - b.cost)
  order()
  for (let i = 0; i < options.iterations; i++) {
    const [best, worst] = [simplex[0]!, simplex.at(-1)!]
    const others = simplex.slice(0, -1)
    const centre = start.map(
      (_, axis) => others.reduce((sum, { point }) => sum + point[axis]!, 0) / others.length,
    )
    const along = (factor: number): Minimum =>
      at(centre.map((x, axis) => x + factor * (worst.point[axis]! - x)))
    let next = along(-1)
    if (next.cost < best.cost) {
      const further = along(-2)
      if (further.cost < next.cost) next = further
    } else if (next.cost >= simplex.at(-2)!.cost) next = along(next.cost < worst.cost ? -0.5 : 0.5)
    if (next.cost < worst.cost) simplex[simplex.length - 1] = next
    else {
      const shrunk = others.slice(1).concat(worst)
      const halfway = ({ point }: Minimum): Minimum => at(point.map((x, axis) => (x + best.point[axis]!) / 2))
      simplex.splice(1, simplex.length - 1, ...shrunk.map(halfway))
    }
    order()
  }
  return simplex[0]!
}
