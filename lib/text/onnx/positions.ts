// positions.ts: positions of tokens that an exported decoder computes from lengths become those of the rows.
import { int } from '../../graph/attributes.js'
import { GraphBuilder } from '../../graph/builder.js'
import { Constant } from '../../graph/constant.js'
import { onnxNumbers } from '../../graph/element-types.js'
import { type Graph, makeNode } from '../../graph/graph.js'
import { inferFacts } from '../../graph/shape-inference.js'
import type { AnyTensor } from '../../model/results.js'
import type { DecoderPorts } from './decoder-ports.js'
import { type ProbeSizes, probe } from './probe.js'

/** Two examples: what are positions in both are positions. */
const examples: readonly ProbeSizes[] = [
  { past: 3, added: 2 },
  { past: 6, added: 5 },
]

/**
 * Replaces integers that are the positions of the new tokens.
 * @param candidates - names of values that depend on lengths
 * @returns the graph, and whether anything was replaced
 */
export async function replacePositions(
  graph: Graph,
  ports: DecoderPorts,
  candidates: readonly string[],
): Promise<Graph | undefined> {
  const facts = inferFacts(graph)
  const integers = candidates.filter(name => {
    const type = facts.get(name)?.type
    return type?.kind === 'tensor' && (type.dtype === 'i64' || type.dtype === 'i32')
  })
  const found: ReadonlyMap<string, AnyTensor>[] = []
  for (const sizes of examples) found.push(await probe(graph, ports, integers, sizes))
  const positions = integers.filter(name =>
    examples.every((sizes, i) => arePositions(found[i]!.get(name)!, sizes)),
  )
  return positions.length > 0 ? withPositions(graph, positions, found[0]!) : undefined
}

function arePositions({ data, shape }: AnyTensor, { past, added }: ProbeSizes): boolean {
  const isColumn = shape.every(size => size === 1 || size === added)
  return isColumn && data.length === added && Array.from(data, Number).every((value, i) => value === past + i)
}

function withPositions(
  graph: Graph,
  names: readonly string[],
  values: ReadonlyMap<string, AnyTensor>,
): Graph {
  const build = new GraphBuilder(graph, 'positions')
  for (const node of graph.nodes) {
    const name = node.outputs.find(output => names.includes(output))
    if (name === undefined || node.outputs.length !== 1) {
      build.append(node)
      continue
    }
    const { shape, dtype } = values.get(name)!
    const sizes = build.constant(Constant.i64(shape.map(size => (size === 1 ? 1 : -1))))
    const shaped = build.add('Reshape', ['positions', sizes])
    const to = { to: int(onnxNumbers[dtype as 'i64' | 'i32']) }
    build.append(makeNode('Cast', [shaped], [name], { attributes: to }))
  }
  return build.rebuild()
}
