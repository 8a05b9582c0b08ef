// images.js: bytes of images that chains of convolutions in 16 bits move on a GPU, and their launches, counted by the steps of plans.
import { optimizedGraph } from '#lib/cli/inspection.js'
import { elementBytes } from '#lib/core/dtype.js'
import { ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { depthUnit } from '#lib/kernels/linear-args.js'
import { compile } from '#lib/plan/compile.js'
import { operandsOf } from '#lib/plan/program.js'

/** @import { Graph, Node } from '#lib/graph/graph.js' */
/** @import { Step } from '#lib/plan/program.js' */

/**
 * Convolutions with a ReLU behind each; those of a block, where the last one adds what the block reads.
 * @typedef {object} Chain
 * @property {string} name
 * @property {number} size pixels of a side
 * @property {readonly [filters: number, kernel: number][]} block
 * @property {number} blocks
 * @property {boolean} adds
 */

/** @type {readonly Chain[]} */
export const chains = [
  { name: 'plain, 64', size: 128, blocks: 4, adds: false, block: [[64, 3]] },
  {
    ...{ name: 'basic, 128', size: 28, blocks: 4, adds: true },
    block: [
      [128, 3],
      [128, 3],
    ],
  },
  {
    ...{ name: 'bottleneck, 1024', size: 14, blocks: 4, adds: true },
    block: [
      [256, 1],
      [256, 3],
      [1024, 1],
    ],
  },
]

/** @param {Chain} chain @returns {Graph} */
export function chainGraph({ size, block, blocks, adds }) {
  const initializers = new Map()
  /** @type {Node[]} */
  const nodes = []
  let [x, channels, count] = ['x', block.at(-1)?.[0] ?? 0, 0]
  const shape = [1, channels, size, size]
  const next = (/** @type {string} */ op, /** @type {string[]} */ inputs, attributes = {}) => {
    const y = `v${count++}`
    nodes.push(makeNode(op, inputs, [y], { attributes }))
    return y
  }
  for (let i = 0; i < blocks; i++) {
    const from = x
    for (const [at, [filters, kernel]] of block.entries()) {
      const [w, pad] = [`w${count}`, kernel >> 1]
      const weights = new Float32Array(filters * channels * kernel ** 2)
      initializers.set(w, Constant.from('f32', [filters, channels, kernel, kernel], weights))
      x = next('Conv', [x, w], { pads: ints([pad, pad, pad, pad]) })
      if (adds && at === block.length - 1) x = next('Add', [x, from])
      x = next('Relu', [x])
      channels = filters
    }
  }
  const inputs = [{ name: 'x', type: tensorType('f32', shape) }]
  return makeGraph({ inputs, outputs: [{ name: x }], nodes, initializers })
}

/** What a step launches, and bytes of images that its kernels read and write, each once. @param {Step} step */
function workOf({ op, args }) {
  let bytes = 0
  for (const { buffer, count } of operandsOf(args)) {
    if (['constant', 'folded'].includes(buffer.storage)) continue
    bytes += elementBytes(buffer.dtype, Number(count))
  }
  if (op !== 'conv') return { launches: 1, bytes }
  const { weight, channelsLast, compute, xDtype = 'f32', x } = args
  if (!channelsLast) {
    const isPacked = weight.format !== compute || Number(weight.cols) % depthUnit !== 0
    return { launches: isPacked ? 2 : 1, bytes }
  }
  if (xDtype !== 'f32') return { launches: 1, bytes }
  return { launches: 2, bytes: bytes + elementBytes('bf16', 2 * Number(x.count)) }
}

/** @param {Chain} chain */
export async function chainTraffic(chain) {
  const { graph } = await optimizedGraph(chainGraph(chain), {}, 'bf16')
  const { steps } = compile(graph, { backend: 'cuda', mode: 'bf16', bf16Support: 'matrix' })
  const works = steps.map(workOf)
  return {
    launches: works.reduce((sum, { launches }) => sum + launches, 0),
    bytes: works.reduce((sum, { bytes }) => sum + bytes, 0),
  }
}

/** A line for each chain. */
export async function imageTable() {
  const lines = ['chain             launches  bytes of images']
  for (const chain of chains) {
    const { launches, bytes } = await chainTraffic(chain)
    lines.push([chain.name.padEnd(16), `${launches}`.padStart(8), `${bytes}`.padStart(15)].join('  '))
  }
  return lines.join('\n')
}
