// attention.ts: softmax(scale · q · kᵀ + mask) · v → one Attention node, from and to [B, T, H · D] where heads are split
// and joined around it.
import { fixSize, type Size, sameSize, sameSizes } from '../../../core/size.js'
import { float, int, intOf, ints, intsOf } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { makeNode, type Node } from '../../graph.js'
import { type Fusion, type GraphView, pairs, sameShape } from './pattern.js'

/** A value with a constant factor in front of it. */
interface Scaled {
  readonly name: string
  readonly factor: number
  readonly nodes: readonly Node[]
}

/** Takes a constant factor off a value. */
function unscaled(name: string, view: GraphView): Scaled {
  const node = view.producer(name, 'Mul', 'Div')
  if (node?.op === 'Div') {
    const divisor = view.scalar(node.inputs[1])
    if (divisor !== undefined) return { name: node.inputs[0]!, factor: 1 / divisor, nodes: [node] }
  } else {
    for (const [value, constant] of pairs(node)) {
      const factor = view.scalar(constant)
      if (factor !== undefined) return { name: value, factor, nodes: [node!] }
    }
  }
  return { name, factor: 1, nodes: [] }
}

interface Masked {
  readonly scores: string
  readonly mask: string
  /** What has the sizes of the mask. */
  readonly like: string
  /** What takes the place of the masking nodes. */
  readonly made: readonly Node[]
  readonly nodes: readonly Node[]
}

/** The least number of f32: whatever usual scores are added to it, it stays what it is. */
const lowest = -(2 - 2 ** -23) * 2 ** 127

/**
 * Takes a mask off the scores: a sum, or a choice between them and a very small number. A finite one makes all keys of a
 * row equal where it hides all of them, which a mask of booleans would not: it becomes a sum.
 */
function unmasked(name: string, view: GraphView): Masked[] {
  const sum = view.producer(name, 'Add')
  if (sum) return pairs(sum).map(([scores, mask]) => ({ scores, mask, like: mask, made: [], nodes: [sum] }))
  const choice = view.producer(name, 'Where')
  if (!choice) return [{ scores: name, mask: '', like: name, made: [], nodes: [] }]
  const [condition = '', yes = '', no = ''] = choice.inputs
  const [low, scores] = view.scalar(no) === undefined ? [view.scalar(yes), no] : [view.scalar(no), yes]
  if (low === undefined || low > -1e4) return []
  const masked = (mask: string, made: readonly Node[]): Masked[] => [
    { scores, mask, made, nodes: [choice], like: condition },
  ]
  if (low === Number.NEGATIVE_INFINITY && scores === yes) return masked(condition, [])
  const mask = view.fresh(`${condition}/mask`)
  if (low === Number.NEGATIVE_INFINITY) return masked(mask, [makeNode('Not', [condition], [mask])])
  const [zero, hidden] = [scalarOf(view, 0), scalarOf(view, lowest)]
  const sides = scores === yes ? [zero, hidden] : [hidden, zero]
  return masked(mask, [makeNode('Where', [condition, ...sides], [mask])])
}

/** A constant that a fusion adds. */
function scalarOf(view: GraphView, value: number): string {
  const name = view.fresh('mask/scalar')
  view.define(name, Constant.f32(value))
  return name
}

/** Keys [B, H, S, D] of a transposed value [B, H, D, S]. */
function keysOf(name: string, view: GraphView): { k: string; made: readonly Node[]; node: Node } | undefined {
  const node = view.producer(name, 'Transpose')
  const perm = node && intsOf(node, 'perm')?.join()
  if (!node || (perm !== '0,1,3,2' && perm !== '0,2,3,1')) return undefined
  if (perm === '0,1,3,2') return { k: node.inputs[0]!, made: [], node }
  const k = view.fresh(`${name}/keys`)
  return {
    k,
    made: [makeNode('Transpose', node.inputs, [k], { attributes: { perm: ints([0, 2, 1, 3]) } })],
    node,
  }
}

