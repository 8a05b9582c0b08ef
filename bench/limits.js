// limits.js: what this machine can do, measured at the start of every run.
import { quantile, sample } from './harness.js'

/** @import { Kernels } from 'dgx-spark' */
/** @import { Limits } from './harness.js' */

/**
 * Copy bandwidth (bytes read plus written, one thread, 256 MiB) and the fastest f32 GEMM we can lay hands on:
 * onnxruntime-node's MatMul of 1024 x 1024 x 1024 where it is installed, else our own.
 * @param {Kernels} kernels
 * @param {import('./peer.js').Peer | null} peer
 * @returns {Promise<Limits>}
 */
export async function measureLimits(kernels, peer) {
  const source = new Float32Array(64 * 2 ** 20).fill(1)
  const target = new Float32Array(source.length)
  const copy = await sample(() => target.set(source))
  const size = 1024
  const x = new Float32Array(size * size).fill(0.5)
  const y = new Float32Array(size * size)
  const weight = { dtype: /** @type {const} */ ('f32'), rows: size, cols: size, data: x }
  const ours = await sample(() => kernels.run('linear', { weight, tokens: size, x, y }))
  const times = [ours]
  if (peer) {
    const matmul = await peer.matmul(size, size, size)
    times.push(await sample(() => matmul(x, x)))
  }
  const fastest = Math.min(...times.map(sorted => quantile(sorted, 0.5)))
  return {
    copyGBs: (2 * source.byteLength) / quantile(copy, 0.5) / 1e6,
    gemmGFLOPs: (2 * size ** 3) / fastest / 1e6,
  }
}
