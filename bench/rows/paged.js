// paged.js: attention over blocks of keys and values: a step of decoding, steps of eight sequences, and a prompt, with
// caches of f32 and f16; on a GPU prompts in bf16, too.
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

const [heads, kvHeads, depth, blockSize] = [32, 8, 128, 32]

/** Sequences, their rows, and what lies in front of them. @type {[number, number, number][]} */
const shapes = [
  [1, 1, 2047],
  [8, 1, 2047],
  [1, 512, 0],
]
/** @type {[number, number, number][]} */
const prompts = [
  [1, 512, 0],
  [1, 4096, 0],
]

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* paged(kernels) {
  if (!kernels.supports('pagedAttention')) return
  const onGpu = kernels.backend === 'cuda' ? /** @type {const} */ (['bf16']) : []
  for (const cacheDtype of /** @type {const} */ (['f32', 'f16', ...onGpu])) {
    for (const [sequences, rows, past] of cacheDtype === 'bf16' ? prompts : shapes) {
      const operands = new Operands(kernels)
      const [tokens, length] = [sequences * rows, past + rows]
      const table = Math.ceil(length / blockSize)
      const blocks = sequences * table
      const count = blocks * blockSize * kvHeads * depth
      const random = (/** @type {number} */ count, /** @type {number} */ seed) =>
        operands.put(uniform(count, seed))
      const [query, key, value] = await Promise.all([
        random(tokens * heads * depth, 2),
        random(tokens * kvHeads * depth, 3),
        random(tokens * kvHeads * depth, 4),
      ])
      const cache = async (/** @type {number} */ seed) => {
        const src = uniform(count, seed)
        if (cacheDtype === 'f32') return operands.put(src)
        const dst = await operands.put(new Uint16Array(count))
        const to = { srcDtype: /** @type {const} */ ('f32'), dstDtype: cacheDtype, count, saturate: true }
        await kernels.run('cast', { ...to, src: await operands.put(src), dst })
        return dst
      }
      const [keyCache, valueCache] = [await cache(5), await cache(6)]
      const y = await operands.put(new Float32Array(tokens * heads * depth))
      const scale = 1 / Math.sqrt(depth)
      const args = {
        tokens,
        sequences,
        heads,
        kvHeads,
        depth,
        rotary: 0,
        blocks,
        blockSize,
        table,
        scale,
        query,
        key,
        value,
        starts: await operands.put(Int32Array.from({ length: sequences + 1 }, (_, b) => b * rows)),
        past: await operands.put(new Int32Array(sequences).fill(past)),
        block: await operands.put(Int32Array.from({ length: blocks }, (_, i) => i)),
        cacheDtype,
        keyCache,
        valueCache,
        y,
        compute: cacheDtype === 'bf16' ? cacheDtype : /** @type {const} */ ('f32'),
      }
      const isStep = rows === 1
      yield {
        name: 'paged attention',
        shape: `${sequences} x ${rows} behind ${past}, h${heads}/${kvHeads} d${depth}`,
        dtype: cacheDtype === args.compute ? cacheDtype : `f32, cache ${cacheDtype}`,
        ...(isStep
          ? { bytes: keyCache.byteLength + valueCache.byteLength, bandwidth: 'read' }
          : { flops: 2 * sequences * heads * rows * (rows + 2 * past + 1) * depth }),
        run: () => kernels.run('pagedAttention', args),
        check: async () => {
          if (cacheDtype === 'f32') expectClose(y, await denseOutput(kernels, args, rows, length), 1e-5)
          if (cacheDtype !== 'bf16') return
          const exact = await operands.put(new Float32Array(y.length))
          await kernels.run('pagedAttention', { ...args, compute: 'f32', y: exact })
          expectClose(y, exact, 3e-2)
        },
      }
      operands.dispose()
    }
  }
}

/**
 * The same by the attention of contiguous keys: the blocks of a sequence lie behind each other.
 * @param {Kernels} kernels @param {any} args @param {number} rows @param {number} length
 */
async function denseOutput(kernels, { query, keyCache, valueCache, scale, sequences, table }, rows, length) {
  const width = kvHeads * depth
  const y = new Float32Array(query.length)
  /** @type {[number, number, number]} */
  const qStrides = [rows * heads * depth, depth, heads * depth]
  /** @type {[number, number, number]} */
  const kStrides = [table * blockSize * width, depth, width]
  await kernels.run('attention', {
    batch: sequences,
    heads,
    kvHeads,
    queries: rows,
    keys: length,
    depth,
    valueDepth: depth,
    scale,
    causal: true,
    causalOffset: length - rows,
    q: query,
    k: keyCache,
    v: valueCache,
    qStrides,
    kStrides,
    vStrides: kStrides,
    yStrides: qStrides,
    y,
  })
  return y
}
