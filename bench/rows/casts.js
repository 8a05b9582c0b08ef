// casts.js: casts, amax and quantizers. Rates count the bytes read and written.
import assert from 'node:assert'
import { decode, dequantizeNVFP4, encode, openKernels } from 'dgx-spark'
import { uniform } from '../random.js'

/** @import { DType, DTypeArray, Kernels, NVFP4Recipe } from 'dgx-spark' */
/** @import { Case } from '../harness.js' */

const rows = 2048
const cols = 4096
const count = rows * cols
const shape = `${rows}x${cols}`
const reference = await openKernels({ backend: 'js' })

/** @param {Kernels} kernels @returns {Generator<Case>} */
export function* casts(kernels) {
  const values = uniform(count, 1)
  for (const [from, to] of /** @type {[DType, DType][]} */ ([
    ['f32', 'bf16'],
    ['f32', 'f16'],
    ['bf16', 'f32'],
    ['f16', 'f32'],
    ['f32', 'f8_e4m3'],
    ['bf16', 'f8_e4m3'],
    ['f8_e4m3', 'f32'],
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
  yield* fp8(kernels, bf16)
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
  const packed = new Uint8Array(count / 2)
  const blockScale = new Uint8Array(count / 16)
  const amax = decode(src, 'bf16').reduce((a, b) => Math.max(a, Math.abs(b)), 0)
  const tensorScale = Math.fround(amax / 2688)
  const encodeScale = Math.fround(2688 / amax)
  for (const recipe of /** @type {NVFP4Recipe[]} */ (['modelopt', 'te', 'mse'])) {
    const args = { srcDtype: /** @type {const} */ ('bf16'), cols, recipe, tensorScale, encodeScale, src }
    const first = { packed: new Uint8Array(cols / 2), blockScale: new Uint8Array(cols / 16) }
    yield {
      name: 'nvfp4 quantize',
      shape: `${shape} ${recipe}`,
      dtype: 'bf16',
      bytes: src.byteLength + packed.byteLength + blockScale.byteLength,
      run: () => kernels.run('nvfp4Quantize', { ...args, rows, packed, blockScale }),
      check: () => {
        reference.runSync('nvfp4Quantize', { ...args, rows: 1, ...first })
        assert.deepEqual(packed.subarray(0, cols / 2), first.packed)
        assert.deepEqual(blockScale.subarray(0, cols / 16), first.blockScale)
      },
    }
  }
  const dequantize = { rows, cols, tensorScale, packed, blockScale }
  const dst = new Float32Array(count)
  yield {
    name: 'nvfp4 dequantize',
    shape,
    dtype: 'f32',
    bytes: dst.byteLength + packed.byteLength + blockScale.byteLength,
    run: () => kernels.run('nvfp4Dequantize', { ...dequantize, dst }),
    check: () => assert.deepEqual(dst.subarray(0, 4099), dequantizeNVFP4(dequantize).subarray(0, 4099)),
  }
}

/** @param {Kernels} kernels @param {Uint16Array} src @returns {Generator<Case>} */
function* fp8(kernels, src) {
  const codes = new Uint8Array(count)
  for (const [name, blockRows, blockCols] of /** @type {[string, number, number][]} */ ([
    ['row', 1, cols],
    ['block 128', 128, 128],
  ])) {
    const scale = new Float32Array((rows / blockRows) * (cols / blockCols))
    const args = { srcDtype: /** @type {const} */ ('bf16'), cols, blockRows, blockCols, src }
    const first = { codes: new Uint8Array(blockRows * cols), scale: new Float32Array(cols / blockCols) }
    yield {
      name: 'fp8 quantize',
      shape: `${shape} ${name}`,
      dtype: 'bf16',
      bytes: src.byteLength + codes.byteLength,
      run: () => kernels.run('fp8Quantize', { ...args, rows, codes, scale }),
      check: () => {
        reference.runSync('fp8Quantize', { ...args, rows: blockRows, ...first })
        assert.deepEqual(codes.subarray(0, first.codes.length), first.codes)
      },
    }
  }
}
