// powers.ts: powers that cost less as products.
import { makeNode, type Node } from '../../graph.js'
import type { Fusion, GraphView } from './pattern.js'

/** x² → x · x */
export function fuseSquare(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'Pow' || view.scalar(node.inputs[1]) !== 2) return undefined
  const [x = ''] = node.inputs
  return { nodes: [makeNode('Mul', [x, x], node.outputs, { name: node.name })], absorbed: [] }
}
