// rotary.js: rotary embeddings of queries: a prompt and a batch of single tokens, beside ONNX Runtime's RotaryEmbedding.
import { openKernels } from 'dgx-spark/kernels'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** Batch, tokens, heads and their elements: of Llama 3.2 1B and 3.1 8B. */
const shapes = [
  [1, 512, 32, 64],
  [1, 2048, 32, 128],
  [8, 1, 32, 128],
]

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* rotary(kernels, peer) {
  if (!kernels.supports('rotary')) return
  const plain = await openKernels({ backend: 'js' })
  for (const [batch = 0, tokens = 0, heads = 0, depth = 0] of shapes) {
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
