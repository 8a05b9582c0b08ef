// lowering.ts: what turns a node into kernel calls sees of the graph around it.
import { type DType, dtypeBytes, type ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { describeNode, floatOf, intOf, intsOf, stringOf, tensorOf } from '../../graph/attributes.js'
import type { Constant } from '../../graph/constant.js'
import type { Node } from '../../graph/graph.js'
import type { KernelArgs, KernelOp } from '../kernels.js'
import { Buffer, type Operand, type Step, type Symbolic } from './program.js'
import { volume } from './views.js'

/** Element type and sizes of a value. */
export interface TensorShape {
  /** Element type. */
  readonly dtype: ElementType
  /** Sizes of the dimensions. */
  readonly shape: readonly number[]
}

/** A value of the graph during compilation: row-major, contiguous elements in a buffer. */
export interface Value extends TensorShape {
  /** Where its elements are. */
  readonly buffer: Buffer
  /** Its elements where they are few and known at compile time. */
  readonly known?: readonly number[] | undefined
}

/** A constant as a value. */
export function constantValue(constant: Constant, known?: readonly number[]): Value {
  const { dtype, shape, count } = constant
  return { dtype, shape, buffer: new Buffer(dtype, count, 'constant', () => constant.data), known }
}

/** What a {@link Lowering} asks of the compiler. */
export interface Scope {
  /** Values by name. */
  readonly values: Map<string, Value>
  /** Kernel calls so far. */
  readonly steps: Step[]
  /** The value that replaces a state after a run, by the name of the state. */
  readonly updates: ReadonlyMap<string, string>
}

/** A node, its operands, and where its kernel calls go. */
export class Lowering {
  /** The node. */
  readonly node: Node
  readonly #scope: Scope
  readonly #outputs: readonly (TensorShape | undefined)[]

  /** Made by the compiler; `outputs` are the types that shape inference gives. */
  constructor(node: Node, scope: Scope, outputs: readonly (TensorShape | undefined)[]) {
    this.node = node
    this.#scope = scope
    this.#outputs = outputs
  }

  /** Whether input `i` is there. */
  has(i: number): boolean {
    return (this.node.inputs[i] ?? '') !== ''
  }

  /**
   * Input `i`.
   * @throws SparkError ERR_FORMAT when it was left out
   */
  input(i: number): Value {
    const value = this.has(i) ? this.#scope.values.get(this.node.inputs[i]!) : undefined
    if (!value) throw new SparkError('ERR_FORMAT', `${describeNode(this.node)}: input ${i} is missing`)
    return value
  }

  /** The elements of input `i`, to be read. */
  read(i: number): Operand {
    return this.input(i).buffer.read()
  }

  /** The elements of input `i`, or undefined when it was left out. */
  optional(i: number): Operand | undefined {
    return this.has(i) ? this.read(i) : undefined
  }

  /** Sizes of input `i`. */
  shape(i: number): readonly number[] {
    return this.input(i).shape
  }

  /** Whether somebody wants output `i`. */
  wants(i: number): boolean {
    return (this.node.outputs[i] ?? '') !== ''
  }

  /**
   * Type of output `i`.
   * @throws SparkError ERR_FORMAT when the node leaves it out
   */
  output(i = 0): TensorShape {
    const type = this.#outputs[i]
    if (type) return type
    throw new SparkError('ERR_FORMAT', `${describeNode(this.node)}: output ${i} is missing`)
  }

  /** Memory for output `i`, to be written; undefined when nobody wants it. */
  result(i: number): Operand | undefined {
    return this.wants(i) ? this.write(i) : undefined
  }

  /** Memory for output `i`, which somebody must want. */
  write(i = 0): Operand {
    const type = this.output(i)
    const buffer = new Buffer(type.dtype, volume(type.shape), 'arena')
    this.#scope.values.set(this.node.outputs[i]!, { ...type, buffer })
    return buffer.write()
  }

  /** Memory for output `i`, or for `count` numbers that only this node uses when nobody wants it. */
  resultOrScratch(i: number, count: number): Operand {
    return this.result(i) ?? this.scratch(count).write()
  }

  /** Output 0 is input `i` under another shape. */
  view(i: number): void {
    const { buffer } = this.input(i)
    this.#scope.values.set(this.node.outputs[0]!, { ...this.output(), buffer })
  }

  /** Output 0 is a constant. */
  constant(value: Constant): void {
    this.#scope.values.set(this.node.outputs[0]!, constantValue(value))
  }

  /**
   * Output `o` is the next value of the state that is input `i`, written over it. Where the graph does not say so, the
   * state is copied and stays as it is.
   */
  inPlace(i: number, o: number): Operand {
    const name = this.node.inputs[i]!
    const value = this.input(i)
    if (this.#scope.updates.get(name) === this.node.outputs[o]) {
      this.#scope.values.set(this.node.outputs[o]!, { ...value, known: undefined })
      return value.buffer.update()
    }
    const copy = this.write(o).buffer
    const [shape, strides] = [[copy.count], [1]]
    this.step('copyStrided', {
      dtype: 'f32',
      shape,
      srcOffset: 0,
      dstOffset: 0,
      srcStrides: strides,
      dstStrides: strides,
      src: value.buffer.read(),
      dst: copy.write(),
    })
    return copy.update()
  }

  /** Memory that only this node uses. */
  scratch(count: number, dtype: ElementType = 'f32'): Buffer {
    return new Buffer(dtype, count, 'arena')
  }

  /** One number as an operand. */
  scalar(value: number): Operand {
    return new Buffer('f32', 1, 'constant', () => Float32Array.of(value)).read()
  }

  /** The integers of input `i`, which must be known at compile time. */
  integers(i: number): number[] {
    const { known } = this.input(i)
    if (known?.every(Number.isInteger)) return [...known]
    throw this.unsupported(`input ${i} depends on data; only constants are supported here`)
  }

  /** The element type of input 0, where kernels can copy it. */
  copied(): DType {
    const { dtype } = this.input(0)
    if (dtype in dtypeBytes) return dtype as DType
    throw this.unsupported(`elements of ${dtype} cannot be copied yet`)
  }

  /** An integer attribute. */
  integer(name: string, fallback: number): number {
    return intOf(this.node, name, fallback)
  }

  /** A list of integers as an attribute. */
  integersOf(name: string): number[] | undefined {
    return intsOf(this.node, name)
  }

  /** A float attribute. */
  number(name: string, fallback: number): number {
    return floatOf(this.node, name, fallback)
  }

  /** A string attribute. */
  text(name: string, fallback: string): string {
    return stringOf(this.node, name, fallback)
  }

  /** A tensor attribute, which must be there. */
  tensor(name: string): Constant {
    const tensor = tensorOf(this.node, name)
    if (!tensor) throw this.unsupported(`attribute '${name}' is missing`)
    return tensor
  }

  /** Adds a kernel call. */
  step<Op extends KernelOp>(op: Op, args: Symbolic<KernelArgs[Op]>): void {
    this.#scope.steps.push({ op, args } as Step)
  }

  /** An error that names the node. */
  unsupported(what: string): SparkError {
    return new SparkError('ERR_UNSUPPORTED', `${describeNode(this.node)}: ${what}`)
  }
}
