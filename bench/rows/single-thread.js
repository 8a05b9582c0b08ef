// single-thread.js: quantizers on one thread of the CPU, in elements.
import assert from 'node:assert'
import { dequantizeNVFP4, encode, quantizeNVFP4 } from 'dgx-spark'
import { getConfig } from '#lib/core/config.js'
import { requireAddon } from '#lib/native.js'
import { held } from '../operands.js'
import { uniform } from '../random.js'

/** @import { NVFP4Recipe } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

const [rows, cols] = [1024, 4096]

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* singleThread(kernels) {
  if (kernels.backend !== 'cpu') return
  requireAddon().setThreads(1)
  try {
    const src = await held(kernels, encode(uniform(rows * cols, 1), 'bf16'))
    yield quantize(kernels, src)
    yield dequantize(kernels, src)
  } finally {
    requireAddon().setThreads(getConfig().threads)
  }
}

const about = {
  shape: `${rows}x${cols} 1 thread`,
  elements: rows * cols,
  bandwidth: /** @type {const} */ ('thread'),
}

/** @param {Kernels} kernels @param {Uint16Array} src @returns {Promise<Case>} */
async function quantize(kernels, src) {
  const expected = quantizeNVFP4({ data: src, dtype: 'bf16' }, [rows, cols])
  const { tensorScale } = expected
  const packed = await held(kernels, new Uint8Array(expected.data.length))
  const blockScale = await held(kernels, new Uint8Array(expected.blockScale.length))
  const recipe = /** @type {NVFP4Recipe} */ ('modelopt')
  const args = { srcDtype: /** @type {const} */ ('bf16'), rows, cols, recipe, tensorScale }
  return {
    name: 'nvfp4 quantize',
    dtype: 'bf16',
    ...about,
    bytes: src.byteLength + packed.length + blockScale.length,
    run: () => kernels.run('nvfp4Quantize', { ...args, src, packed, blockScale }),
    check: () => assert.deepEqual(packed, expected.data),
  }
}

/** @param {Kernels} kernels @param {Uint16Array} src @returns {Promise<Case>} */
async function dequantize(kernels, src) {
  const matrix = quantizeNVFP4({ data: src, dtype: 'bf16' }, [rows, cols])
  const { tensorScale, data: packed, blockScale } = matrix
  for (const array of [packed, blockScale]) await held(kernels, array)
  const dst = await held(kernels, new Float32Array(rows * cols))
  return {
    name: 'nvfp4 dequantize',
    dtype: 'f32',
    ...about,
    bytes: dst.byteLength + packed.length + blockScale.length,
    run: () => kernels.run('nvfp4Dequantize', { rows, cols, tensorScale, packed, blockScale, dst }),
    check: () => assert.deepEqual(dst, dequantizeNVFP4(matrix)),
  }
}
