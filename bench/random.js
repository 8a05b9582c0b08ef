// random.js: seeded data for the rows.

/** `count` values in [-1, 1), the same on every run. @param {number} count @param {number} seed */
export function uniform(count, seed) {
  const values = new Float32Array(count)
  let state = (seed * 2654435761) >>> 0 || 1
  for (let i = 0; i < count; ++i) {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    values[i] = (state >>> 0) / 2 ** 31 - 1
  }
  return values
}
