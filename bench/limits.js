// limits.js: limits of this machine, measured at the start of every run.
import assert from 'node:assert'
import { encode } from 'dgx-spark'
import { bandwidth } from './bandwidth.js'
import { quantile, sample } from './harness.js'
import { held, Operands } from './operands.js'

/** @import { DTypeArray } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Limits } from './harness.js' */

/**
 * Bandwidths of main memory and the fastest f32 GEMM we can lay hands on: onnxruntime-node's MatMul of 1024 x 1024 x
 * 1024 where it is installed, else our own.
 * @param {Kernels} kernels
 * @param {import('./peer.js').Peer | null} peer
 * @param {number} threads
 * @returns {Promise<Limits>}
 */
export async function measureLimits(kernels, peer, threads) {
  const size = 1024
  const x = await held(kernels, new Float32Array(size * size).fill(0.5))
  const y = await held(kernels, new Float32Array(size * size))
  const weight = { format: /** @type {const} */ ('f32'), rows: size, cols: size, data: x }
  const ours = await sample(() => kernels.run('linear', { weight, tokens: size, x, y }))
  const times = [ours]
  if (peer) {
    const matmul = await peer.matmul(size, size, size)
    times.push(await sample(() => matmul(x, x)))
  }
  const fastest = Math.min(...times.map(sorted => quantile(sorted, 0.5)))
  return {
    copyGBs: await bandwidth(threads, false),
    threadGBs: await bandwidth(1, false),
    readGBs: await bandwidth(threads, true),
    gemmGFLOPs: (2 * size ** 3) / fastest / 1e6,
  }
}

/**
 * What the GPU can do: a copy of 256 MiB (bytes read plus written) and the fastest GEMM of 4096 x 4096 x 4096, by our
 * kernels; PyTorch's where it is found and faster.
 * @param {Kernels} kernels @param {Partial<Limits>} torch
 * @returns {Promise<Limits>}
 */
export async function measureDeviceLimits(kernels, torch) {
  const operands = new Operands(kernels)
  const count = 64 * 2 ** 20
  const src = await operands.put(new Float32Array(count).fill(1))
  const dst = await operands.put(new Float32Array(count))
  const copy = await sample(
    () => kernels.run('cast', { srcDtype: 'f32', dstDtype: 'f32', count, saturate: true, src, dst }),
    true,
  )
  assert.equal(dst.at(-1), 1, 'the copy of the device limit is wrong')
  const size = 4096
  const x = src.subarray(0, size * size)
  const y = dst.subarray(0, size * size)
  const times = []
  for (const dtype of /** @type {const} */ (['f32', 'bf16'])) {
    /** @type {DTypeArray} */
    const data = await operands.put(encode(x, dtype))
    const weight = { format: dtype, rows: size, cols: size, data }
    times.push(quantile(await sample(() => kernels.run('linear', { weight, tokens: size, x, y }), true), 0.5))
    assert.equal(y.at(-1), size, 'the GEMM of the device limit is wrong')
  }
  operands.dispose()
  return {
    copyGBs: Math.max((2 * src.byteLength) / quantile(copy, 0.5) / 1e6, torch.copyGBs ?? 0),
    gemmGFLOPs: Math.max((2 * size ** 3) / Math.min(...times) / 1e6, torch.gemmGFLOPs ?? 0),
  }
}
