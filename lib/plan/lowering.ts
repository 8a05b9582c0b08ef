// lowering.ts: the context of a lowering: its node, its operands, and the steps that it adds.
import { type ElementType, exactType, hasNativeArray, isWideFloat } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import { areNumbers, fixSizes, hintOf, isWhole, type Size, sameSize } from '../core/size.js'
import type { SizeValues } from '../core/size-scope.js'
import { describeNode, floatOf, intOf, intsOf, stringOf, tensorOf } from '../graph/attributes.js'
import type { Constant, NumericType } from '../graph/constant.js'
import { type Attributes, makeGraph, makeNode, type Node } from '../graph/graph.js'
import { type Fact, ShapeInference } from '../graph/shape-inference.js'
import type { FloatCompute, KernelArgs, KernelOp } from '../kernels/kernels.js'
import type { KernelType } from '../kernels/precision-args.js'
import { type ComputeTarget, type Product, productCompute } from '../kernels/precision-policy.js'
import { currentValue } from './growing-state.js'
import { MissingElements } from './missing-elements.js'
import { Buffer, copyStep, type Operand, type Step, type Symbolic } from './program.js'
import {
  constantValue,
  type GrowingState,
  listValue,
  type TensorShape,
  tableValue,
  type Value,
} from './value.js'

/** What a {@link Lowering} asks of the compiler. */
export interface Scope {
  /** Values by name. */
  readonly values: Map<string, Value>
  /** Kernel calls so far. */
  readonly steps: Step[]
  /** The value that replaces a state after a run, by the name of the state. */
  readonly updates: ReadonlyMap<string, string>
  /** Whether the backend has kernels for numbers of 8 bits. */
  readonly bytes: boolean
  /** What products are computed on. */
  readonly target: ComputeTarget
  /** Turns a node into kernel calls; `outputs` are the types of its outputs. */
  readonly lower: (scope: Scope, node: Node, outputs: readonly Fact[]) => void
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

