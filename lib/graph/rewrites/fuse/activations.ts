// activations.ts: GELU, SiLU and the hard swish from what exporters write in their place.
import { float, floatOf, string } from '../../attributes.js'
import { makeNode, type Node } from '../../graph.js'
import { type Fusion, type GraphView, pairs } from './pattern.js'

/** x · sigmoid(x) → Swish */
export function fuseSwish(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'Mul') return undefined
  for (const [x, s] of pairs(node)) {
    const sigmoid = view.producer(s, 'Sigmoid')
    if (sigmoid?.inputs[0] === x)
      return { nodes: [makeNode('Swish', [x], node.outputs)], absorbed: [sigmoid] }
  }
  return undefined
}

/** min(max(x + 3, 0), 6) / 6 → HardSigmoid */
export function fuseHardSigmoid(node: Node, view: GraphView): Fusion | undefined {
  const clip = view.producer(sixthOf(node, view), 'Clip')
  const shifted = clip && shiftedOf(clip, view)
  if (!shifted) return undefined
  const nodes = [makeNode('HardSigmoid', [shifted.x], node.outputs, gate)]
  return { nodes, absorbed: [clip!, shifted.sum] }
}

/** x · HardSigmoid(x), x · min(max(x + 3, 0), 6) / 6 → HardSwish */
export function fuseHardSwish(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '') return undefined
  const made = (x: string, absorbed: readonly Node[]): Fusion => ({
    nodes: [makeNode('HardSwish', [x], node.outputs)],
    absorbed,
  })
  for (const [x, gated] of node.op === 'Mul' ? pairs(node) : []) {
    const sigmoid = view.producer(gated, 'HardSigmoid')
    const isGate = sigmoid && near(floatOf(sigmoid, 'alpha'), 1 / 6) && near(floatOf(sigmoid, 'beta'), 0.5)
    if (isGate && sigmoid.inputs[0] === x) return made(x, [sigmoid])
  }
  const product = view.producer(sixthOf(node, view), 'Mul')
  for (const [x, gated] of pairs(product)) {
    const clip = view.producer(gated, 'Clip')
    const shifted = clip && shiftedOf(clip, view)
    if (shifted?.x === x) return made(x, [product!, clip!, shifted.sum])
  }
  return undefined
}

const gate = { attributes: { alpha: float(1 / 6), beta: float(0.5) } }

const near = (a: number, b: number): boolean => Math.abs(a - b) < 1e-6

/** What a node divides by 6. */
function sixthOf(node: Node, view: GraphView): string | undefined {
  if (node.domain !== '') return undefined
  if (node.op === 'Div') return view.isScalar(node.inputs[1], 6) ? node.inputs[0] : undefined
  if (node.op !== 'Mul') return undefined
  return pairs(node).find(([, factor]) => view.isScalar(factor, 1 / 6))?.[0]
}

/** The x of min(max(x + 3, 0), 6). */
function shiftedOf(clip: Node, view: GraphView): { x: string; sum: Node } | undefined {
  const [value, least, most] = clip.inputs
  const sum = view.isScalar(least, 0) && view.isScalar(most, 6) ? view.producer(value, 'Add') : undefined
  const x = pairs(sum).find(([, constant]) => view.isScalar(constant, 3))?.[0]
  return sum && x !== undefined ? { x, sum } : undefined
}

/** x/2 · (1 + erf(x/√2)), x/2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) → Gelu, the factors in any order */
export function fuseGelu(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'Mul') return undefined
  for (const [left, right] of pairs(node)) {
    const product = view.producer(right, 'Mul')
    for (const [a, b] of pairs(product)) {
      for (const [x, half, gate] of [
        [left, a, b],
        [a, left, b],
        [a, b, left],
      ] as const) {
        const found = view.isScalar(half, 0.5) ? gateOf(gate, x, view) : undefined
        if (!found) continue
        const attributes = { approximate: string(found.approximate) }
        const gelu = makeNode('Gelu', [x], node.outputs, { attributes })
        return { nodes: [gelu], absorbed: [product!, ...found.nodes] }
      }
    }
  }
  return undefined
}

interface Gate {
  readonly approximate: 'none' | 'tanh'
  readonly nodes: readonly Node[]
}

/** 1 + erf(…) or 1 + tanh(…) of x. */
function gateOf(name: string, x: string, view: GraphView): Gate | undefined {
  const sum = view.producer(name, 'Add')
  for (const [one, term] of pairs(sum)) {
    const fn = view.isScalar(one, 1) ? view.producer(term, 'Erf', 'Tanh') : undefined
    const inner = fn && (fn.op === 'Erf' ? scaled(fn.inputs[0]!, x, view) : cubic(fn.inputs[0]!, x, view))
    if (inner) return { approximate: fn.op === 'Erf' ? 'none' : 'tanh', nodes: [sum!, fn, ...inner] }
  }
  return undefined
}

/** x / √2 */
function scaled(name: string, x: string, view: GraphView): Node[] | undefined {
  const node = view.producer(name, 'Div', 'Mul')
  if (node?.op === 'Div')
    return node.inputs[0] === x && view.isScalar(node.inputs[1], Math.SQRT2) ? [node] : undefined
  return pairs(node).some(([a, c]) => a === x && view.isScalar(c, Math.SQRT1_2)) ? [node!] : undefined
}

/** √(2/π) · (x + 0.044715 · x³) */
function cubic(name: string, x: string, view: GraphView): Node[] | undefined {
  const outer = view.producer(name, 'Mul')
  for (const [factor, value] of pairs(outer)) {
    const sum = view.isScalar(factor, Math.sqrt(2 / Math.PI)) ? view.producer(value, 'Add') : undefined
    for (const [a, b] of pairs(sum)) {
      const term = a === x ? view.producer(b, 'Mul') : undefined
      for (const [c, power] of pairs(term)) {
        const cube = view.isScalar(c, 0.044715) ? cubeOf(power, x, view) : undefined
        if (cube) return [outer!, sum!, term!, ...cube]
      }
    }
  }
  return undefined
}

/** x³ as a power or as two products. */
function cubeOf(name: string, x: string, view: GraphView): Node[] | undefined {
  const power = view.producer(name, 'Pow')
  if (power) return power.inputs[0] === x && view.isScalar(power.inputs[1], 3) ? [power] : undefined
  const product = view.producer(name, 'Mul')
  for (const [a, b] of pairs(product)) {
    const square = a === x ? view.producer(b, 'Mul') : undefined
    if (square?.inputs.every(input => input === x)) return [product!, square]
  }
  return undefined
}
