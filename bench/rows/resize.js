// resize.js: images resized to twice their height and width, one axis after the other as plans do it, beside ONNX Runtime's Resize.
import { openKernels } from 'dgx-spark/kernels'
import { resizeTaps } from '#lib/plan/lower/resize-taps.js'
import { numel } from '../feeds.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** Batch, channels and the side of the image: of segmentation nets and of pyramids of features. */
const shapes = [
  [1, 64, 56],
  [1, 21, 65],
  [8, 256, 14],
]

const modes = ['nearest', 'linear', 'cubic']

/** Taps of an axis of twice the size. @param {Operands} operands @param {string} mode @param {number} size */
async function tapsOf(operands, mode, size) {
  const rule = {
    ...{ mode, nearestMode: 'round_prefer_floor', transform: 'half_pixel' },
    ...{ excludesOutside: false, antialiases: false, cubic: -0.75, beyond: 0, expectTaps: () => {} },
  }
  const { taps, weights, count } = resizeTaps(rule, { size, out: 2 * size, scale: 2, window: [0, 1] })
  return {
    ...{ size, out: 2 * size, count },
    taps: await operands.put(Int32Array.from(taps)),
    weights: await operands.put(Float32Array.from(weights)),
  }
}

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* resize(kernels, peer) {
  if (!kernels.supports('resample')) return
  const plain = await openKernels({ backend: 'js' })
  for (const [batch = 0, channels = 0, size = 0] of shapes) {
    const operands = new Operands(kernels)
    const [planes, after] = [batch * channels, 2 * size]
    const [sizes, results] = [
      [batch, channels, size, size],
      [batch, channels, after, after],
    ]
    const x = await operands.put(uniform(numel(sizes), 1))
    const between = await operands.put(new Float32Array(2 * x.length))
    const y = await operands.put(new Float32Array(4 * x.length))
    for (const mode of modes) {
      const axis = await tapsOf(operands, mode, size)
      const [down, across] = [
        { ...axis, outer: planes, inner: size },
        { ...axis, outer: planes * after, inner: 1 },
      ]
      /** @param {Kernels} on @param {Float32Array} to */
      const resizeOn = async (on, to) => {
        await on.run('resample', { ...down, x, y: between })
        await on.run('resample', { ...across, x: between, y: to })
      }
      const run = await peer?.operator({
        type: 'Resize',
        inputs: { x: sizes },
        outputs: { y: results },
        constants: {
          roi: { shape: [0], data: new Float32Array() },
          scales: { shape: [4], data: Float32Array.of(1, 1, 2, 2) },
        },
        strings: { mode },
      })
      yield {
        name: `resize ${mode}`,
        shape: `${batch}x${channels}x${size}x${size}`,
        dtype: 'f32',
        elements: y.length,
        bytes: x.byteLength + y.byteLength,
        run: () => resizeOn(kernels, y),
        check: async () => {
          const expected = new Float32Array(y.length)
          await resizeOn(plain, expected)
          await resizeOn(kernels, y)
          expectClose(y, expected)
          if (run) expectClose(y, await run(x))
        },
        ...(run && peer && { peer: { name: peer.name, run: () => run(x) } }),
      }
    }
    operands.dispose()
  }
}
