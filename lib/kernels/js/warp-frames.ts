// warp-frames.ts: frames of a camera as driving models read them, in plain TypeScript.
import { argumentError } from '../../core/checks.js'
import { clamp, roundHalfEven } from '../../core/rounding.js'
import type { PixelPlane, WarpFramesArgs } from '../kernels.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows } from './row.js'

/** The nearest of `size` indices. */
const nearest = (at: number, size: number): number => clamp(roundHalfEven(at), 0, size - 1) || 0

/** The pixel of a plane that the projection takes a point to. */
function pixelAt(
  frame: Uint8Array,
  { height, width, offset, pitch, step }: PixelPlane,
  m: readonly number[],
  [row, column]: readonly [number, number],
): number {
  const w = m[6]! * column + m[7]! * row + m[8]!
  const x = (m[0]! * column + m[1]! * row + m[2]!) / w
  const y = (m[3]! * column + m[4]! * row + m[5]!) / w
  return frame[offset + nearest(y, height) * pitch + nearest(x, width) * step]!
}

/** Frames through a projection, packed. */
function warpFrames({ frames, frameBytes, planes, outHeight, outWidth, matrix, x, y }: WarpFramesArgs): void {
  const half = [1, 1, 0.5, 1, 1, 0.5, 2, 2, 1]
  const chroma = matrix.map((value, i) => value * half[i]!)
  let at = 0
  for (let n = 0; n < frames; n++) {
    const frame = x.subarray(n * frameBytes, (n + 1) * frameBytes)
    for (let channel = 0; channel < 6; channel++) {
      const isLuma = channel < 4
      for (let r = 0; r < outHeight / 2; r++) {
        for (let q = 0; q < outWidth / 2; q++) {
          const point = isLuma
            ? ([2 * r + (channel % 2), 2 * q + Math.floor(channel / 2)] as const)
            : ([r, q] as const)
          y[at++] = pixelAt(frame, planes[isLuma ? 0 : channel - 3]!, isLuma ? matrix : chroma, point)
        }
      }
    }
  }
}

/** Contract of warped frames. */
export const warpFramesRows: KernelRows<'warpFrames'> = {
  warpFrames: {
    kernel: warpFrames,
    sizes: ['frames', 'frameBytes', 'outHeight', 'outWidth'],
    check({ planes, frameBytes, outHeight, outWidth, matrix }) {
      if (planes?.length !== 3) throw argumentError('planes', 'an array of three planes', planes)
      for (const [i, { height, width, offset, pitch, step }] of planes.entries()) {
        const last = offset + (height - 1) * pitch + (width - 1) * step
        expectFits(height > 0 && width > 0, `planes[${i}] has no pixels`)
        expectFits(last < frameBytes, `planes[${i}] ends at byte ${last} of a frame of ${frameBytes}`)
      }
      expectFits(
        outHeight % 2 === 0 && outWidth % 2 === 0,
        `outHeight x outWidth is ${outHeight} x ${outWidth}, and both must be even`,
      )
      if (matrix?.length !== 9) throw argumentError('matrix', 'an array of nine numbers', matrix)
    },
    operands: ({ frames, frameBytes, outHeight, outWidth }) => ({
      x: elements('u8', frames * frameBytes),
      y: elements('u8', frames * 6 * (outHeight / 2) * (outWidth / 2)),
    }),
  },
}
