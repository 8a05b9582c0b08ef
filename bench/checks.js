// checks.js: plain reference implementations that rows are checked against.
import assert from 'node:assert'
import { decodeWeight } from 'dgx-spark/kernels'

/** @import { Weight } from 'dgx-spark/kernels' */

/** Throws unless the numbers agree. @param {number | undefined} actual @param {number | undefined} expected @param {number} relative */
export function near(actual = Number.NaN, expected = Number.NaN, relative) {
  const allowed = relative * Math.max(1, Math.abs(expected))
  assert.ok(Math.abs(actual - expected) <= allowed, `${actual} should be ${expected}`)
}

/**
 * Throws unless the first and the last element of y[0, :] = x[0, :] · Wᵀ are right, within `relative` of the root of the
 * sum of their squared terms.
 * @param {Weight} weight @param {Float32Array} x @param {Float32Array} y @param {number} [relative]
 */
export function nearProduct(weight, x, y, relative = 1e-5) {
  const w = decodeWeight(weight)
  const { rows, cols } = weight
  for (const o of [0, rows - 1]) {
    let [sum, square] = [0, 0]
    for (let i = 0; i < cols; ++i) {
      const product = (x[i] ?? 0) * (w[o * cols + i] ?? 0)
      sum += product
      square += product ** 2
    }
    const error = Math.abs(sum - (y[o] ?? Number.NaN))
    assert.ok(error <= relative * Math.sqrt(square), `${y[o]} should be ${sum}`)
  }
}
