// images.js: bytes of images that chains of convolutions in 16 bits and int8 move on a GPU, and their launches, counted by the steps of plans.
import { optimizedGraph } from '#lib/cli/inspection.js'
import { elementBytes } from '#lib/core/dtype.js'
import { ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { depthUnit } from '#lib/kernels/linear-args.js'
import { compile } from '#lib/plan/compile.js'
import { operandsOf } from '#lib/plan/program.js'

/** @import { Graph, Node } from '#lib/graph/graph.js' */
/** @import { Step } from '#lib/plan/program.js' */

/**
 * Convolutions, with a ReLU behind each in 16 bits; those of a block, where the last one adds what the block reads.
 * @typedef {object} Chain
 * @property {string} name
 * @property {number} size pixels of a side
 * @property {readonly [filters: number, kernel: number][]} block
 * @property {number} blocks
 * @property {boolean} adds
 * @property {boolean} [int8] of bytes, with one scale and zero point
 */

/** @typedef {(op: string, inputs: string[], options?: Parameters<typeof makeNode>[3]) => string} AddNode */

/** @type {readonly Chain[]} */
const halves = [
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

/** @type {readonly Chain[]} */
export const chains = [
  ...halves,
  ...halves.map(chain => ({ ...chain, name: `${chain.name}, int8`, int8: true })),
]

/** What a convolution, and the sum behind it, are in 16 bits, and in int8. */
const operators = {
  floats: {
    /** @param {AddNode} next @param {string} x @param {string} w @param {number} pad */
    conv: (next, x, w, pad) => next('Conv', [x, w], { attributes: { pads: ints([pad, pad, pad, pad]) } }),
    /** @param {AddNode} next @param {string} x @param {string} from */
    add: (next, x, from) => next('Add', [x, from]),
    /** @param {AddNode} next @param {string} x */
    end: (next, x) => next('Relu', [x]),
  },
  bytes: {
    /** @param {AddNode} next @param {string} x @param {string} w @param {number} pad */
    conv(next, x, w, pad) {
      const inputs = [x, 'scale', 'zero', w, 'scale', 'none', 'scale', 'zero']
      return next('QLinearConv', inputs, { attributes: { pads: ints([pad, pad, pad, pad]) } })
    },
    /** @param {AddNode} next @param {string} x @param {string} from */
    add(next, x, from) {
      const inputs = [x, 'scale', 'zero', from, 'scale', 'zero', 'scale', 'zero']
      return next('QLinearAdd', inputs, { domain: sparkDomain })
    },
    /** @param {AddNode} _ @param {string} x */
    end: (_, x) => x,
  },
}

/** @param {Chain} chain @returns {Graph} */
export function chainGraph({ size, block, blocks, adds, int8 = false }) {
  const initializers = new Map()
  if (int8) {
    initializers.set('scale', Constant.f32(0.02)).set('zero', Constant.from('u8', [], Uint8Array.of(120)))
    initializers.set('none', Constant.from('i8', [], Int8Array.of(0)))
  }
  const { conv, add, end } = operators[int8 ? 'bytes' : 'floats']
  /** @type {Node[]} */
  const nodes = []
  let [x, channels, count] = ['x', block.at(-1)?.[0] ?? 0, 0]
  const shape = [1, channels, size, size]
  /** @type {AddNode} */
  const next = (op, inputs, options) => {
    const y = `v${count++}`
    nodes.push(makeNode(op, inputs, [y], options))
    return y
  }
  for (let i = 0; i < blocks; i++) {
    const from = x
    for (const [at, [filters, kernel]] of block.entries()) {
      const [w, weights] = [`w${count}`, filters * channels * kernel ** 2]
      const sizes = [filters, channels, kernel, kernel]
      const floats = () => Constant.from('f32', sizes, new Float32Array(weights))
      initializers.set(w, int8 ? Constant.from('i8', sizes, new Int8Array(weights)) : floats())
      x = conv(next, x, w, kernel >> 1)
      if (adds && at === block.length - 1) x = add(next, x, from)
      x = end(next, x)
      channels = filters
    }
  }
  const inputs = [{ name: 'x', type: tensorType(int8 ? 'u8' : 'f32', shape) }]
  return makeGraph({ inputs, outputs: [{ name: x }], nodes, initializers })
}

/** What a step launches, and bytes of images that its kernels read and write, each once. @param {Step} step */
function workOf({ op, args }) {
  let bytes = 0
  for (const { buffer, count } of operandsOf(args)) {
    if (['constant', 'folded'].includes(buffer.storage)) continue
    bytes += elementBytes(buffer.dtype, Number(count))
  }
  if (op === 'convInteger' && args.channelsLast && !args.xOutside)
    return { launches: 2, bytes: bytes + 2 * Number(args.x.count) }
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
  const { steps } = compile(graph, { backend: 'cuda', mode: 'bf16', bf16Support: 'matrix', bytes: true })
  const works = steps.map(workOf)
  return {
    launches: works.reduce((sum, { launches }) => sum + launches, 0),
    bytes: works.reduce((sum, { bytes }) => sum + bytes, 0),
  }
}

/** A line for each chain. */
export async function imageTable() {
  const lines = ['chain                   launches  bytes of images']
  for (const chain of chains) {
    const { launches, bytes } = await chainTraffic(chain)
    lines.push([chain.name.padEnd(22), `${launches}`.padStart(8), `${bytes}`.padStart(15)].join('  '))
  }
  return lines.join('\n')
}
