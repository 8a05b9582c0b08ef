// device-bandwidth.ts: bandwidth of the memory of a GPU, measured with a kernel that copies.
import { SparkError } from '../../core/errors.js'
import type { Kernels } from '../../kernels/kernels.js'

/** Elements of f32 that a kernel copies, and copies in a run, of which the fastest counts. */
const [copyCount, copies, runs] = [2 ** 25, 8, 8]

/**
 * 10^9 bytes per second that copies within the memory of a GPU read and write.
 * @returns null where too little memory is free
 * @throws SparkError ERR_INTERNAL when what was copied differs from its source
 */
export async function deviceBandwidth(kernels: Kernels): Promise<number | null> {
  const bytes = copyCount * Float32Array.BYTES_PER_ELEMENT
  if (kernels.freeBytes() < 4 * bytes) return null
  const src = new Float32Array(copyCount).fill(1)
  const dst = new Float32Array(copyCount)
  const args = { srcDtype: 'f32', dstDtype: 'f32', count: copyCount, saturate: true, src, dst } as const
  const steps = Array.from({ length: copies }, () => ({ op: 'cast', args }) as const)
  const prepared = kernels.prepare(steps, { state: [src, dst] })
  try {
    let fastest = Number.POSITIVE_INFINITY
    for (let i = 0; i < runs; ++i) {
      const begin = performance.now()
      await prepared.run()
      fastest = Math.min(fastest, performance.now() - begin)
    }
    await prepared.fetch()
    if (dst.some(value => value !== 1))
      throw new SparkError('ERR_INTERNAL', 'what was copied differs from its source')
    return (copies * 2 * bytes) / fastest / 1e6
  } finally {
    prepared.dispose()
  }
}
