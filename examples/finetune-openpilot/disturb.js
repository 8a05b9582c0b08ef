// disturb.js: a model whose layers are disturbed by a random update of low rank.
import { createAdapter, Model } from 'dgx-spark'

/**
 * @param {string} file
 * @param {{ rank: number, norm: number, seed: number }} options - `norm`: of the update of a layer, relative to its weight
 */
export async function disturb(file, { rank, norm, seed }) {
  const model = await Model.load(file)
  const adapter = await createAdapter(model, { rank, alpha: rank, targetModules: 'all-linear', seed })
  const random = normal(seed)
  for (const { name, scale } of adapter.modules) {
    const { a, b, magnitude } = adapter.valuesOf(name)
    const update = b.map(() => random())
    // Magnitudes are the norms of rows.
    const weight = Math.hypot(...(magnitude ?? []))
    const factor = (norm * weight) / (scale * productNorm(a, update, rank))
    adapter.write(
      `${name}.lora_B`,
      update.map(value => value * factor),
    )
  }
  const { graph } = await adapter.merge()
  model.dispose()
  return graph
}

/** ‖B·A‖ for A [rank, columns] and B [rows, rank]: the root of the sum of (BᵀB) ∘ (AAᵀ). */
function productNorm(
  /** @type {Float32Array} */ a,
  /** @type {Float32Array} */ b,
  /** @type {number} */ rank,
) {
  const columns = a.length / rank
  let sum = 0
  for (let i = 0; i < rank; i++) {
    for (let j = 0; j < rank; j++) {
      let [inner, outer] = [0, 0]
      for (let row = 0; row < b.length; row += rank) inner += (b[row + i] ?? 0) * (b[row + j] ?? 0)
      for (let k = 0; k < columns; k++) outer += (a[i * columns + k] ?? 0) * (a[j * columns + k] ?? 0)
      sum += inner * outer
    }
  }
  return Math.sqrt(sum)
}

/** Normally distributed numbers (Box and Muller). */
function normal(/** @type {number} */ seed) {
  let state = seed >>> 0
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return (state + 0.5) / 2 ** 32
  }
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform())
}
