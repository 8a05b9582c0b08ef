// casts.js: casts, amax and quantizers. Rates count the bytes read and written.
import assert from 'node:assert'
import { decode, dequantizeNVFP4, encode, quantizeNVFP4 } from 'dgx-spark'
import { uniform } from '../random.js'

/** @import { DType, DTypeArray, Kernels } from 'dgx-spark' */
/** @import { Case } from '../harness.js' */

const rows = 2048
const cols = 4096
const count = rows * cols
const shape = `${rows}x${cols}`

/** @param {Kernels} kernels @returns {Generator<Case>} */
export function* casts(kernels) {
  const values = uniform(count, 1)
  for (const [from, to] of /** @type {[DType, DType][]} */ ([
    ['f32', 'bf16'],
    ['f32', 'f16'],
    ['bf16', 'f32'],
    ['f32', 'f8_e4m3'],
  ])) {
    yield cast(kernels, values, from, to)
  }
  const bf16 = encode(values, 'bf16')
  const out = new Float32Array(1)
  yield {
    name: 'amax',
    shape,
    dtype: 'bf16',
    bytes: bf16.byteLength,
    run: () => kernels.run('amax', { dtype: 'bf16', count, src: bf16, out }),
    check: () =>
      assert.equal(
        out[0],
        decode(bf16, 'bf16').reduce((a, b) => Math.max(a, Math.abs(b)), 0),
      ),
  }
  yield* nvfp4(kernels, bf16)
}

/** @param {Kernels} kernels @param {Float32Array} values @param {DType} from @param {DType} to @returns {Case} */
function cast(kernels, values, from, to) {
  const src = encode(values, from)
  const expected = encode(decode(src, from), to)
  const dst = /** @type {DTypeArray} */ (expected.slice().fill(0))
  return {
    name: 'cast',
    shape,
    dtype: `${from}>${to}`,
    bytes: src.byteLength + dst.byteLength,
    run: () => kernels.run('cast', { srcDtype: from, dstDtype: to, count, saturate: true, src, dst }),
    check: () => assert.deepEqual(dst.subarray(0, 4099), expected.subarray(0, 4099)),
  }
}

/** @param {Kernels} kernels @param {Uint16Array} src @returns {Generator<Case>} */
function* nvfp4(kernels, src) {
  const expected = quantizeNVFP4({ data: src, dtype: 'bf16' }, [rows, cols])
  const packed = new Uint8Array(count / 2)
  const blockScale = new Uint8Array(count / 16)
  const { tensorScale } = expected
  yield {
    name: 'nvfp4 quantize',
    shape,
    dtype: 'bf16',
    bytes: src.byteLength + packed.byteLength + blockScale.byteLength,
    run: () =>
      kernels.run('nvfp4Quantize', { srcDtype: 'bf16', rows, cols, tensorScale, src, packed, blockScale }),
    check: () => assert.deepEqual(packed.subarray(0, 4099), expected.packed.subarray(0, 4099)),
  }
  const dst = new Float32Array(count)
  yield {
    name: 'nvfp4 dequantize',
    shape,
    dtype: 'f32',
    bytes: dst.byteLength + packed.byteLength + blockScale.byteLength,
    run: () => kernels.run('nvfp4Dequantize', { rows, cols, tensorScale, packed, blockScale, dst }),
    check: () => assert.deepEqual(dst.subarray(0, 4099), dequantizeNVFP4(expected).subarray(0, 4099)),
  }
}
