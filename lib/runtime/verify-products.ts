// verify-products.ts: epilogues, batches of products and the order of block scales among the cases of `dgx-spark verify`.
import type { StoredWeight } from './kernels.js'
import { f32, sumTolerance, type VerifyCase, type VerifySizes, values, verifyCase } from './verify-values.js'

/** What else products do: epilogues, batches of activations. */
export function productCases(weight: StoredWeight, sizes: VerifySizes): VerifyCase[] {
  const { tokens, rows, cols } = sizes
  const tolerance = sumTolerance(sizes)
  const x = values(tokens * cols, 19)
  const epilogue = { rowScale: values(rows, 20), bias: values(rows, 21), residual: values(tokens * rows, 22) }
  const activations = ['relu', 'gelu', 'gelu_tanh', 'silu', 'sigmoid', 'tanh'] as const
  const batch = { outer: 2, inner: 3, m: tokens, n: rows, k: cols, alpha: 0.5 }
  const [left, right] = [values(6 * tokens * cols, 23), values(3 * rows * cols, 24)]
  return [
    ...activations.map(activation =>
      verifyCase('linear', activation, ['y'], tolerance, () => {
        return { weight, tokens, x, ...epilogue, activation, y: f32(tokens * rows) }
      }),
    ),
    verifyCase('matmul', `2x3 of ${tokens}x${cols}x${rows}`, ['y'], tolerance, () => ({
      ...batch,
      a: left,
      aStrides: [3 * tokens * cols, tokens * cols, cols, 1],
      b: right,
      bStrides: [0, rows * cols, 1, cols],
      y: f32(6 * tokens * rows),
      yStrides: [3 * tokens * rows, tokens * rows, rows, 1],
    })),
  ]
}

/** Scales of blocks of 16, beyond a tile of 128 x 4. */
export function swizzleCases(rows: number, cols: number): VerifyCase[] {
  const [down, across] = [rows + 128, Math.ceil(cols / 16) + 4]
  const tiles = Math.ceil(down / 128) * Math.ceil(across / 4) * 512
  const bytes = (count: number): Uint8Array => Uint8Array.from(values(count, 25), value => 128 + 127 * value)
  const size = { rows: down, cols: across }
  return [
    verifyCase('swizzleScales', `${down}x${across}`, ['dst'], 0, () => {
      return { ...size, inverse: false, src: bytes(down * across), dst: new Uint8Array(tiles) }
    }),
    verifyCase('swizzleScales', `${down}x${across} back`, ['dst'], 0, () => {
      return { ...size, inverse: true, src: bytes(tiles), dst: new Uint8Array(down * across) }
    }),
  ]
}