/** softmax(scale · q · kᵀ + mask) · v → Attention on [B, H, T, D] */
export function fuseAttention(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'MatMul' || view.shape(node.outputs[0])?.length !== 4)
    return undefined
  const softmax = view.producer(node.inputs[0], 'Softmax')
  const axis = softmax && intOf(softmax, 'axis')
  if (!softmax || (axis !== -1 && axis !== 3)) return undefined
  for (const masked of unmasked(softmax.inputs[0]!, view)) {
    const scores = unscaled(masked.scores, view)
    const product = view.producer(scores.name, 'MatMul')
    if (!product) continue
    const [q, k] = product.inputs.map(name => unscaled(name, view)) as [Scaled, Scaled]
    const keys = keysOf(k.name, view)
    // A mask that is shorter than the keys hides those behind its end.
    if (!sameEnd(view.shape(masked.like), view.shape(scores.name))) continue
    if (!keys || !sameBatch([q.name, node.inputs[1]!, product.outputs[0]!], view)) continue
    const attributes = { scale: float(scores.factor * q.factor * k.factor) }
    const inputs = [q.name, keys.k, node.inputs[1]!, ...(masked.mask === '' ? [] : [masked.mask])]
    const attention = makeNode('Attention', inputs, node.outputs, { attributes })
    return {
      nodes: [...masked.made, ...keys.made, attention],
      absorbed: [softmax, product, keys.node, ...masked.nodes, ...scores.nodes, ...q.nodes, ...k.nodes],
    }
  }
  return undefined
}

/** Whether the first two sizes of all values are known and equal: no head is repeated. */
function sameBatch(names: readonly string[], view: GraphView): boolean {
  const sizes = names.map(name => view.shape(name))
  const lead = sizes[0]?.slice(0, 2)
  return sizes.every(shape => shape?.length === 4 && sameShape(shape.slice(0, 2), lead))
}

/** Whether two shapes end in the same size; unknown ones do. */
function sameEnd(a: readonly Size[] | undefined, b: readonly Size[] | undefined): boolean {
  const [left, right] = [a?.at(-1), b?.at(-1)]
  return left === right || (left !== undefined && right !== undefined && sameSize(left, right))
}

/** The value [B, T, H · D] whose heads a node split, and the nodes that did it. */
function wholeOf(name: string | undefined, view: GraphView): { x: string; nodes: Node[] } | undefined {
  const transposed = view.producer(name, 'Transpose')
  const split = view.producer(transposed?.inputs[0], 'Reshape')
  if (!transposed || !split || intsOf(transposed, 'perm')?.join() !== '0,2,1,3') return undefined
  const [x, parts] = [view.shape(split.inputs[0]), view.shape(split.outputs[0])]
  const kept = x?.length === 3 && parts?.length === 4 && sameSizes(x.slice(0, 2), parts.slice(0, 2))
  return kept ? { x: split.inputs[0]!, nodes: [transposed, split] } : undefined
}

/** Split heads → Attention → joined heads becomes Attention on [B, T, H · D], which moves nothing. */
export function joinAttentionHeads(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'Reshape' || view.shape(node.outputs[0])?.length !== 3)
    return undefined
  const transposed = view.producer(node.inputs[0], 'Transpose')
  const attention = view.producer(transposed?.inputs[0], 'Attention')
  if (!transposed || !attention || intsOf(transposed, 'perm')?.join() !== '0,2,1,3') return undefined
  const parts = view.shape(transposed.outputs[0])
  const joined = view.shape(node.outputs[0])!
  const kept = parts && sameSizes(parts.slice(0, 2), joined.slice(0, 2))
  if (!kept || attention.outputs.length > 1) return undefined
  const [q, k, v] = attention.inputs.slice(0, 3).map(name => wholeOf(name, view))
  if (!q || !k || !v) return undefined
  const heads = int(fixSize(parts[2]!))
  const inputs = [q.x, k.x, v.x, ...attention.inputs.slice(3)]
  const attributes = { ...attention.attributes, q_num_heads: heads, kv_num_heads: heads }
  return {
    nodes: [makeNode('Attention', inputs, node.outputs, { attributes })],
    absorbed: [...new Set([transposed, attention, ...q.nodes, ...k.nodes, ...v.nodes])],
  }
}
