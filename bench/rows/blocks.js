// blocks.js: linear layers whose weights are in blocks, in f32 and with rows that are rounded, to bytes on a CPU and to bf16 on
// a GPU: one token through a weight that comes from main memory, 16 on a GPU, and a prompt of 512. The peer of rounded rows is the
// same in f32.
import { decodeWeight } from 'dgx-spark/kernels'
import { near, nearProduct } from '../checks.js'
import { coldWeight } from '../cold.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels, Weight } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

const [rows, cols] = [8192, 2048]

/**
 * Elements and bytes of a block, and its scales: bytes and where they are. The rest is random.
 * @type {Record<string, { elements: number, length: number, scales: [number, number[]][] }>}
 */
const formats = {
  q4_0: { elements: 32, length: 18, scales: [[0, [0, 0x24]]] },
  q8_0: { elements: 32, length: 34, scales: [[0, [0, 0x14]]] },
  q4_k: { elements: 256, length: 144, scales: [[0, [0, 0x14, 0, 0x18]]] },
  q6_k: { elements: 256, length: 210, scales: [[208, [0, 0x0c]]] },
  mxfp4: { elements: 32, length: 17, scales: [[0, [124]]] },
  u4_32: { elements: 32, length: 21, scales: [[0, [0, 0, 0x80, 0x3c, 8]]] },
}

/** @param {string} format @returns {Weight} */
function randomBlocks(format) {
  const { elements, length, scales } = /** @type {typeof formats[string]} */ (formats[format])
  const count = (rows * cols) / elements
  const data = Uint8Array.from(uniform(count * length, 2), value => Math.floor((value + 1) * 128))
  for (let block = 0; block < count; ++block)
    for (const [at, bytes] of scales) data.set(bytes, block * length + at)
  return /** @type {Weight} */ ({ format, rows, cols, data })
}

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* blocks(kernels) {
  if (kernels.backend === 'js') return
  for (const format of Object.keys(formats)) {
    const stored = randomBlocks(format)
    const cold = await coldWeight(kernels, stored)
    for (const tokens of kernels.backend === 'cuda' ? [1, 16, 512] : [1, 512])
      yield* layer(kernels, stored, () => cold.next(), tokens)
    cold.dispose()
  }
}

/** @param {Kernels} kernels @param {Weight} stored @param {() => Weight} next @param {number} tokens @returns {AsyncGenerator<Case>} */
async function* layer(kernels, stored, next, tokens) {
  const operands = new Operands(kernels)
  const x = await operands.put(uniform(tokens * cols, 3))
  const y = await operands.put(new Float32Array(tokens * rows))
  const run = (/** @type {'f32' | 'bf16' | 'i8'} */ compute) => () =>
    kernels.run('linear', { weight: next(), tokens, x, y, compute })
  const shared = {
    name: 'blocks',
    shape: `T${tokens} ${rows}x${cols}`,
    sizes: { tokens, rows, cols },
    ...(tokens === 1
      ? { elements: rows * cols, bytes: stored.data.byteLength, bandwidth: /** @type {const} */ ('read') }
      : { flops: 2 * tokens * rows * cols }),
  }
  yield { ...shared, dtype: stored.format, run: run('f32'), check: () => nearProduct(stored, x, y) }
  const onGpu = kernels.backend === 'cuda'
  const rounded = run(onGpu ? 'bf16' : 'i8')
  yield {
    ...shared,
    dtype: `${stored.format} ${onGpu ? 'in bf16' : 'i8'}`,
    run: rounded,
    check: () => (onGpu ? nearProduct(stored, x, y, 1e-2) : nearRounded(stored, x, y)),
    peer: { name: 'f32', run: run('f32') },
  }
  operands.dispose()
}

/** Throws unless y[0, 0] is that of the first row of x in bytes. @param {Weight} weight @param {Float32Array} x @param {Float32Array} y */
function nearRounded(weight, x, y) {
  const w = decodeWeight(weight)
  let sum = 0
  for (let i = 0; i < cols; i += 32) {
    const scale = x.subarray(i, i + 32).reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127
    for (let j = i; j < i + 32; ++j) sum += Math.round((x[j] ?? 0) / scale) * scale * (w[j] ?? 0)
  }
  near(y[0], sum, 1e-3)
}
