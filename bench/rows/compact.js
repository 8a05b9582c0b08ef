// compact.js: pointwise convolutions of small images whose channels come last, beside those of planes.
import assert from 'node:assert'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels, Weight } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** Batch, channels, filters and sides of the image: of the last stages of nets for phones. */
const layers = [
  [1, 960, 160, 3, 5],
  [1, 160, 960, 3, 5],
  [1, 320, 1280, 3, 5],
  [1, 672, 112, 4, 8],
  [1, 576, 96, 6, 10],
  [1, 960, 160, 7, 7],
  [8, 960, 160, 7, 7],
]

/** So many weights in turn, as in a net: those of one layer would stay in the caches. */
const turns = 16

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* compact(kernels) {
  if (!kernels.supports('pointwiseDepthwise')) return
  for (const [batch = 0, channels = 0, filters = 0, height = 0, width = 0] of layers) {
    const operands = new Operands(kernels)
    const positions = height * width
    /** @type {Weight[]} */
    const weights = []
    for (let i = 0; i < turns; i++) {
      const data = await operands.put(uniform(filters * channels, i + 1))
      const packed = await operands.put(new Float32Array(Math.ceil(filters / 32) * 32 * channels))
      const weight = { format: /** @type {const} */ ('f32'), rows: filters, cols: channels, data }
      await kernels.run('packWeight', { weight, data: packed })
      weights.push({ ...weight, data: packed, layout: /** @type {const} */ ('panels') })
    }
    const planes = uniform(batch * channels * positions, 40)
    const last = new Float32Array(planes.length)
    for (let at = 0; at < planes.length; at++) {
      const [image, channel] = [
        Math.floor(at / (channels * positions)),
        Math.floor(at / positions) % channels,
      ]
      last[(image * positions + (at % positions)) * channels + channel] = planes[at] ?? 0
    }
    const bias = await operands.put(uniform(filters, 41))
    const [x, xLast] = [await operands.put(planes), await operands.put(last)]
    const y = await operands.put(new Float32Array(batch * filters * positions))
    const yLast = await operands.put(new Float32Array(y.length))
    const [image, ones] = [
      [height, width],
      [1, 1],
    ]
    const args = {
      ...{
        batch,
        groups: 1,
        image,
        kernel: ones,
        out: image,
        strides: ones,
        dilations: ones,
        padsBegin: [0, 0],
      },
      ...{ bias, activation: /** @type {const} */ ('relu6') },
    }
    const run = async () => {
      for (const weight of weights)
        await kernels.run('conv', { ...args, weight, x: xLast, y: yLast, xCompact: true, yCompact: true })
    }
    const inPlanes = async () => {
      for (const weight of weights) await kernels.run('conv', { ...args, weight, x, y })
    }
    yield {
      name: 'compact conv',
      shape: `${batch}x${channels}x${height}x${width} ${filters}x1`,
      dtype: 'f32',
      flops: 2 * turns * y.length * channels,
      run,
      check: async () => {
        await run()
        await inPlanes()
        for (let at = 0; at < y.length; at++) {
          const [n, o, p] = [
            Math.floor(at / (filters * positions)),
            Math.floor(at / positions) % filters,
            at % positions,
          ]
          assert.equal(yLast[(n * positions + p) * filters + o], y[at])
        }
      },
      peer: { name: 'planes', run: inPlanes },
    }
    operands.dispose()
  }
}
