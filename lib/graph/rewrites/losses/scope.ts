// scope.ts: a loss term's view of the graph.
import type { ElementType } from '../../../core/dtype.js'
import { SparkError } from '../../../core/errors.js'
import { int } from '../../attributes.js'
import type { GraphBuilder } from '../../builder.js'
import { valueNames } from '../../edit.js'
import { type Attributes, type Graph, type SymbolicDimension, tensorType } from '../../graph.js'
import { inferFacts } from '../../shape-inference.js'

/** Appends the nodes of one loss. */
export class LossScope {
  readonly #graph: Graph
  readonly #builder: GraphBuilder
  readonly #names: Set<string>
  readonly #teacher: ReadonlyMap<string, string>
  /** Outputs and the targets that they are compared with, element by element. */
  readonly pairs: (readonly [output: string, target: string])[] = []

  /** @param teacher - name in the graph of each value of the teacher, by its name in the teacher */
  constructor(graph: Graph, builder: GraphBuilder, teacher: ReadonlyMap<string, string>) {
    this.#graph = graph
    this.#builder = builder
    this.#names = valueNames(graph)
    this.#teacher = teacher
  }

  /**
   * A value of the model: `name`, or the first output.
   * @throws SparkError ERR_ARGUMENT when there is none of that name
   */
  output(name = this.#graph.outputs[0]?.name ?? ''): string {
    if (this.#names.has(name)) return name
    const outputs = this.#graph.outputs.map(output => output.name).join(', ')
    throw new SparkError(
      'ERR_ARGUMENT',
      `the loss reads '${name}', which the model has not; outputs: ${outputs}`,
    )
  }

  /** What `output` is compared with: the value `name`, the teacher's value, or a new input. */
  target(name: string | undefined, output: string, dtype: ElementType = 'f32'): string {
    const wanted = name ?? (this.#teacher.has(output) ? output : 'target')
    const taught = this.#teacher.get(wanted)
    if (taught) return taught
    if (!this.#names.has(wanted)) {
      this.#builder.input({ name: wanted, type: tensorType(dtype) })
      this.#names.add(wanted)
    }
    return wanted
  }

  /** Sizes of a value of the model, or undefined where shape inference cannot even say how many there are. */
  shape(name: string): readonly SymbolicDimension[] | undefined {
    const type = inferFacts(this.#graph).get(name)?.type
    return type?.kind === 'tensor' ? type.shape : undefined
  }

  /** Adds a node and returns the name of its output. */
  add(op: string, inputs: readonly string[], attributes: Attributes = {}): string {
    return this.#builder.add(op, inputs, attributes)
  }

  /** Name of a constant: one number, or a list of integers. */
  constant(value: number | readonly number[]): string {
    return this.#builder.constant(value)
  }

  /** value · factor */
  scaled(value: string, factor: number): string {
    return factor === 1 ? value : this.add('Mul', [value, this.constant(factor)])
  }

  /** The mean of all elements. */
  mean(value: string): string {
    return this.add('ReduceMean', [value], { keepdims: int(0) })
  }

  /** The sum of the elements of each sample, averaged over the samples: the first dimension counts those. */
  meanOfSums(value: string): string {
    const rows = this.add('Flatten', [value], { axis: int(1) })
    return this.mean(this.add('ReduceSum', [rows, this.constant([1])], { keepdims: int(0) }))
  }
}
