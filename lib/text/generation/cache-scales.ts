// cache-scales.ts: the scales of keys and values that are kept as bytes.
import { type Graph, type Node, sparkDomain, type ValueInfo } from '../../graph/graph.js'
import { pagedInputs } from '../../graph/shapes/paged-attention.js'
import { nextPrefix } from '../architectures/decoder.js'

const caches = [pagedInputs.keyCache, pagedInputs.valueCache] as const

const isPaged = ({ op, domain }: Node): boolean => op === 'PagedAttention' && domain === sparkDomain

const scalesOf = (cache: string): string => `${cache}.scales`

/**
 * The graph of a decoder whose caches are i8, with a scale for each token and head: for each cache `keys.i` an input `keys.i.scales`,
 * [blocks, block size, kv heads] f32, which the output `next_keys.i.scales` becomes; values the same.
 */
export function withCacheScales(graph: Graph): Graph {
  const isCache = new Set(graph.nodes.filter(isPaged).flatMap(({ inputs }) => caches.map(i => inputs[i]!)))
  const scales = (infos: readonly ValueInfo[], nameOf: (name: string) => string): ValueInfo[] =>
    infos.flatMap(({ name, type }) =>
      isCache.has(nameOf(name)) && type?.kind === 'tensor'
        ? [
            {
              name: scalesOf(name),
              type: { ...type, dtype: 'f32' as const, ...(type.shape && { shape: type.shape.slice(0, 3) }) },
            },
          ]
        : [],
    )
  return {
    ...graph,
    inputs: [...graph.inputs, ...scales(graph.inputs, name => name)],
    outputs: [...graph.outputs, ...scales(graph.outputs, name => name.slice(nextPrefix.length))],
    nodes: graph.nodes.map(node => (isPaged(node) ? withScales(node) : node)),
  }
}

function withScales(node: Node): Node {
  const names = Array.from({ length: pagedInputs.keyScales }, (_, i) => node.inputs[i] ?? '')
  const [y, ...next] = node.outputs
  return {
    ...node,
    inputs: [...names, ...caches.map(i => scalesOf(names[i]!))],
    outputs: [y!, ...next, ...next.map(scalesOf)],
  }
}
