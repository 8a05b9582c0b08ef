// attention-builder.ts: what the upgrades of contributed attention operators have in common.

import { float, floatOf, int, intOf, ints } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { type Attributes, makeNode, type Node } from '../../graph.js'
import type { UpgradeContext } from './context.js'

/** Collects the nodes that replace one. */
export class Builder {
  readonly nodes: Node[] = []
  readonly #node: Node
  readonly #context: UpgradeContext

  constructor(node: Node, context: UpgradeContext) {
    this.#node = node
    this.#context = context
  }

  /** Appends a node and names its output. */
  add(op: string, inputs: readonly string[], attributes: Attributes = {}): string {
    const output = this.#context.fresh(`${this.#node.outputs[0]}_${op}`)
    this.nodes.push(makeNode(op, inputs, [output], { attributes }))
    return output
  }

  /** Appends a Split along the last axis, or along the only one. */
  split(value: string, sizes: readonly number[]): string[] {
    const outputs = sizes.map((_, i) => this.#context.fresh(`${value}_part${i}`))
    this.nodes.push(
      makeNode('Split', [value, this.integers(sizes)], outputs, { attributes: { axis: int(-1) } }),
    )
    return outputs
  }

  integers(values: number | readonly number[]): string {
    return this.#context.constant(`${this.#node.outputs[0]}_sizes`, Constant.i64(values))
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
    const value = intOf(node, name, usual)
    if (value !== usual) throw context.unsupported(node, `${name} ${value} has no standard form`)
  }
}

export function lastSize(node: Node, context: UpgradeContext, name: string): number {
  const size = context.shape(name)?.at(-1)
  if (typeof size !== 'number') throw context.unsupported(node, `the last size of '${name}' must be known`)
  return size
}

export function attentionAttributes(node: Node, queryHeads: number, heads: number): Attributes {
  const scale = floatOf(node, 'scale', 0)
  const softcap = floatOf(node, 'softcap', 0)
  return {
    q_num_heads: int(queryHeads),
    kv_num_heads: int(heads),
    ...(scale !== 0 && { scale: float(scale) }),
    ...(softcap !== 0 && { softcap: float(softcap) }),
  }
}

/** [B, T, N · H] as [B, N, T, H]. */
export function apart(build: Builder, value: string, heads: number): string {
  const split = build.add('Reshape', [value, build.integers([0, 0, heads, -1])])
  return build.add('Transpose', [split], { perm: ints([0, 2, 1, 3]) })
}

/** [B, N, T, H], the first output of `node`, as [B, T, N · H]. */
export function joined(build: Builder, y: string, node: Node): Node {
  const turned = build.add('Transpose', [y], { perm: ints([0, 2, 1, 3]) })
  const inputs = [turned, build.integers([0, 0, -1])]
  return makeNode('Reshape', inputs, node.outputs.slice(0, 1), { name: node.name })
}
