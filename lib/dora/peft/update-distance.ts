// update-distance.ts: distance between the weight updates scale · B·A of two adapters of a module, without forming a product.
import type { Tensor } from '../../memory/tensor.js'
import type { PeftModule } from './adapter-folder.js'

/** A module with the factor of B·A. */
export interface ScaledModule extends Pick<PeftModule, 'a' | 'b'> {
  readonly scale: number
}

/** Frobenius norms of weight updates. */
export interface UpdateDistance {
  /** ‖s₂·B₂·A₂ − s₁·B₁·A₁‖ */
  readonly difference: number
  /** ‖s₁·B₁·A₁‖ */
  readonly norm: number
}

/**
 * The distance between two updates, which may have different ranks. With the stacked factors U = [s₂·B₂ | −s₁·B₁] and
 * V = [A₂; A₁], whose QR decompositions are U = Q·R and Vᵀ = P·S, the difference is U·V and has the norm ‖R·Sᵀ‖.
 *
 * @returns undefined when the modules have weights of different sizes
 */
export function updateDistance(first: ScaledModule, second: ScaledModule): UpdateDistance | undefined {
  const [one, two] = [factorsOf(first), factorsOf(second)]
  const sizes = ({ left, right }: Factors): string => [left, right].map(([vector]) => vector!.length).join()
  if (sizes(one) !== sizes(two)) return undefined
  const negative = one.left.map(column => column.map(value => -value))
  return {
    difference: productNorm([...two.left, ...negative], [...two.right, ...one.right]),
    norm: productNorm(one.left, one.right),
  }
}

type Vectors = readonly Float64Array[]

/** A product of matrices as a sum of outer products. */
interface Factors {
  /** Columns of scale · B. */
  readonly left: Vectors
  /** Rows of A. */
  readonly right: Vectors
}

function factorsOf({ a, b, scale }: ScaledModule): Factors {
  const [rank, rows] = [a.shape[0]!, b.shape[0]!]
  const [right, factors] = [rowsOf(a), b.toFloat32()]
  // B of a grouped convolution is block-diagonal: outputs of a group read the channels of the same group.
  const perGroup = b.shape[1]!
  const groupRows = (rows * perGroup) / rank
  const left = Array.from({ length: rank }, (_, column) => {
    const start = Math.floor(column / perGroup) * groupRows
    const values = new Float64Array(rows)
    for (let row = start; row < start + groupRows; row++)
      values[row] = scale * factors[row * perGroup + (column % perGroup)]!
    return values
  })
  return { left, right }
}

function rowsOf(tensor: Tensor): Vectors {
  const [values, rows] = [Float64Array.from(tensor.toFloat32()), tensor.shape[0]!]
  const width = values.length / rows
  return Array.from({ length: rows }, (_, row) => values.slice(row * width, (row + 1) * width))
}

/** ‖Σᵢ leftᵢ·rightᵢᵀ‖ */
function productNorm(left: Vectors, right: Vectors): number {
  const [r, s] = [triangularFactor(left), triangularFactor(right)]
  let sum = 0
  for (const row of r) {
    for (const other of s) sum += dot(row, other) ** 2
  }
  return Math.sqrt(sum)
}

/** R of the QR decomposition of the matrix with these columns, by modified Gram-Schmidt. */
function triangularFactor(columns: Vectors): Vectors {
  const rest = columns.map(column => column.slice())
  return rest.map((pivot, at) => {
    const row = new Float64Array(rest.length)
    const norm = Math.sqrt(dot(pivot, pivot))
    if (norm === 0) return row
    row[at] = norm
    for (let i = 0; i < pivot.length; i++) pivot[i] = pivot[i]! / norm
    for (let next = at + 1; next < rest.length; next++) {
      const column = rest[next]!
      const share = dot(pivot, column)
      row[next] = share
      for (let i = 0; i < column.length; i++) column[i] = column[i]! - share * pivot[i]!
    }
    return row
  })
}

function dot(one: Float64Array, two: Float64Array): number {
  let sum = 0
  for (let i = 0; i < one.length; i++) sum += one[i]! * two[i]!
  return sum
}
