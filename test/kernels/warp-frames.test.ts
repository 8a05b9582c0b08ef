// Frames of cameras as driving models read them: the kernel of the CPU and that in TypeScript, and what they refuse.
import t from 'tap'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { randomGenerator } from '../fixtures/values/random.js'

type Args = KernelArgs['warpFrames']

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

const backends = [openCpuKernels(), jsKernels]
const identity = [1, 0, 0, 0, 1, 0, 0, 0, 1]

/** Random frames of planes behind each other. */
function framesOf(height: number, width: number, frames: number): Omit<Args, 'y'> {
  const random = randomGenerator(height)
  const pixels = height * width
  const chroma = { height: height / 2, width: width / 2, pitch: width / 2, step: 1 }
  const frameBytes = (pixels * 3) / 2
  return {
    frames,
    frameBytes,
    planes: [
      { height, width, offset: 0, pitch: width, step: 1 },
      { ...chroma, offset: pixels },
      { ...chroma, offset: (pixels * 5) / 4 },
    ],
    outHeight: height,
    outWidth: width,
    matrix: identity,
    x: Uint8Array.from({ length: frames * frameBytes }, () => Math.floor(256 * random())),
  }
}

const sizeOf = ({ frames, outHeight, outWidth }: Omit<Args, 'y'>): number =>
  (frames * 6 * outHeight * outWidth) / 4

t.test('the identity packs a frame', async t => {
  const [height, width] = [6, 10]
  const args = framesOf(height, width, 2)
  for (const kernels of backends) {
    const y = new Uint8Array(sizeOf(args))
    kernels.runSync('warpFrames', { ...args, y })
    const plane = (height * width) / 4
    for (let n = 0; n < 2; n++) {
      const frame = args.x.subarray(n * args.frameBytes, (n + 1) * args.frameBytes)
      for (const [channel, [row, column]] of [
        [0, 0],
        [1, 0],
        [0, 1],
        [1, 1],
      ].entries()) {
        const expected = Array.from({ length: plane }, (_, i) => {
          const [r, q] = [Math.floor(i / (width / 2)), i % (width / 2)]
          return frame[(2 * r + row!) * width + 2 * q + column!]
        })
        const at = (n * 6 + channel) * plane
        t.same([...y.subarray(at, at + plane)], expected, `channel ${channel} by ${kernels.backend}`)
      }
      const chroma = y.subarray((n * 6 + 4) * plane, (n * 6 + 6) * plane)
      t.same([...chroma], [...frame.subarray(height * width)], 'U and V')
    }
  }
})

t.test('projections, at any number of threads', async t => {
  const projections: Record<string, number[]> = {
    shifted: [1, 0, 1.5, 0, 1, -0.5, 0, 0, 1],
    tilted: [0.9, 0.1, 3, -0.2, 1.3, 7, 0.002, -0.001, 1],
    'behind the camera': [1, 0, 0, 0, 1, 0, 0.1, 0, -2],
    'without a depth': [1, 0, 0, 0, 1, 0, 0, 0, 0],
    'not numbers': [Number.NaN, 0, 0, 0, 1, 0, 0, 0, 1],
    'far away': [1e300, 0, 0, 0, -1e300, 0, 0, 0, 1],
  }
  for (const [name, matrix] of Object.entries(projections)) {
    const args = { ...framesOf(38, 54, 3), outHeight: 22, outWidth: 70, matrix }
    const expected = new Uint8Array(sizeOf(args))
    jsKernels.runSync('warpFrames', { ...args, y: expected })
    for (const threads of [1, 3]) {
      addon.setThreads(threads)
      const y = new Uint8Array(expected.length).fill(77)
      addon.run('warpFrames', { ...args, y })
      t.strictSame(y, expected, `${name}, ${threads} threads`)
    }
  }
})

t.test('nothing to do, and what is refused', async t => {
  const args = framesOf(4, 6, 1)
  const y = new Uint8Array(sizeOf(args))
  const wrong: [Partial<Args>, code: string][] = [
    [{ planes: args.planes.slice(0, 2) }, 'ERR_ARGUMENT'],
    [{ planes: args.planes.map(plane => ({ ...plane, height: 0 })) }, 'ERR_SHAPE'],
    [{ planes: args.planes.map(plane => ({ ...plane, pitch: 13 })) }, 'ERR_SHAPE'],
    [{ planes: args.planes.map(plane => ({ ...plane, offset: 2 ** 52, pitch: 2 ** 52 })) }, 'ERR_SHAPE'],
    [{ outWidth: 5 }, 'ERR_SHAPE'],
    [{ matrix: identity.slice(1) }, 'ERR_ARGUMENT'],
    [{ x: args.x.subarray(1) }, 'ERR_SHAPE'],
    [{ y: y.subarray(1) }, 'ERR_SHAPE'],
    [{ x: new Float32Array(args.x.length) as never }, 'ERR_DTYPE'],
  ]
  for (const kernels of backends) {
    kernels.runSync('warpFrames', { ...args, frames: 0, x: new Uint8Array(0), y: new Uint8Array(0) })
    for (const [change, code] of wrong)
      t.throws(
        () => kernels.runSync('warpFrames', { ...args, y, ...change }),
        { code },
        Object.keys(change)[0],
      )
  }
})
