// work.js: bytes, arithmetic and launches of language models and graphs, counted as `dgx-spark place` and `inspect` count them.
import { optimizedGraph } from '#lib/cli/inspection.js'
import { decodeFlopsOf, prefillFlopsOf, readBytesOf } from '#lib/cluster/placement/costs.js'
import { sizesOfOne } from '#lib/cluster/placement/graph-costs.js'
import { costsOfTensors } from '#lib/cluster/placement/language-costs.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { inferFacts } from '#lib/graph/shape-inference.js'
import { graphStatistics } from '#lib/graph/statistics.js'
import { readModelConfig } from '#lib/text/architectures/model-config.js'
import { blockBytes, blockFormats } from '#lib/weights/blocks/formats.js'
import { configOf, matrices } from '../random-llama.js'

/** @import { Graph } from '#lib/graph/graph.js' */
/** @import { LayerCost, ModelCosts } from '#lib/cluster/placement/costs.js' */
/** @import { BlockFormat } from '#lib/weights/blocks/formats.js' */
/** @import { LlamaSizes } from '../random-llama.js' */
/** @import { Work } from './roofline.js' */

/** @typedef {BlockFormat | 'F8_E4M3'} WeightFormat */

/** Kernels of a decoder layer and of what is around the layers: as many as our plans launch. */
export const launchesPerLayer = 12
export const otherLaunches = 10

/** @param {WeightFormat} format @param {number} count */
const bytesOf = (format, count) =>
  format in blockFormats ? blockBytes(/** @type {BlockFormat} */ (format), count) : count

/**
 * Costs of a decoder all of whose matrices are in a format.
 * @param {LlamaSizes} sizes @param {WeightFormat} format @param {boolean} isTied whether the head is the table of the embedding
 */
export function languageCosts(sizes, format, isTied) {
  const config = readModelConfig(configOf(sizes), 'sizes')
  /** @type {[string, number, number][]} */
  const head = isTied ? [] : [['output.weight', sizes.vocabulary, sizes.hidden]]
  const tensors = [...matrices(sizes), ...head].map(([name, rows, cols]) => ({
    name,
    format,
    shape: [rows, cols],
    byteLength: bytesOf(format, rows * cols),
  }))
  return costsOfTensors('llama', config, tensors)
}

/** @param {ModelCosts} costs @param {(layer: LayerCost) => number} bytes @param {(layer: LayerCost) => Map<string, number>} flops @returns {Work} */
function sum({ layers }, bytes, flops) {
  /** @type {Record<string, number>} */
  const all = {}
  for (const layer of layers)
    for (const [dtype, count] of flops(layer)) all[dtype] = (all[dtype] ?? 0) + count
  const decoders = layers.length - 2
  return {
    bytes: layers.reduce((sum, layer) => sum + bytes(layer), 0),
    flops: all,
    launches: launchesPerLayer * decoders + otherLaunches,
  }
}

/** A token of each text. @param {ModelCosts} costs @param {number} context @param {number} [batch] */
export function decodeWork(costs, context, batch = 1) {
  const load = { context, batch, sequences: batch }
  return sum(
    costs,
    layer => readBytesOf(layer, load),
    layer => decodeFlopsOf(layer, load),
  )
}

/** A prompt that is read at once. @param {ModelCosts} costs @param {number} tokens */
export const prefillWork = (costs, tokens) =>
  sum(
    costs,
    layer => readBytesOf(layer, { context: tokens, batch: 1, sequences: 1 }),
    layer => prefillFlopsOf(layer, tokens),
  )

/** Operators that see elements in another shape. */
const views = new Set(['Identity', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze'])

/**
 * A run of a graph as our plans run it, whose products are in a dtype: weights are read, and values are written and read, once.
 * @param {Graph} source @param {'f32' | 'bf16'} dtype @returns {Promise<Work>}
 */
export async function graphWork(source, dtype) {
  const graph = canonicalise(source)
  const shapes = sizesOfOne(graph)
  const optimized = await optimizedGraph(graph, shapes, dtype === 'bf16' ? 'bf16' : 'fp32')
  const { flops, parameters, activationBytes, operators } = graphStatistics(
    optimized.running,
    inferFacts(optimized.graph),
  )
  const weightBytes = parameters * (dtype === 'bf16' ? 2 : 4)
  return {
    bytes: weightBytes + 2 * activationBytes,
    flops: { [dtype]: flops },
    launches: operators.reduce((sum, [name, count]) => (views.has(name) ? sum : sum + count), 0),
  }
}
