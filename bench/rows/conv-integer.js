// conv-integer.js: convolutions of bytes beside those of floats of the same sizes: f32, on a GPU bf16.
import assert from 'node:assert'
import { encode } from 'dgx-spark'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** Images, channels, which are filters, and their side. @type {Record<string, [number, number, number][]>} */
const shapes = {
  cpu: [[1, 128, 28]],
  cuda: [
    [1, 256, 14],
    [32, 256, 56],
  ],
}
const taps = 9

/** @param {number} o @param {number} c @param {number} tap */
const code = (o, c, tap) => ((o * 7 + c * 5 + tap * 3) & 255) - 128

/** Filters of 3 x 3, on a GPU with the channels of each tap side by side. @param {number} channels @param {boolean} last */
function filters(channels, last) {
  const data = new Int8Array(channels * channels * taps)
  for (let o = 0; o < channels; ++o) {
    for (let c = 0; c < channels; ++c) {
      for (let tap = 0; tap < taps; ++tap) {
        data[o * channels * taps + (last ? tap * channels + c : c * taps + tap)] = code(o, c, tap)
      }
    }
  }
  return data
}

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* convInteger(kernels) {
  const channelsLast = kernels.backend === 'cuda' ? true : undefined
  for (const [batch, channels, side] of shapes[kernels.backend] ?? []) {
    const operands = new Operands(kernels)
    const [image, kernel, ones] = [
      [side, side],
      [3, 3],
      [1, 1],
    ]
    const window = { image, kernel, out: image, strides: ones, dilations: ones, padsBegin: ones }
    const [pixels, cols] = [side * side, channels * taps]
    const rowScale = new Float32Array(channels).fill(1)
    const data = filters(channels, channelsLast ?? false)
    const next = await operands.rotate({ format: 'i8', rows: channels, cols, data, rowScale })
    const x = await operands.put(Uint8Array.from({ length: batch * channels * pixels }, (_, i) => i * 7))
    const y = await operands.put(new Int32Array(batch * channels * pixels))
    const args = { ...window, batch, groups: 1, rows: channels, cols, xSigned: false, channelsLast, x, y }
    yield {
      name: 'conv integer',
      shape: `${batch} x ${channels} x ${side} x ${side} 3x3`,
      dtype: 'u8 x i8',
      flops: 2 * batch * channels * pixels * cols,
      run: () => kernels.run('convInteger', { ...args, w: /** @type {Int8Array} */ (next().data) }),
      check: () => {
        let sum = 0
        for (let c = 0; c < channels; ++c) {
          for (let tap = 0; tap < taps; ++tap) {
            const at = c * pixels + Math.floor(tap / 3) * side + (tap % 3)
            sum += (x[at] ?? 0) * code(3, c, tap)
          }
        }
        assert.equal(y[3 * pixels + side + 1], sum)
      },
      peer: await floats(kernels, operands, { ...window, batch, channels, pixels }),
    }
    operands.dispose()
  }
}

/**
 * @typedef {{ batch: number, channels: number, pixels: number, image: number[], kernel: number[], out: number[], strides: number[], dilations: number[], padsBegin: number[] }} Sizes
 */

/** @param {Kernels} kernels @param {Operands} operands @param {Sizes} sizes */
async function floats(kernels, operands, { batch, channels, pixels, ...window }) {
  const isCuda = kernels.backend === 'cuda'
  const shape = { ...window, batch, groups: 1 }
  const cols = channels * taps
  const values = uniform(channels * cols, 2)
  const weight = { format: /** @type {const} */ ('f32'), rows: channels, cols, data: values }
  const next = await operands.rotate(weight)
  const x = await operands.put(uniform(batch * channels * pixels, 3))
  const y = await operands.put(new Float32Array(batch * channels * pixels))
  if (!isCuda) return { name: 'conv f32', run: () => kernels.run('conv', { ...shape, weight: next(), x, y }) }
  const channelsLast = await operands.put(encode(values, 'bf16'))
  const compute = /** @type {const} */ ('bf16')
  const args = { ...shape, weight: { ...weight, data: new Float32Array(0) }, channelsLast, x, y, compute }
  return { name: 'conv bf16', run: () => kernels.run('conv', args) }
}
