// norms.ts: layer and RMS normalization from their decompositions.
import { float, int, intOf } from '../../attributes.js'
import { makeNode, type Node } from '../../graph.js'
import { type Fusion, type GraphView, pairs } from './pattern.js'

interface Deviation {
  readonly epsilon: number
  readonly nodes: readonly Node[]
}

/** Whether a node is the mean over the last axis, which it keeps. */
function isRowMean(node: Node, view: GraphView): boolean {
  const rank = view.shape(node.inputs[0])?.length
  const axes = view.integers(node.inputs[1])
  const last = axes?.length === 1 && (axes[0] === -1 || axes[0] === (rank ?? 0) - 1)
  return last && intOf(node, 'keepdims') === 1
}

/** √(mean(d²) + epsilon) */
function deviationOf(name: string | undefined, d: string, view: GraphView): Deviation | undefined {
  const root = view.producer(name, 'Sqrt')
  const sum = view.producer(root?.inputs[0], 'Add')
  for (const [value, constant] of pairs(sum)) {
    const epsilon = view.scalar(constant)
    const mean = view.producer(value, 'ReduceMean')
    if (epsilon === undefined || !mean || !isRowMean(mean, view)) continue
    const square = view.producer(mean.inputs[0], 'Pow', 'Mul')
    const [a, b] = square?.inputs ?? []
    if (!square || a !== d || !(square.op === 'Mul' ? b === d : view.isScalar(b, 2))) continue
    return { epsilon, nodes: [root!, sum!, mean, square] }
  }
  return undefined
}

/** d / √(mean(d²) + epsilon), as a quotient or as a product with the inverse. */
function normalized(name: string, view: GraphView): (Deviation & { readonly d: string }) | undefined {
  const quotient = view.producer(name, 'Div')
  if (quotient) {
    const found = deviationOf(quotient.inputs[1], quotient.inputs[0]!, view)
    return found && { ...found, d: quotient.inputs[0]!, nodes: [quotient, ...found.nodes] }
  }
  const product = view.producer(name, 'Mul')
  for (const [d, inverse] of pairs(product)) {
    const node = view.producer(inverse, 'Reciprocal', 'Div')
    if (!node || (node.op === 'Div' && !view.isScalar(node.inputs[0], 1))) continue
    const found = deviationOf(node.inputs.at(-1), d, view)
    if (found) return { ...found, d, nodes: [product!, node, ...found.nodes] }
  }
  return undefined
}

/** Whether a value is a constant with an element for each of the last axis of `x`. */
function fits(name: string, x: string | undefined, view: GraphView): boolean {
  const [shape, last] = [view.shape(name), view.shape(x)?.at(-1)]
  return view.isConstant(name) && last !== undefined && shape?.length === 1 && shape[0] === last
}

/** (x − mean) / deviation · gamma → LayerNormalization; x / √(mean(x²) + epsilon) · gamma → RMSNormalization */
export function fuseNormalization(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'Mul') return undefined
  for (const [value, gamma] of pairs(node)) {
    const found = fits(gamma, value, view) ? normalized(value, view) : undefined
    if (!found) continue
    const attributes = { axis: int(-1), epsilon: float(found.epsilon) }
    const centred = view.producer(found.d, 'Sub')
    const mean = view.producer(centred?.inputs[1], 'ReduceMean')
    if (centred && mean && mean.inputs[0] === centred.inputs[0] && isRowMean(mean, view)) {
      const inputs = [centred.inputs[0]!, gamma]
      const layer = makeNode('LayerNormalization', inputs, node.outputs, { attributes })
      return { nodes: [layer], absorbed: [...found.nodes, centred, mean] }
    }
    const rms = makeNode('RMSNormalization', [found.d, gamma], node.outputs, { attributes })
    return { nodes: [rms], absorbed: found.nodes }
  }
  return undefined
}

/** LayerNormalization + beta */
export function fuseNormalizationBias(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'Add') return undefined
  for (const [value, beta] of pairs(node)) {
    const norm = view.producer(value, 'LayerNormalization')
    if (!norm || norm.outputs.length > 1 || (norm.inputs[2] ?? '') !== '' || !fits(beta, value, view))
      continue
    const inputs = [norm.inputs[0]!, norm.inputs[1]!, beta]
    return { nodes: [{ ...norm, inputs, outputs: node.outputs }], absorbed: [norm] }
  }
  return undefined
}
