// attention.js: attention of a transformer's layer, forward and backward, and rotary embeddings of its queries, beside ONNX
// Runtime's; attention on a GPU in bf16, too.
import { openKernels } from 'dgx-spark/kernels'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { AttentionInputs } from '#lib/kernels/kernels.js' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** @typedef {{ heads: number, kvHeads: number, queries: number, keys: number, depth: number, causal: number }} Heads */

/** Heads, heads of the keys, queries, keys, depth, causal. @type {[number, number, number, number, number, boolean][]} */
const shapes = [
  [12, 12, 128, 128, 64, false],
  [12, 12, 1024, 1024, 64, true],
  [16, 4, 2048, 2048, 128, true],
  [32, 8, 1, 2048, 128, false],
]

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* attention(kernels, peer) {
  if (!kernels.supports('attention')) return
  for (const [heads, kvHeads, queries, keys, depth, causal] of shapes) {
    const operands = new Operands(kernels)
    const put = (/** @type {number} */ count, /** @type {number} */ seed) =>
      operands.put(uniform(count, seed))
    const [q, k, v, dy] = await Promise.all([
      put(heads * queries * depth, 2),
      put(kvHeads * keys * depth, 3),
      put(kvHeads * keys * depth, 4),
      put(heads * queries * depth, 5),
    ])
    const y = await operands.put(new Float32Array(q.length))
    const logSum = await operands.put(new Float32Array(heads * queries))
    /** @returns {[number, number, number]} */
    const strides = (/** @type {number} */ count, /** @type {number} */ rows) => [
      count * rows * depth,
      rows * depth,
      depth,
    ]
    const scale = 1 / Math.sqrt(depth)
    const inputs = {
      batch: 1,
      heads,
      kvHeads,
      queries,
      keys,
      depth,
      valueDepth: depth,
      scale,
      causal,
      q,
      k,
      v,
      qStrides: strides(heads, queries),
      kStrides: strides(kvHeads, keys),
      vStrides: strides(kvHeads, keys),
      yStrides: strides(heads, queries),
    }
    const run = await peer?.operator({
      type: 'Attention',
      inputs: { q: [1, heads, queries, depth], k: [1, kvHeads, keys, depth], v: [1, kvHeads, keys, depth] },
      outputs: { y: [1, heads, queries, depth] },
      attributes: { is_causal: Number(causal) },
    })
    const about = {
      shape: `h${heads}/${kvHeads} ${queries}x${keys} d${depth}${causal ? ' causal' : ''}`,
      dtype: 'f32',
      flops: (4 * heads * queries * keys * depth) / (causal ? 2 : 1),
      sizes: { heads, kvHeads, queries, keys, depth, causal: Number(causal) },
    }
    const forward = (/** @type {'f32' | 'bf16'} */ compute) =>
      kernels.run('attention', { ...inputs, y, logSum, compute })
    /** @type {('f32' | 'bf16')[]} */
    const computes = kernels.backend === 'cuda' ? ['f32', 'bf16'] : ['f32']
    for (const compute of computes) {
      yield {
        ...about,
        name: 'attention',
        dtype: compute === 'f32' ? 'f32' : `f32 in ${compute}`,
        run: () => forward(compute),
        check: async () => {
          const expected = (await run?.(q, k, v)) ?? (await firstGroup(inputs, dy)).y
          expectClose(y, expected, compute === 'f32' ? 1e-5 : 2e-2)
        },
        ...(run && peer && { peer: { name: peer.name, run: () => run(q, k, v) } }),
      }
    }
    const [dq, dk, dv] = await Promise.all(
      [q, k, v].map(({ length }) => operands.put(new Float32Array(length))),
    )
    await forward('f32')
    for (const compute of computes) {
      yield {
        ...about,
        name: 'attention backward',
        dtype: compute === 'f32' ? 'f32' : `f32 in ${compute}`,
        flops: 2.5 * about.flops,
        run: () => kernels.run('attentionBackward', { ...inputs, y, logSum, dy, dq, dk, dv, compute }),
        check: async () => {
          const expected = await firstGroup(inputs, dy)
          for (const [actual, part] of /** @type {const} */ ([
            [dq, expected.dq],
            [dk, expected.dk],
            [dv, expected.dv],
          ])) {
            expectClose(actual ?? new Float32Array(), part, compute === 'f32' ? 1e-5 : 2e-2)
          }
        },
      }
    }
    operands.dispose()
  }
}