  /** Input `i`, or undefined when it was left out. */
  inputIfAny(i: number): Value | undefined {
    return this.has(i) ? this.input(i) : undefined
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
  shape(i: number): readonly Size[] {
    return this.input(i).shape
  }

  /** Whether constant weights should be packed for the kernels that read them. */
  get packs(): boolean {
    return this.#scope.target.backend === 'cpu'
  }

  /** Whether there are kernels for numbers of 8 bits; otherwise they are computed in f32. */
  get bytes(): boolean {
    return this.#scope.bytes
  }

  /** What products are computed on. */
  get target(): ComputeTarget {
    return this.#scope.target
  }

  /** The precision of a product. */
  computeOf(product: Product): FloatCompute {
    return productCompute(this.#scope.target, product)
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
  write(i = 0, facts?: Pick<Value, 'exactIn' | 'adapted'>): Operand {
    const type = this.output(i)
    const buffer = new Buffer(type.dtype, numel(type.shape), 'arena')
    this.#scope.values.set(this.node.outputs[i]!, { ...type, buffer, ...facts })
    return buffer.write()
  }

  /** Memory for output `i`, or for `count` numbers that only this node uses when nobody wants it. */
  resultOrScratch(i: number, count: Size, dtype: ElementType = 'f32'): Operand {
    return this.result(i) ?? this.scratch(count, dtype).write()
  }

  /** Output 0 is input `i` under another shape. */
  view(i: number): void {
    const { buffer, exactIn } = this.input(i)
    this.#scope.values.set(this.node.outputs[0]!, { ...this.output(), buffer, exactIn })
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
    this.#scope.steps.push(copyStep(this.kernelType(value.dtype), value.buffer, copy))
    return copy.update()
  }

  /** Memory that only this node uses. */
  scratch(count: Size, dtype: ElementType = 'f32'): Buffer {
    return new Buffer(dtype, count, 'arena')
  }

  /** One number as an operand. */
  scalar(value: Size, dtype: NumericType = 'f32'): Operand {
    return this.constantOf(dtype, [], [value]).buffer.read()
  }

  /**
   * A constant of integers or floats that JavaScript has arrays for; others are cast from f32. Elements that are sizes get
   * their values when a plan is bound.
   */
  constantOf(dtype: NumericType, shape: readonly number[], numbers: readonly Size[]): Value {
    if (hasNativeArray(dtype)) return listValue(dtype, shape, numbers)
    return this.cast(listValue('f32', shape, numbers), dtype)
  }

  /** A table of sizes, see {@link tableValue}. */
  table(dtype: NumericType, shape: readonly Size[], make: (values: SizeValues) => readonly number[]): Value {
    return tableValue(dtype, shape, make)
  }

  /**
   * The numbers of input `i`, which must be known at compile time; those that are sizes are fixed.
   * @throws MissingElements when they are not
   */
  numbers(i: number): readonly number[] {
    return fixSizes(this.sizes(i))
  }

  /**
   * The elements of input `i`, numbers or sizes, which must be known at compile time.
   * @throws MissingElements when they are not
   */
  sizes(i: number): readonly Size[] {
    const { known } = this.input(i)
    if (known) return known
    throw new MissingElements(this.node, i)
  }

  /** Integers for shapes and axes. */
  ints(numbers: readonly Size[]): Value {
    return this.constantOf('i64', [numbers.length], numbers)
  }

  /** A single number. */
  one(value: Size, dtype: NumericType = 'f32'): Value {
    return this.constantOf(dtype, [], [value])
  }

  /** `value` in another element type; floats become integers as a cast does. */
  cast(value: Value, dtype: NumericType): Value {
    if (value.dtype === dtype) return value
    const buffer = new Buffer(dtype, value.buffer.count, 'arena')
    const [srcDtype, dstDtype] = [this.kernelType(value.dtype), this.kernelType(dtype)]
    const [src, dst] = [value.buffer.read(), buffer.write()]
    this.step('cast', { srcDtype, dstDtype, count: buffer.count, saturate: true, src, dst })
    return { dtype, shape: value.shape, buffer, exactIn: exactType(value.dtype, dtype) }
  }

  /**
   * The outputs of another operator of ONNX applied to values.
   * @param outputs - how many
   */
  calls(
    op: string,
    inputs: readonly (Value | undefined)[],
    attributes: Attributes,
    outputs: number,
  ): Value[] {
    const inference = new ShapeInference({ trustFile: false, strict: true })
    const values = new Map<string, Value>()
    const names = inputs.map((value, i) => {
      if (!value) return ''
      values.set(`i${i}`, value)
      const { dtype, shape, known: elements } = value
      const known = elements && areNumbers(shape) ? { shape, elements } : undefined
      inference.facts.set(`i${i}`, { type: { kind: 'tensor', dtype, shape }, known })
      return `i${i}`
    })
    const results = Array.from({ length: outputs }, (_, i) => `o${i}`)
    const node = makeNode(op, names, results, { name: `${this.node.name}/${op}`, attributes })
    inference.inferNode(node, makeGraph({}))
    try {
      this.#scope.lower(
        { ...this.#scope, values, updates: new Map() },
        node,
        results.map(name => inference.facts.get(name) ?? {}),
      )
    } catch (error) {
      if (!(error instanceof MissingElements)) throw error
      // Its node and names exist only here: whoever fetches the elements knows those of this node.
      throw this.#missing(values.get(error.value)!)
    }
    return results.map(name => values.get(name)!)
  }

  #missing({ buffer }: Value): SparkError {
    const i = this.node.inputs.findIndex((_, at) => this.inputIfAny(at)?.buffer === buffer)
    return i < 0
      ? this.unsupported('it needs elements of a value in between, which depends on data')
      : new MissingElements(this.node, i)
  }

  /** The output of another operator of ONNX applied to values. */
  call(op: string, inputs: readonly (Value | undefined)[], attributes: Attributes = {}): Value {
    return this.calls(op, inputs, attributes, 1)[0]!
  }

  /**
   * A value under another shape.
   * @throws SparkError ERR_SHAPE when that has not as many elements
   */
  reshaped({ dtype, shape: from, buffer, known }: Value, shape: readonly Size[]): Value {
    if (shape.every(isWhole) && sameSize(numel(shape), numel(from))) return { dtype, shape, buffer, known }
    const message = `[${from.join(', ')}] cannot become [${shape.join(', ')}]`
    throw new SparkError('ERR_SHAPE', `${describeNode(this.node)}: ${message}`)
  }

  /** Output `o` is a growing state, after what was written behind it or into it. */
  giveState(growing: GrowingState, o = 0): void {
    growing.isExtended = true
    const name = this.node.outputs[o]!
    const { value, steps } = currentValue(growing, this.output(o), this.node.name || name)
    this.#scope.steps.push(...steps)
    this.#scope.values.set(name, value)
  }

  /** Output `o` is `value`, which has its elements in the order of the output. */
  give(value: Value, o = 0): void {
    if (!this.wants(o)) return
    const type = this.output(o)
    const { buffer, known, growing } = this.cast(value, type.dtype as NumericType)
    this.#scope.values.set(this.node.outputs[o]!, { ...type, buffer, known, growing })
  }

  /**
   * Applies a rule that knows f32 only: what has the type of input 0, or is another float, is cast to f32 for it, and
   * results are cast back.
   */
  inF32(rule: (ctx: Lowering) => void): void {
    const { dtype: own } = this.input(0)
    const converts = (dtype: ElementType): boolean => dtype !== 'f32' && (dtype === own || isWideFloat(dtype))
    const values = new Map<string, Value>()
    for (const [i, name] of this.node.inputs.entries()) {
      if (name === '') continue
      const value = this.input(i)
      values.set(name, converts(value.dtype) ? this.cast(value, 'f32') : value)
    }
    const types = this.#outputs.map(
      type => type && (converts(type.dtype) ? { ...type, dtype: 'f32' as const } : type),
    )
    rule(new Lowering(this.node, { ...this.#scope, values, updates: new Map() }, types))
    for (const [o, name] of this.node.outputs.entries()) if (values.has(name)) this.give(values.get(name)!, o)
  }

  /**
   * The integers of input `i`, which must be known at compile time.
   * @throws MissingElements when they are not, SparkError ERR_RANGE when one is no integer
   */
  integers(i: number): number[] {
    return fixSizes(this.wholes(i))
  }

  /**
   * The integers of input `i`, numbers or sizes, which must be known at compile time.
   * @throws MissingElements when they are not, SparkError ERR_RANGE when one is no integer
   */
  wholes(i: number): readonly Size[] {
    const sizes = this.sizes(i)
    const wrong = sizes.find(size => !Number.isInteger(hintOf(size)))
    if (wrong === undefined) return sizes
    throw new SparkError(
      'ERR_RANGE',
      `${describeNode(this.node)}: input ${i} holds ${wrong}, which is no integer`,
    )
  }

  /** The element type of input `i`, which kernels must know. */
  dtype(i = 0): KernelType {
    return this.kernelType(this.input(i).dtype)
  }

  /** An element type that kernels must know. */
  kernelType(dtype: ElementType): KernelType {
    if (dtype !== 'string' && dtype !== 'c64' && dtype !== 'c128') return dtype
    throw this.unsupported(`elements of ${dtype} are not supported`)
  }

  /** An integer attribute. */
  integer(name: string): number {
    return intOf(this.node, name)
  }

  /** A list of integers as an attribute. */
  integersOf(name: string): number[] | undefined {
    return intsOf(this.node, name)
  }

  /** A float attribute. */
  number(name: string): number {
    return floatOf(this.node, name)
  }

  /** A string attribute. */
  text(name: string): string {
    return stringOf(this.node, name)
  }

  /** A tensor attribute, which must be there. */
  tensor(name: string): Constant {
    const tensor = tensorOf(this.node, name)
    if (!tensor) throw this.unsupported(`attribute '${name}' is missing`)
    return tensor
  }

  /** Adds a kernel call. */
  step<Op extends KernelOp>(op: Op, args: Symbolic<KernelArgs[Op]>): void {
    const { name, outputs } = this.node
    this.#scope.steps.push({ op, args, node: name || outputs[0]! } as Step)
  }

  /** An error that names the node. */
  unsupported(what: string): SparkError {
    return new SparkError('ERR_UNSUPPORTED', `${describeNode(this.node)}: ${what}`)
  }
}
