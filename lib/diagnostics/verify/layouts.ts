// layouts.ts: packed weights and quantized integers among the cases of `dgx-spark verify`.
import type { KernelArgs, Weight } from '../../kernels/kernels.js'
import { packWeight, panelSizes } from '../../weights/panels.js'
import { f32, sumTolerance, type VerifyCase, type VerifySizes, values, verifyCase } from './values.js'

/** `weight` in panels; its arrays hold `fill` instead where that is given. */
function packed(weight: Weight, fill?: number): Weight {
  const sizes = panelSizes(weight)
  const data = new (weight.data.constructor as new (length: number) => Weight['data'])(sizes.data)
  const blockScale = 'blockScale' in weight ? new Uint8Array(sizes.blockScale) : undefined
  if (fill === undefined) packWeight(weight, data, blockScale)
  else for (const array of [data, blockScale]) array?.fill(fill)
  return { ...weight, data, ...(blockScale && { blockScale }), layout: 'panels' } as Weight
}

/** A weight in panels, and a product with it. */
export function packedCases(weight: Weight, sizes: VerifySizes): VerifyCase[] {
  const { tokens, rows, cols } = sizes
  const outputs = 'blockScale' in weight ? (['data', 'blockScale'] as const) : (['data'] as const)
  const panels = packed(weight)
  const x = values(tokens * cols, 3)
  return [
    verifyCase('packWeight', weight.format, outputs, 0, () => ({ ...packed(weight, 0xff), weight })),
    verifyCase('linear', `${weight.format} packed`, ['y'], sumTolerance(sizes), () => ({
      weight: panels,
      tokens,
      x,
      y: f32(tokens * rows),
    })),
  ]
}

/** As many tiles of 128 x 128 as a GPU of 148 multiprocessors takes them for. */
const manyTiles = { tokens: 1100, rows: 4100, cols: 48 }

/** Each combination of signed and unsigned bytes; on a GPU in many tiles, too. */
export function integerCases(sizes: VerifySizes): VerifyCase[] {
  return [false, true].flatMap(xSigned =>
    [false, true].flatMap(wSigned => {
      const types = `${xSigned ? 'i8' : 'u8'} times ${wSigned ? 'i8' : 'u8'}`
      const args = (of: Omit<VerifySizes, 'rank'>) => () => integerProduct(of, xSigned, wSigned)
      return [
        verifyCase('linearInteger', types, ['y'], 0, args(sizes)),
        verifyCase('linearInteger', `${types} to bytes`, ['y'], 0, () => scaled(args(sizes)())),
        verifyCase('linearInteger', `${types} in many tiles`, ['y'], 0, args(manyTiles), {}),
      ]
    }),
  )
}

/** A product with a bias whose sums become bytes. */
function scaled(args: KernelArgs['linearInteger']): KernelArgs['linearInteger'] {
  const { rows, y } = args
  const scale = values(rows, 17).map(value => (2 + value) / 1e4)
  const bias = Int32Array.from(values(rows, 18), value => 5000 * value)
  return { ...args, bias, scale, yDtype: 'u8', yZero: Int32Array.of(77), y: new Uint8Array(y.length) }
}

function integerProduct(
  { tokens, rows, cols }: Omit<VerifySizes, 'rank'>,
  xSigned: boolean,
  wSigned: boolean,
): KernelArgs['linearInteger'] {
  const bytes = (count: number, seed: number, signed: boolean) => {
    const unsigned = Uint8Array.from(values(count, seed), value => 128 + 127 * value)
    return signed ? new Int8Array(unsigned.buffer) : unsigned
  }
  const zeros = (count: number, seed: number) => Int32Array.from(values(count, seed), value => 100 * value)
  return {
    tokens,
    rows,
    cols,
    xSigned,
    wSigned,
    x: bytes(tokens * cols, 13, xSigned),
    w: bytes(rows * cols, 14, wSigned),
    xZero: zeros(tokens, 15),
    wZero: zeros(rows, 16),
    y: new Int32Array(tokens * rows),
  }
}