/**
 * What the plain loops make of the first head of the keys and the heads that read it: the first part of each result.
 * @param {AttentionInputs} inputs @param {Float32Array} dy
 */
async function firstGroup(inputs, dy) {
  const plain = await openKernels({ backend: 'js' })
  const { heads, kvHeads, queries, keys, depth, q, k, v } = inputs
  const own = heads / kvHeads
  const part = (/** @type {Float32Array} */ array, /** @type {number} */ count) => array.subarray(0, count)
  const [ofQueries, ofKeys] = [own * queries * depth, keys * depth]
  const group = { q: part(q, ofQueries), k: part(k, ofKeys), v: part(v, ofKeys) }
  const args = { ...inputs, ...group, heads: own, kvHeads: 1 }
  const y = new Float32Array(ofQueries)
  const logSum = new Float32Array(own * queries)
  await plain.run('attention', { ...args, y, logSum })
  const gradients = {
    dq: new Float32Array(ofQueries),
    dk: new Float32Array(ofKeys),
    dv: new Float32Array(ofKeys),
  }
  await plain.run('attentionBackward', { ...args, y, logSum, dy: part(dy, ofQueries), ...gradients })
  return { y, ...gradients }
}

/** Batch, tokens, heads and their elements, of rotary embeddings in Llama 3.2 1B and 3.1 8B. */
const turns = [
  [1, 512, 32, 64],
  [1, 2048, 32, 128],
  [8, 1, 32, 128],
]

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* rotary(kernels, peer) {
  if (!kernels.supports('rotary')) return
  const plain = await openKernels({ backend: 'js' })
  for (const [batch = 0, tokens = 0, heads = 0, depth = 0] of turns) {
    const operands = new Operands(kernels)
    const [count, angles] = [batch * tokens * heads * depth, (batch * tokens * depth) / 2]
    const x = await operands.put(uniform(count, 1))
    const [cos, sin] = [await operands.put(uniform(angles, 2)), await operands.put(uniform(angles, 3))]
    const y = await operands.put(new Float32Array(count))
    for (const interleaved of [false, true]) {
      const args = { batch, tokens, heads, depth, rotary: depth, interleaved, x, cos, sin }
      const sizes = [batch, tokens, heads * depth]
      const run = await peer?.operator({
        type: 'RotaryEmbedding',
        inputs: { x: sizes, cos: [batch, tokens, depth / 2], sin: [batch, tokens, depth / 2] },
        outputs: { y: sizes },
        attributes: { num_heads: heads, interleaved: Number(interleaved) },
      })
      yield {
        name: interleaved ? 'rotary, neighbours' : 'rotary, halves',
        shape: `${batch}x${tokens}x${heads}x${depth}`,
        dtype: 'f32',
        elements: count,
        bytes: 2 * x.byteLength + 2 * cos.byteLength,
        run: () => kernels.run('rotary', { ...args, y }),
        check: async () => {
          const expected = new Float32Array(count)
          await plain.run('rotary', { ...args, y: expected })
          await kernels.run('rotary', { ...args, y })
          expectClose(y, expected, 0)
          if (run) expectClose(y, await run(x, cos, sin))
        },
        ...(run && peer && { peer: { name: peer.name, run: () => run(x, cos, sin) } }),
      }
    }
    operands.dispose()
  }
}
