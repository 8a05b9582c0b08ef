// products.ts: epilogues, batches of products and the order of block scales among the cases of `dgx-spark verify`.
import type { Weight } from '../../kernels/kernels.js'
import {
  bf16Tolerance,
  f32,
  halfTolerance,
  sumTolerance,
  type VerifyCase,
  type VerifySizes,
  values,
  verifyCase,
} from './values.js'

/** What else products do: epilogues, batches of activations. */
export function productCases(weight: Weight, sizes: VerifySizes): VerifyCase[] {
  const { tokens, rows, cols } = sizes
  const tolerance = sumTolerance(sizes)
  const x = values(tokens * cols, 19)
  const epilogue = {
    rowScale: values(rows, 20),
    bias: values(rows, 21),
    residual: values(tokens * rows, 22),
    gate: values(tokens * rows, 24),
  }
  const activations = ['relu', 'gelu', 'gelu_tanh', 'silu', 'sigmoid', 'tanh', 'relu6', 'hard_swish'] as const
  return [
    ...activations.map(activation =>
      verifyCase('linear', activation, ['y'], tolerance, () => {
        return { weight, tokens, x, ...epilogue, activation, y: f32(tokens * rows) }
      }),
    ),
    longSumCase(),
    ...matmulCases(sizes),
  ]
}

/** A batch whose right side is repeated, in each layout, and of what tensor cores multiply. */
function matmulCases(sizes: VerifySizes): VerifyCase[] {
  const { tokens: m, rows: n, cols: k } = sizes
  const batch = { outer: 2, inner: 3, m, n, k, alpha: 0.5 }
  const [a, b] = [values(6 * m * k, 23), values(3 * n * k, 24)]
  const tolerances = { f32: sumTolerance(sizes), bf16: bf16Tolerance, f16: halfTolerance }
  const computes = Object.keys(tolerances) as (keyof typeof tolerances)[]
  return computes.flatMap(compute =>
    ['nn', 'nt', 'tn', 'tt'].map(layout =>
      verifyCase(
        'matmul',
        `${layout}, ${compute}, 2x3 of ${m}x${k}x${n}`,
        ['y'],
        tolerances[compute],
        () => ({
          ...batch,
          a,
          aStrides: layout.startsWith('n') ? [3 * m * k, m * k, k, 1] : [3 * m * k, m * k, 1, m],
          b,
          bStrides: layout.endsWith('n') ? [0, n * k, n, 1] : [0, n * k, 1, k],
          y: f32(6 * m * n),
          yStrides: [3 * m * n, m * n, n, 1],
          compute,
        }),
      ),
    ),
  )
}

/** Three experts, one of which nobody chooses, and a row for each token or for each choice. */
export function expertCases(weight: Weight, sizes: VerifySizes): VerifyCase[] {
  const { tokens, cols } = sizes
  const [experts, choices] = [3, 2]
  const choice = BigInt64Array.from({ length: tokens * choices }, (_, i) => ((i * 7) % 5 < 3 ? 2n : 0n))
  return [false, true].map(perChoice => {
    const x = values(tokens * (perChoice ? choices : 1) * cols, 29)
    const operands = { weight, experts, tokens, choices, perChoice, x, choice, bias: values(weight.rows, 30) }
    const variant = `${weight.format}, a row for each ${perChoice ? 'choice' : 'token'}`
    return verifyCase('expertLinear', variant, ['y'], sumTolerance(sizes), () => {
      return { ...operands, y: f32((tokens * choices * weight.rows) / experts) }
    })
  })
}

/** A product that a GPU cuts along its sums, with a bias that must be added once. */
function longSumCase(): VerifyCase {
  const [tokens, rows, cols] = [5, 67, 1300]
  const weight: Weight = { format: 'f32', rows, cols, data: values(rows * cols, 26) }
  const operands = { weight, tokens, x: values(tokens * cols, 27), bias: values(rows, 28) }
  return verifyCase('linear', 'long sums', ['y'], 1e-5, () => ({ ...operands, y: f32(tokens * rows) }))
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
