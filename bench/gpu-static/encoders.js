// encoders.js: what a layer of encoders of bench/nets.json launches on a GPU in 16 bits, and the bytes of its activations, counted by
// the steps of plans.
import { optimizedGraph } from '#lib/cli/inspection.js'
import { compile } from '#lib/plan/compile.js'
import { bert, vit } from '../nets/encoders.js'
import { prefillOf } from './plans.js'

/** @import { Graph } from '#lib/graph/graph.js' */

const seed = 1

/**
 * An encoder of some layers, and the shapes of its inputs.
 * @typedef {object} Encoder
 * @property {string} name
 * @property {(layers: number) => Graph} graph
 * @property {Record<string, number[]>} shapes
 */

/** @type {readonly Encoder[]} */
export const encoders = [
  {
    name: 'minilm 1x128',
    graph: layers => bert(seed, { vocabulary: 100, positions: 512, width: 384, heads: 12, layers }),
    shapes: { ids: [1, 128], types: [1, 128] },
  },
  {
    name: 'vit-small 1x224',
    graph: layers => vit(seed, { patch: 16, tokens: 197, width: 384, heads: 6, layers, classes: 10 }),
    shapes: { image: [1, 3, 224, 224] },
  },
]

/** What the second of two layers adds. @param {Encoder} encoder */
export async function encoderTraffic({ graph, shapes }) {
  const [one, two] = await Promise.all(
    [1, 2].map(async layers => {
      const { graph: optimized } = await optimizedGraph(graph(layers), shapes, 'bf16')
      return prefillOf(compile(optimized, { backend: 'cuda', mode: 'bf16', bf16Support: 'matrix' }))
    }),
  )
  return { launches: two.launches - one.launches, bytes: two.bytes - one.bytes }
}

/** A line for each encoder. */
export async function encoderTable() {
  const lines = ['encoder           launches  bytes of activations']
  for (const encoder of encoders) {
    const { launches, bytes } = await encoderTraffic(encoder)
    lines.push([encoder.name.padEnd(16), `${launches}`.padStart(8), `${bytes}`.padStart(20)].join('  '))
  }
  return lines.join('\n')
}
