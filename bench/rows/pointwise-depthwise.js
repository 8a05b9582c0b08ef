// pointwise-depthwise.js: a pointwise convolution and the depthwise one behind it in one step, beside two.
import assert from 'node:assert'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** Batch, channels in and between, the side of the image, taps along a side, stride: of nets for phones. */
const blocks = [
  [1, 16, 96, 112, 3, 2],
  [1, 24, 144, 56, 3, 1],
  [8, 16, 96, 112, 3, 2],
  [8, 24, 144, 56, 3, 1],
  [8, 24, 72, 56, 5, 2],
  [8, 64, 384, 14, 3, 1],
]

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* pointwiseDepthwise(kernels) {
  if (!kernels.supports('pointwiseDepthwise')) return
  for (const [batch = 0, depth = 0, channels = 0, size = 0, kernel = 0, stride = 0] of blocks) {
    const operands = new Operands(kernels)
    const both = (/** @type {number} */ value) => [value, value]
    const [taps, pixels, out] = [kernel ** 2, size ** 2, Math.ceil(size / stride)]
    /** @param {number} rows @param {number} cols @param {number} seed */
    const weightOf = async (rows, cols, seed) => {
      return {
        format: /** @type {const} */ ('f32'),
        rows,
        cols,
        data: await operands.put(uniform(rows * cols, seed)),
      }
    }
    const [pointwise, weight] = [await weightOf(channels, depth, 2), await weightOf(channels, taps, 3)]
    const x = await operands.put(uniform(batch * depth * pixels, 4))
    const [between, y, expected] = [
      await operands.put(new Float32Array(batch * channels * pixels)),
      await operands.put(new Float32Array(batch * channels * out ** 2)),
      await operands.put(new Float32Array(batch * channels * out ** 2)),
    ]
    const activation = /** @type {const} */ ('relu6')
    const ones = { strides: both(1), dilations: both(1) }
    const first = {
      batch,
      groups: 1,
      image: both(size),
      kernel: both(1),
      out: both(size),
      ...ones,
      padsBegin: both(0),
    }
    const second = {
      ...{
        batch,
        groups: channels,
        image: both(size),
        kernel: both(kernel),
        out: both(out),
        strides: both(stride),
      },
      ...{ dilations: both(1), padsBegin: both(kernel >> 1), weight, activation },
    }
    const inTwo = async () => {
      await kernels.run('conv', { ...first, weight: pointwise, activation, x, y: between })
      await kernels.run('conv', { ...second, x: between, y: expected })
    }
    yield {
      name: 'pointwise depthwise',
      shape: `${batch}x${depth}x${size} ${channels}x${kernel}${stride > 1 ? `/${stride}` : ''}`,
      dtype: 'f32',
      sizes: { batch, channels, filters: channels, groups: channels, size, kernel, stride },
      flops: 2 * batch * channels * (depth * pixels + taps * out ** 2),
      run: () =>
        kernels.run('pointwiseDepthwise', { ...second, pointwise, pointwiseActivation: activation, x, y }),
      check: async () => {
        await inTwo()
        assert.deepEqual(y, expected)
      },
      peer: { name: 'two steps', run: inTwo },
    }
    operands.dispose()
  }
}
