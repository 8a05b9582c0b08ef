// nets.js: the nets and sizes of nets.json, which stay as they are: rows are added, none is changed or removed.
import { readFileSync } from 'node:fs'
import { randomGenerator } from '../test/fixtures/values/random.js'
import { written } from './model-sources.js'
import { cnn, mlp } from './nets/classifiers.js'
import { decoder } from './nets/decoder.js'
import { detector } from './nets/detector.js'
import { bert, vit } from './nets/encoders.js'
import { inceptionV2, inceptionV4 } from './nets/inception.js'
import { mobileNetV2, mobileNetV3, shuffleNet, ssd } from './nets/mobile.js'
import { recogniser } from './nets/recogniser.js'
import { convNext, denseNet, regNet, uNet } from './nets/residual.js'
import { speechEncoder } from './nets/speech-encoder.js'

/** @import { Graph } from 'dgx-spark' */
/** @import { Input, Size } from './feeds.js' */
/** @import { ModelFile } from './model-sources.js' */

/** @typedef {{ from: number, step: number, count: number }} Range */

/**
 * @typedef {object} Nets what nets.json holds
 * @property {Record<string, { builder: string, seed: number, sizes: object }>} nets
 * @property {{ row: string, net: string, first: Size, sizes: Record<string, number[]> }[]} changing a run of the first
 *   size, then one of each other
 * @property {{ count: number, seed: number, nets: Record<string, Record<string, Range>> }} many
 * @property {{ file: string, first: number, steps: number }} growing a decoder of the shared data and its first token
 * @property {{ net: string, size: Size }[]} zoo nets at one size each, whose symbols the size names
 * @property {{ models: string[], heavy: string[] }} start names of modelSources; heavy: over 50 MB of weights
 */

/** @type {Nets} */
export const { nets, changing, many, growing, zoo, start } = JSON.parse(
  readFileSync(new URL('nets.json', import.meta.url), 'utf8'),
)

const builders = /** @type {Record<string, (seed: number, sizes: any) => Graph>} */ ({
  recogniser,
  detector,
  speechEncoder,
  decoder,
  mlp,
  cnn,
  mobileNetV2,
  mobileNetV3,
  shuffleNet,
  ssd,
  inceptionV2,
  inceptionV4,
  regNet,
  denseNet,
  convNext,
  uNet,
  vit,
  bert,
})

/** The graph of a net. @param {string} name */
export function buildNet(name) {
  const { builder = '', seed = 0, sizes } = nets[name] ?? {}
  const build = builders[builder]
  if (!build)
    throw new Error(`nets.json has no net '${name}' that is built by one of ${Object.keys(builders)}`)
  return build(seed, sizes)
}

/** A net in a file, and its inputs. @param {string} name @returns {Promise<ModelFile & { graph: Graph, inputs: Input[] }>} */
export async function openNet(name) {
  const graph = buildNet(name)
  const inputs = graph.inputs.map(({ name, type }) => {
    if (type?.kind !== 'tensor' || !type.shape) throw new Error(`input ${name} has no shape`)
    return {
      name,
      dtype: type.dtype,
      shape: type.shape.map(dim => (typeof dim === 'number' ? dim : `${dim}`)),
    }
  })
  return { graph, inputs, ...(await written(async () => graph)) }
}

/** The sizes of a list per symbol. @param {Record<string, number[]>} lists of one length @returns {Size[]} */
export function sizesOf(lists) {
  const [first = []] = Object.values(lists)
  return first.map((_, i) =>
    Object.fromEntries(Object.entries(lists).map(([symbol, list]) => [symbol, list[i] ?? 0])),
  )
}

/** The many different sizes of a net, in random order. @param {string} net @returns {Size[]} */
export function manySizes(net) {
  const ranges = Object.entries(many.nets[net] ?? {})
  const all = ranges.reduce(
    (sizes, [symbol, { from, step, count }]) =>
      sizes.flatMap(size =>
        Array.from({ length: count }, (_, i) => ({ ...size, [symbol]: from + i * step })),
      ),
    /** @type {Size[]} */ ([{}]),
  )
  return shuffled(all, many.seed).slice(0, many.count)
}

/** @template T @param {readonly T[]} items @param {number} seed */
function shuffled(items, seed) {
  const random = randomGenerator(seed)
  return items
    .map(item => ({ item, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ item }) => item)
}
