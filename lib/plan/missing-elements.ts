// missing-elements.ts: the error of an operator whose shape depends on data.
import { SparkError } from '../core/errors.js'
import { describeNode } from '../graph/attributes.js'
import type { Node } from '../graph/graph.js'

/** An operator needs elements at compile time that are only known during a run. */
export class MissingElements extends SparkError {
  /** The node that needs them. */
  readonly node: Node
  /** Name of the value. */
  readonly value: string

  /** Input `i` of `node` is not known. */
  constructor(node: Node, i: number) {
    const what = `input ${i} depends on data; only constants are supported here`
    super('ERR_UNSUPPORTED', `${describeNode(node)}: ${what}`)
    this.node = node
    this.value = node.inputs[i]!
  }
}
