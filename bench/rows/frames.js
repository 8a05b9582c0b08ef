// frames.js: frames of a camera as driving models read them; no peer has it in one operator.
import { openKernels } from 'dgx-spark/kernels'
import { Operands } from '../operands.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** A qcamera, and the road camera. */
const sizes = /** @type {const} */ ([
  [330, 526],
  [1208, 1928],
])
const frames = 16
const [outHeight, outWidth] = [256, 512]

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* framesRows(kernels) {
  if (!kernels.supports('warpFrames')) return
  const operands = new Operands(kernels)
  const plain = await openKernels({ backend: 'js' })
  for (const [height, width] of sizes) {
    const pixels = height * width
    const chroma = { height: height / 2, width: width / 2, pitch: width / 2, step: 1 }
    const frameBytes = (pixels * 3) / 2
    const x = await operands.put(
      Uint8Array.from({ length: frames * frameBytes }, (_, i) => (i * 2654435761) >>> 24),
    )
    const y = await operands.put(new Uint8Array((frames * outHeight * outWidth * 3) / 2))
    const zoom = width / 1060
    const args = {
      frames,
      frameBytes,
      planes: [
        { height, width, offset: 0, pitch: width, step: 1 },
        { ...chroma, offset: pixels },
        { ...chroma, offset: (pixels * 5) / 4 },
      ],
      outHeight,
      outWidth,
      matrix: [zoom, 0.01, width / 4, -0.01, zoom, height / 3, 1e-6, 0, 1],
      x,
      y,
    }
    yield {
      name: 'warp frames',
      shape: `${frames}x${width}x${height}`,
      dtype: 'u8',
      // What is read at most, and what is written.
      bytes: 2 * y.byteLength,
      run: () => kernels.run('warpFrames', args),
      check: async () => {
        const expected = new Uint8Array(y.length)
        plain.runSync('warpFrames', { ...args, y: expected })
        if (Buffer.compare(expected, y) !== 0) throw new Error('frames differ from those of the plain kernel')
      },
    }
  }
}
