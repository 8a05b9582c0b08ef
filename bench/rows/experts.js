// experts.js: a layer of 32 experts of which each token takes 4, for one token and for a prompt of 512. The peer of f32 is
// one linear layer for each expert, whose rows lie together already.
import { holdWeight, releaseWeight } from 'dgx-spark/kernels'
import { nearProduct } from '../checks.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { storedWeights } from './linear.js'

/** @import { Kernels, Weight } from 'dgx-spark/kernels' */
/** @import { Case, Side } from '../harness.js' */

const [experts, choices, rows, cols] = [32, 4, 768, 2048]

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* expertRows(kernels) {
  if (kernels.backend === 'js') return
  const data = uniform(experts * rows * cols, 2)
  for (const stored of storedWeights(data, experts * rows, cols)) {
    const weight = await holdWeight(kernels, stored)
    for (const tokens of [1, 512]) yield* layer(kernels, stored, weight, tokens)
    releaseWeight(weight)
  }
}

/** @param {Kernels} kernels @param {Weight} stored @param {Weight} weight @param {number} tokens @returns {AsyncGenerator<Case>} */
async function* layer(kernels, stored, weight, tokens) {
  const operands = new Operands(kernels)
  const count = tokens * choices
  const x = await operands.put(uniform(tokens * cols, 3))
  const y = await operands.put(new Float32Array(count * rows))
  const choice = await operands.put(
    BigInt64Array.from({ length: count }, (_, i) => BigInt((i * 7) % experts)),
  )
  const used = Math.min(count, experts)
  const hasPeer = kernels.backend === 'cpu' && stored.format === 'f32'
  yield {
    name: 'experts',
    shape: `T${tokens} ${choices} of ${experts}, ${rows}x${cols}`,
    dtype: stored.format,
    ...(tokens === 1
      ? { elements: used * rows * cols, bytes: (used * stored.data.byteLength) / experts, bandwidth: 'read' }
      : { flops: 2 * count * rows * cols }),
    run: () => kernels.run('expertLinear', { weight, experts, tokens, choices, x, choice, y }),
    check: () => nearProduct(firstExpert(stored), x, y),
    ...(hasPeer && { peer: await byExpert(kernels, operands, weight, count / used, used) }),
  }
  operands.dispose()
}

/** Expert 0, which token 0 chooses first. @param {Weight} weight */
function firstExpert(weight) {
  const share = (/** @type {{ length: number }} */ { length }) => length / experts
  const scales = {
    ...('rowScale' in weight && { rowScale: weight.rowScale.subarray(0, rows) }),
    ...('blockScale' in weight && { blockScale: weight.blockScale.subarray(0, share(weight.blockScale)) }),
  }
  return /** @type {Weight} */ ({
    ...weight,
    ...scales,
    rows,
    data: weight.data.subarray(0, share(weight.data)),
  })
}

/**
 * A linear layer with `each` rows for each of the experts. @param {Kernels} kernels @param {Operands} operands
 * @param {Weight} weight of f32 @param {number} each @param {number} used @returns {Promise<Side>}
 */
async function byExpert(kernels, operands, weight, each, used) {
  const x = await operands.put(uniform(each * cols, 3))
  const y = await operands.put(new Float32Array(each * rows))
  const parts = Array.from({ length: used }, (_, i) => {
    const data = weight.data.subarray(i * rows * cols, (i + 1) * rows * cols)
    return /** @type {Weight} */ ({ ...weight, rows, data })
  })
  return {
    name: 'linear by expert',
    run: async () => {
      for (const part of parts) await kernels.run('linear', { weight: part, tokens: each, x, y })
    },
  }
}
