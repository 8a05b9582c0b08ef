// bytes.js: operations on quantized bytes. Rates count the bytes read and written.
import assert from 'node:assert'
import { openKernels } from 'dgx-spark/kernels'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { ElementArray } from 'dgx-spark' */
/** @import { KernelArgs, KernelOp, Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

const [rows, cols] = [8192, 4096] // more than the caches of a CPU or a GPU hold
const count = rows * cols
const [planes, size] = [2048, 112] // of images

/** Bytes of every number. @param {number} length @param {number} factor odd */
const bytes = (length, factor) => Uint8Array.from({ length }, (_, i) => i * factor)

/** @param {number} scale */
const scaled = scale => ({ scale: Float32Array.of(scale), zero: Int32Array.of(128) })

/** An operand of bytes, by its name. @template {string} Name @param {Name} name @param {number} scale */
const operand = (name, scale) =>
  /** @type {{ [field in `${Name}Dtype`]: 'u8' } & { [field in `${Name}Scale`]: Float32Array } & { [field in `${Name}Zero`]: Int32Array }} */ ({
    [`${name}Dtype`]: 'u8',
    [`${name}Scale`]: scaled(scale).scale,
    [`${name}Zero`]: scaled(scale).zero,
  })

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* byteRows(kernels) {
  if (!kernels.supports('quantize')) return
  const shape = `${rows}x${cols}`
  const x = bytes(count, 7)
  const affine = { dtype: /** @type {const} */ ('u8'), outer: 1, channels: 1, inner: count, ...scaled(0.01) }
  const floats = uniform(count, 1)
  yield* row(kernels, 'quantize', shape, { ...affine, x: floats, y: new Uint8Array(count) })
  yield* row(kernels, 'dequantize', shape, { ...affine, x, y: new Float32Array(count) })
  yield* row(kernels, 'quantize', `${shape} by rows`, {
    ...{ ...affine, channels: rows, inner: cols, x: floats, y: new Uint8Array(count) },
    ...{ scale: uniform(rows, 2).map(value => 0.02 + 0.01 * value), zero: new Int32Array(rows) },
  })
  yield* row(kernels, 'lookup', shape, {
    ...{ count, xSigned: false, ySigned: false },
    ...{ x, table: bytes(256, 5), y: new Uint8Array(count) },
  })
  yield* row(kernels, 'binaryBytes', shape, {
    ...{ fn: 'add', count, ...operand('a', 0.01), ...operand('b', 0.02), ...operand('y', 0.03) },
    ...{ a: x, b: bytes(count, 11), y: new Uint8Array(count) },
  })
  yield* row(kernels, 'meanBytes', `${planes}x${size ** 2}`, {
    ...{ rows: planes, cols: size ** 2, ...operand('x', 0.01), ...operand('y', 0.001) },
    ...{ x: bytes(planes * size ** 2, 7), y: new Uint8Array(planes) },
  })
  const both = (/** @type {number} */ value) => [value, value]
  yield* row(kernels, 'pool', `${planes}x${size}x${size}, 3x3 s2`, {
    ...{ fn: 'max', dtype: 'u8', planes, image: both(size), kernel: both(3), out: both(size / 2) },
    ...{ strides: both(2), dilations: both(1), padsBegin: both(1), padsEnd: both(1), countPad: false },
    ...{ x: bytes(planes * size ** 2, 7), y: new Uint8Array((planes * size ** 2) / 4) },
  })
}

/**
 * A call of an operation that writes `y`, whose other arrays are operands.
 * @template {KernelOp} Op @param {Kernels} kernels @param {Op} op @param {string} shape @param {KernelArgs[Op]} args
 * @returns {AsyncGenerator<Case>}
 */
async function* row(kernels, op, shape, args) {
  const operands = new Operands(kernels)
  const plain = await openKernels({ backend: 'js' })
  const put = { ...args }
  let moved = 0
  for (const [name, value] of Object.entries(args)) {
    if (!ArrayBuffer.isView(value)) continue
    moved += value.byteLength
    Object.assign(put, { [name]: await operands.put(/** @type {Uint8Array} */ (value)) })
  }
  const { y } = /** @type {{ y: ElementArray }} */ (/** @type {unknown} */ (put))
  yield {
    name: op,
    shape,
    dtype: 'u8',
    bytes: moved,
    run: () => kernels.run(op, put),
    check: async () => {
      const expected = y.slice().fill(/** @type {never} */ (0))
      await plain.run(op, { ...put, y: expected })
      assert.equal(Buffer.compare(bytesOf(y), bytesOf(expected)), 0, `${op} has other bits`)
    },
  }
  operands.dispose()
}

/** @param {ElementArray} array */
const bytesOf = ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength)
