// context.ts: the context of an upgrade.
import type { ElementType } from '../../../core/dtype.js'
import { SparkError } from '../../../core/errors.js'
import { encode } from '../../../precision/casts.js'
import {
  defaultNumber,
  defaultString,
  describeNode,
  givenFloat,
  givenInt,
  givenString,
} from '../../attributes.js'
import { Constant } from '../../constant.js'
import type { Attributes, Node, SymbolicDimension } from '../../graph.js'
import type { NodeScope } from '../../node-builder.js'
import type { Fact, KnownValue } from '../../shape-inference.js'

/** Makes canonical nodes of an older one; its outputs keep their names. */
export type Upgrade = (node: Node, context: UpgradeContext) => readonly Node[]

/** An upgrade, for nodes of versions before `before`. */
export interface UpgradeEntry {
  readonly before: number
  readonly upgrade: Upgrade
}

/** Upgrades by operator. */
export type UpgradeTable = Readonly<Record<string, UpgradeEntry>>

/** The graph around a node that is upgraded. */
export class UpgradeContext {
  /** Version of the node's domain. */
  readonly opset: number
  /** Makes a name that no value has. */
  readonly fresh: (base: string) => string
  /** Adds an initializer to the graph. */
  readonly define: (name: string, value: Constant) => void
  /** The constant that a value is. */
  readonly constantOf: (name: string) => Constant | undefined
  readonly #facts: ReadonlyMap<string, Fact>

  constructor(
    opset: number,
    facts: ReadonlyMap<string, Fact>,
    actions: Pick<UpgradeContext, 'fresh' | 'define' | 'constantOf'>,
  ) {
    this.opset = opset
    this.#facts = facts
    this.fresh = actions.fresh
    this.define = actions.define
    this.constantOf = actions.constantOf
  }

  /** An integer attribute, or the default of the operator at this opset; so do the methods below. */
  int(node: Node, name: string): number {
    return givenInt(node, name) ?? defaultNumber(node, name, this.opset)
  }

  /** A float attribute. */
  float(node: Node, name: string): number {
    return givenFloat(node, name) ?? defaultNumber(node, name, this.opset)
  }

  /** A string attribute. */
  text(node: Node, name: string): string {
    return givenString(node, name) ?? defaultString(node, name, this.opset)
  }

  /** Element type of a value, where it is known to be a tensor. */
  dtype(name: string): ElementType | undefined {
    const type = this.#facts.get(name)?.type
    return type?.kind === 'tensor' ? type.dtype : undefined
  }

  /** Shape of a value, where it is known to be a tensor. */
  shape(name: string): readonly SymbolicDimension[] | undefined {
    const type = this.#facts.get(name)?.type
    return type?.kind === 'tensor' ? type.shape : undefined
  }

  /** The elements of a small value, as far as they are known. */
  known(name: string): KnownValue | undefined {
    return this.#facts.get(name)?.known
  }

  /** What builds the nodes that replace `node`: names start with that of its output. */
  scopeOf(node: Node): NodeScope {
    return { fresh: this.fresh, define: this.define, base: op => `${node.outputs[0]}_${op}` }
  }

  /** Names a new constant. */
  constant(base: string, value: Constant): string {
    const name = this.fresh(base)
    this.define(name, value)
    return name
  }

  /** Names a constant list of integers, or a single one. */
  integers(base: string, values: number | readonly number[]): string {
    return this.constant(base, Constant.i64(values))
  }

  /** Names a constant scalar of the element type of `like`, f32 where that is not known. */
  scalar(base: string, value: number, like: string): string {
    return this.constant(base, scalarConstant(value, this.dtype(like) ?? 'f32'))
  }

  /** Number of dimensions of a value that `node` reads. */
  rank(node: Node, name: string): number {
    const shape = this.shape(name)
    if (!shape) throw this.unsupported(node, `the number of dimensions of '${name}' must be known`)
    return shape.length
  }

  /** An error about a node that has no canonical form. */
  unsupported(node: Node, why: string): SparkError {
    return new SparkError(
      'ERR_UNSUPPORTED',
      `${describeNode(node)} of opset ${this.opset} cannot be brought to the current one: ${why}`,
    )
  }
}

/** A constant of one number; in an integer type what is left of it there. */
function scalarConstant(value: number, dtype: ElementType): Constant {
  const integer = Number.isFinite(value) ? Math.trunc(value) : 0
  switch (dtype) {
    case 'f64':
      return Constant.from('f64', [], new Float64Array([value]))
    case 'f16':
    case 'bf16':
      return Constant.from(dtype, [], encode(new Float32Array([value]), dtype))
    case 'i64':
      return Constant.from('i64', [], new BigInt64Array([BigInt(integer)]))
    case 'i32':
      return Constant.from('i32', [], new Int32Array([integer]))
    case 'u8':
      return Constant.from('u8', [], new Uint8Array([integer]))
    case 'i8':
      return Constant.from('i8', [], new Int8Array([integer]))
    default:
      return Constant.f32(value)
  }
}

/** Attributes without some of them. */
export function without(attributes: Attributes, ...names: string[]): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => !names.includes(name)))
}
