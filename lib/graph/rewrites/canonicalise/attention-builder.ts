// attention-builder.ts: helpers that the upgrades of contributed attention operators share.
import { float, givenFloat, givenInt, int, ints } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { type Attributes, makeNode, type Node } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import type { UpgradeContext } from './context.js'

/** Collects the nodes that replace one. */
export class AttentionBuilder extends NodeBuilder {
  readonly #node: Node

  constructor(node: Node, context: UpgradeContext) {
    super(context.scopeOf(node))
    this.#node = node
  }

  /** Appends a Split along the last axis, or along the only one. */
  split(value: string, sizes: readonly number[]): string[] {
    const outputs = sizes.map((_, i) => this.fresh(`${value}_part${i}`))
    this.append(makeNode('Split', [value, this.integers(sizes)], outputs, { attributes: { axis: int(-1) } }))
    return outputs
  }

  integers(values: number | readonly number[]): string {
    return this.constant(Constant.i64(values), `${this.#node.outputs[0]}_sizes`)
  }

  /** Size of one dimension, as a scalar. */
  size(value: string, axis: number): string {
    return this.add('Gather', [this.add('Shape', [value]), this.integers(axis)])
  }
}

/** Refuses inputs and attributes that have no standard counterpart. */
export function refuse(
  node: Node,
  context: UpgradeContext,
  inputs: Record<number, string>,
  attributes: Record<string, number>,
): void {
  for (const [i, name] of Object.entries(inputs)) {
    if ((node.inputs[Number(i)] ?? '') !== '')
      throw context.unsupported(node, `its input ${name} has no standard form`)
  }
  for (const [name, usual] of Object.entries(attributes)) {
    const value = givenInt(node, name) ?? usual
    if (value !== usual) throw context.unsupported(node, `${name} ${value} has no standard form`)
  }
}

export function lastSize(node: Node, context: UpgradeContext, name: string): number {
  const size = context.shape(name)?.at(-1)
  if (typeof size !== 'number') throw context.unsupported(node, `the last size of '${name}' must be known`)
  return size
}

export function attentionAttributes(node: Node, queryHeads: number, heads: number): Attributes {
  const scale = givenFloat(node, 'scale') ?? 0
  const softcap = givenFloat(node, 'softcap') ?? 0
  return {
    q_num_heads: int(queryHeads),
    kv_num_heads: int(heads),
    ...(scale !== 0 && { scale: float(scale) }),
    ...(softcap !== 0 && { softcap: float(softcap) }),
  }
}

/** [B, T, N · H] as [B, N, T, H]. */
export function apart(build: AttentionBuilder, value: string, heads: number): string {
  const split = build.add('Reshape', [value, build.integers([0, 0, heads, -1])])
  return build.add('Transpose', [split], { perm: ints([0, 2, 1, 3]) })
}

/** [B, N, T, H], the first output of `node`, as [B, T, N · H]. */
export function joined(build: AttentionBuilder, y: string, node: Node): Node {
  const transposed = build.add('Transpose', [y], { perm: ints([0, 2, 1, 3]) })
  const inputs = [transposed, build.integers([0, 0, -1])]
  return makeNode('Reshape', inputs, node.outputs.slice(0, 1), { name: node.name })
}
