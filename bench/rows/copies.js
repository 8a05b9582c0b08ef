// copies.js: transposes and permutations, and a copy that leaves elements in their order. Rates count the bytes read and written.
import { numel } from '../feeds.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { DTypeArray } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

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
