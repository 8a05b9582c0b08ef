// node-builder.ts: nodes and constants under names that nothing else has.
import { Constant } from './constant.js'
import { type Attributes, makeNode, type Node } from './graph.js'

/** Where a {@link NodeBuilder} takes names from and puts constants. */
export interface NodeScope {
  /** Makes a name that no value has; see `freshNames`. */
  readonly fresh: (base: string) => string
  /** Adds an initializer. */
  readonly define: (name: string, value: Constant) => void
  /** What the name of a node's output starts from, by the operator, or by 'constant'. Default: the operator. */
  readonly base?: (op: string) => string
}

/** Collects nodes. Contexts of rewrites hold one, and pass nodes of other forms to {@link NodeBuilder.append}. */
export class NodeBuilder {
  /** Nodes so far, in order. */
  readonly nodes: Node[]
  readonly #scope: NodeScope
  readonly #base: (op: string) => string

  /** @param nodes - where nodes are added */
  constructor(scope: NodeScope, nodes: Node[] = []) {
    this.#scope = scope
    this.#base = scope.base ?? (op => op)
    this.nodes = nodes
  }

  /** A name that nothing else has. */
  fresh(base: string): string {
    return this.#scope.fresh(base)
  }

  /** Adds a node of any form. */
  append(node: Node): void {
    this.nodes.push(node)
  }

  /** Adds a node with one output and returns the name of that. */
  add(op: string, inputs: readonly string[], attributes: Attributes = {}, domain = ''): string {
    return this.addMany(op, inputs, [true], attributes, domain)[0]!
  }

  /** Adds a node; outputs that are not wanted get the name ''. */
  addMany(
    op: string,
    inputs: readonly string[],
    wanted: readonly boolean[],
    attributes: Attributes = {},
    domain = '',
  ): string[] {
    const outputs = wanted.map(yes => (yes ? this.fresh(this.#base(op)) : ''))
    this.append(makeNode(op, inputs, outputs, { domain, attributes }))
    return outputs
  }

  /** Name of a constant: one f32 number, a list of integers, or any other. */
  constant(value: number | readonly number[] | Constant, base = this.#base('constant')): string {
    return this.initializer(base, constantOf(value))
  }

  /** Adds an initializer and returns its name, which is `base` unless that is taken. */
  initializer(base: string, value: Constant): string {
    const name = this.fresh(base)
    this.#scope.define(name, value)
    return name
  }
}

function constantOf(value: number | readonly number[] | Constant): Constant {
  if (value instanceof Constant) return value
  return typeof value === 'number' ? Constant.f32(value) : Constant.i64(value)
}
