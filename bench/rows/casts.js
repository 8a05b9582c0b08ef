// casts.js: casts, amax, quantizers and strided copies. Rates count the bytes read and written.
import assert from 'node:assert'
import os from 'node:os'
import { decode, dequantizeNVFP4, encode, quantizeFP8, quantizeNVFP4 } from 'dgx-spark'
import { getConfig } from '#lib/core/config.js'
import { bandwidth } from '../bandwidth.js'
import { numel } from '../feeds.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { DType, DTypeArray, NVFP4Recipe } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

const rows = 8192 // more than the caches of a CPU or a GPU hold
const cols = 4096

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* casts(kernels) {
  const values = uniform(rows * cols, 1)
  for (const [from, to] of /** @type {[DType, DType][]} */ ([
    ['f32', 'bf16'],
    ['f32', 'f16'],
    ['bf16', 'f32'],
    ['f16', 'f32'],
    ['f32', 'f8_e4m3'],
    ['bf16', 'f8_e4m3'],
    ['f8_e4m3', 'f32'],
  ])) {
    yield* cast(kernels, rows, values, from, to)
  }
  const bf16 = encode(values, 'bf16')
  yield* amax(kernels, rows, bf16)
  yield* nvfp4(kernels, rows, bf16)
  yield* fp8(kernels, rows, bf16)
}

/**
 * @param {Kernels} kernels @param {number} rows @param {Float32Array} values @param {DType} from @param {DType} to
 * @returns {AsyncGenerator<Case>}
 */
async function* cast(kernels, rows, values, from, to) {
  const operands = new Operands(kernels)
  const src = await operands.put(encode(values, from))
  const expected = encode(decode(src, from), to)
  const dst = await operands.put(/** @type {DTypeArray} */ (expected.slice().fill(0)))
  const count = rows * cols
  yield {
    name: 'cast',
    shape: `${rows}x${cols}`,
    dtype: `${from}>${to}`,
    sizes: { rows, cols },
    bytes: src.byteLength + dst.byteLength,
    run: () => kernels.run('cast', { srcDtype: from, dstDtype: to, count, saturate: true, src, dst }),
    check: () => same(dst, expected),
    ...limitOf(kernels, false),
  }
  operands.dispose()
}

/** Memory bandwidth as the limit of a row. @param {Kernels} kernels @param {boolean} reading */
function limitOf(kernels, reading) {
  if (kernels.backend !== 'cpu') return {}
  const { threads } = getConfig()
  return { limit: () => bandwidth(threads || os.cpus().length, reading) }
}

/** @param {Kernels} kernels @param {number} rows @param {Uint16Array} bf16 @returns {AsyncGenerator<Case>} */
async function* amax(kernels, rows, bf16) {
  const operands = new Operands(kernels)
  const src = await operands.put(bf16)
  const out = await operands.put(new Float32Array(1))
  const expected = decode(bf16, 'bf16').reduce((a, b) => Math.max(a, Math.abs(b)), 0)
  yield {
    name: 'amax',
    shape: `${rows}x${cols}`,
    dtype: 'bf16',
    sizes: { rows, cols },
    bytes: src.byteLength,
    bandwidth: 'read',
    run: () => kernels.run('amax', { dtype: 'bf16', count: src.length, src, out }),
    check: () => assert.equal(out[0], expected),
    ...limitOf(kernels, true),
  }
  operands.dispose()
}

/** @param {Kernels} kernels @param {number} rows @param {Uint16Array} bf16 @returns {AsyncGenerator<Case>} */
async function* nvfp4(kernels, rows, bf16) {
  const operands = new Operands(kernels)
  const count = rows * cols
  const src = await operands.put(bf16)
  const packed = await operands.put(new Uint8Array(count / 2))
  const blockScale = await operands.put(new Uint8Array(count / 16))
  const amax = decode(bf16, 'bf16').reduce((a, b) => Math.max(a, Math.abs(b)), 0)
  const encodeScale = Math.fround(2688 / amax)
  for (const recipe of /** @type {NVFP4Recipe[]} */ (['modelopt', 'te', 'mse'])) {
    const expected = quantizeNVFP4({ data: bf16, dtype: 'bf16' }, [rows, cols], { recipe })
    const { tensorScale } = expected
    const args = { srcDtype: /** @type {const} */ ('bf16'), rows, cols, recipe, tensorScale, encodeScale }
    yield {
      name: 'nvfp4 quantize',
      shape: `${rows}x${cols} ${recipe}`,
      dtype: 'bf16',
      sizes: { rows, cols },
      bytes: src.byteLength + packed.byteLength + blockScale.byteLength,
      run: () => kernels.run('nvfp4Quantize', { ...args, src, packed, blockScale }),
      check: () => same(packed, expected.data),
    }
  }
  yield* nvfp4Dequantize(kernels, rows, bf16)
  operands.dispose()
}

/** @param {Kernels} kernels @param {number} rows @param {Uint16Array} bf16 @returns {AsyncGenerator<Case>} */
async function* nvfp4Dequantize(kernels, rows, bf16) {
  const operands = new Operands(kernels)
  const matrix = quantizeNVFP4({ data: bf16, dtype: 'bf16' }, [rows, cols])
  const { tensorScale } = matrix
  const packed = await operands.put(matrix.data)
  const blockScale = await operands.put(matrix.blockScale)
  const dst = await operands.put(new Float32Array(rows * cols))
  const expected = dequantizeNVFP4(matrix)
  yield {
    name: 'nvfp4 dequantize',
    shape: `${rows}x${cols}`,
    dtype: 'f32',
    sizes: { rows, cols },
    bytes: dst.byteLength + packed.byteLength + blockScale.byteLength,
    run: () => kernels.run('nvfp4Dequantize', { rows, cols, tensorScale, packed, blockScale, dst }),
    check: () => same(dst, expected),
  }
  operands.dispose()
}

/** @param {Kernels} kernels @param {number} rows @param {Uint16Array} bf16 @returns {AsyncGenerator<Case>} */
async function* fp8(kernels, rows, bf16) {
  const operands = new Operands(kernels)
  const src = await operands.put(bf16)
  const codes = await operands.put(new Uint8Array(rows * cols))
  for (const [name, blockRows, blockCols] of /** @type {[string, number, number][]} */ ([
    ['tensor', rows, cols],
    ['row', 1, cols],
    ['block 128', 128, 128],
  ])) {
    const scale = await operands.put(new Float32Array((rows / blockRows) * (cols / blockCols)))
    const source = { data: bf16, dtype: /** @type {const} */ ('bf16') }
    const { data: expected } =
      blockRows === 128
        ? quantizeFP8(source, [rows, cols], { scaling: 'block', blockSize: blockRows })
        : quantizeFP8(source, [rows, cols], { scaling: blockRows === 1 ? 'row' : 'tensor' })
    const args = { srcDtype: /** @type {const} */ ('bf16'), rows, cols, blockRows, blockCols }
    yield {
      name: 'fp8 quantize',
      shape: `${rows}x${cols} ${name}`,
      dtype: 'bf16',
      sizes: { rows, cols },
      bytes: src.byteLength + codes.byteLength,
      run: () => kernels.run('fp8Quantize', { ...args, src, codes, scale }),
      check: () => same(codes, expected),
    }
  }
  operands.dispose()
}

/** @param {ArrayLike<number>} actual @param {ArrayLike<number>} expected */
function same(actual, expected) {
  for (let i = 0; i < expected.length; ++i) {
    assert.ok(actual[i] === expected[i], `element ${i} is ${actual[i]} and should be ${expected[i]}`)
  }
}

/** Names, shapes of what is read, and the order of its axes in what is written. @type {[string, number[], number[]][]} */
const copies = [
  ['plain', [8192, 4096], [0, 1]],
  ['transpose', [8192, 4096], [1, 0]],
  ['channels last', [16, 256, 56, 56], [0, 2, 3, 1]],
  ['channels first', [16, 56, 56, 256], [0, 3, 1, 2]],
  ['heads', [8, 2048, 32, 128], [0, 2, 1, 3]],
  ['keys of heads', [8, 32, 2048, 128], [0, 1, 3, 2]],
]

/** Types by their sizes. @type {['f32' | 'u16' | 'u8', (count: number) => DTypeArray][]} */
const types = [
  ['f32', count => uniform(count, 1)],
  ['u16', count => Uint16Array.from({ length: count }, (_, at) => at * 40503)],
  ['u8', count => Uint8Array.from({ length: count }, (_, at) => (at * 40503) >> 8)],
]

/** @param {readonly number[]} shape */
const stridesOf = shape => shape.map((_, axis) => numel(shape.slice(axis + 1)))

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* copyRows(kernels) {
  for (const [name, shape, order] of copies) {
    for (const [dtype, make] of types) {
      const operands = new Operands(kernels)
      const src = await operands.put(make(numel(shape)))
      const dst = await operands.put(/** @type {DTypeArray} */ (src.slice().fill(0)))
      const strides = stridesOf(shape)
      const permuted = order.map(axis => shape[axis] ?? 0)
      const srcStrides = order.map(axis => strides[axis] ?? 0)
      const dstStrides = stridesOf(permuted)
      yield {
        name: `copy, ${name}`,
        shape: shape.join('x'),
        dtype,
        bytes: 2 * src.byteLength,
        run: () =>
          kernels.run('copyStrided', {
            ...{ dtype, shape: permuted, srcOffset: 0, dstOffset: 0, srcStrides, dstStrides },
            src,
            dst,
          }),
        check: () => expectCopied(permuted, srcStrides, src, dst),
      }
      operands.dispose()
    }
  }
}

/** Compares every 997th element. @param {readonly number[]} shape @param {readonly number[]} srcStrides @param {DTypeArray} src @param {DTypeArray} dst */
function expectCopied(shape, srcStrides, src, dst) {
  const dstStrides = stridesOf(shape)
  for (let to = 0; to < dst.length; to += 997) {
    const from = shape.reduce(
      (at, size, axis) => at + (Math.floor(to / (dstStrides[axis] ?? 1)) % size) * (srcStrides[axis] ?? 0),
      0,
    )
    if (src[from] !== dst[to]) throw new Error(`element ${to} is ${dst[to]}, not ${src[from]}`)
  }
}
