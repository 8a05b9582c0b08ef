// traced.ts: values of a graph that is written down while a TypeScript function computes with them.
import { argumentError, expectInteger, expectObject } from '../core/checks.js'
import type { ElementType } from '../core/dtype.js'
import type { Graph } from '../graph/graph.js'
import { Tensor } from '../memory/tensor.js'
import { GraphBuilder, type Operand } from '../model/graph-builder.js'

/** What operations of a {@link Traced} take besides it: another one, or a number for all elements. */
export type TracedOperand = Traced | number

/**
 * A value of a batch of scenarios, [scenarios, columns] f32, most often of one column. Its methods compute nothing: they add
 * operators to the graph that will run for all scenarios at once, so that a function of such values is called only once.
 * Operands of one column go with those of any number.
 * @example
 * // a controller: half of the error, at most 2
 * const steer = lateralError.multiply(0.5).clip(-2, 2)
 */
export class Traced {
  readonly #tracer: Tracer
  readonly #name: string

  /** @internal */
  constructor(tracer: Tracer, name: string) {
    this.#tracer = tracer
    this.#name = name
  }

  /** Its name in the graph. */
  get name(): string {
    return this.#name
  }

  /** @internal */
  get tracer(): Tracer {
    return this.#tracer
  }

  /** this + other */
  add(other: TracedOperand): Traced {
    return this.#with('Add', other)
  }

  /** this − other */
  subtract(other: TracedOperand): Traced {
    return this.#with('Sub', other)
  }

  /** this · other */
  multiply(other: TracedOperand): Traced {
    return this.#with('Mul', other)
  }

  /** this / other */
  divide(other: TracedOperand): Traced {
    return this.#with('Div', other)
  }

  /** this raised to the power of other */
  power(other: TracedOperand): Traced {
    return this.#with('Pow', other)
  }

  /** The smaller one. */
  minimum(other: TracedOperand): Traced {
    return this.#with('Min', other)
  }

  /** The larger one. */
  maximum(other: TracedOperand): Traced {
    return this.#with('Max', other)
  }

  /** At least `low` and at most `high`. */
  clip(low: number, high: number): Traced {
    return this.#tracer.add('Clip', [this, low, high])
  }

  /** −this */
  negate(): Traced {
    return this.#tracer.add('Neg', [this])
  }

  /** The absolute value. */
  abs(): Traced {
    return this.#tracer.add('Abs', [this])
  }

  /** −1, 0 or 1 */
  sign(): Traced {
    return this.#tracer.add('Sign', [this])
  }

  /** this² */
  square(): Traced {
    return this.multiply(this)
  }

  /** The square root. */
  sqrt(): Traced {
    return this.#tracer.add('Sqrt', [this])
  }

  /** e to the power of this. */
  exp(): Traced {
    return this.#tracer.add('Exp', [this])
  }

  /** The natural logarithm. */
  log(): Traced {
    return this.#tracer.add('Log', [this])
  }

  /** The sine of an angle in rad. */
  sin(): Traced {
    return this.#tracer.add('Sin', [this])
  }

  /** The cosine of an angle in rad. */
  cos(): Traced {
    return this.#tracer.add('Cos', [this])
  }

  /** The tangent of an angle in rad. */
  tan(): Traced {
    return this.#tracer.add('Tan', [this])
  }

  /** The angle in rad whose tangent it is. */
  atan(): Traced {
    return this.#tracer.add('Atan', [this])
  }

  /** The hyperbolic tangent. */
  tanh(): Traced {
    return this.#tracer.add('Tanh', [this])
  }

  /** 1 / (1 + e^−this) */
  sigmoid(): Traced {
    return this.#tracer.add('Sigmoid', [this])
  }

  /** 1 where this < other, else 0. */
  less(other: TracedOperand): Traced {
    return this.#compared('Less', other)
  }

  /** 1 where this ≤ other, else 0. */
  lessOrEqual(other: TracedOperand): Traced {
    return this.#compared('LessOrEqual', other)
  }

  /** 1 where this > other, else 0. */
  greater(other: TracedOperand): Traced {
    return this.#compared('Greater', other)
  }

  /** 1 where this ≥ other, else 0. */
  greaterOrEqual(other: TracedOperand): Traced {
    return this.#compared('GreaterOrEqual', other)
  }

  /** 1 where both are equal, else 0. */
  equal(other: TracedOperand): Traced {
    return this.#compared('Equal', other)
  }

  /** `yes` where this is not 0, else `no`. */
  choose(yes: TracedOperand, no: TracedOperand): Traced {
    return this.#tracer.add('Where', [this.#tracer.add('Cast', [this], { to: 9 }), yes, no])
  }

  /** The product with a matrix [columns, columns of the result]. */
  matmul(matrix: Tensor | readonly (readonly number[])[]): Traced {
    const weight = matrix instanceof Tensor ? matrix : Tensor.from(matrix as number[][])
    return this.#tracer.add('MatMul', [this, weight])
  }

  /** The sum over the columns, one column. */
  sum(): Traced {
    return this.#tracer.add('ReduceSum', [this, this.#tracer.integers(1)], { keepdims: 1 })
  }

  /** Columns from `start` to before `end`. */
  columns(start: number, end: number): Traced {
    expectInteger('start', start, 0)
    expectInteger('end', end, start + 1)
    const limits = [start, end, 1].map(value => this.#tracer.integers(value)) as [Tensor, Tensor, Tensor]
    return this.#tracer.add('Slice', [this, limits[0], limits[1], limits[2]])
  }

  /** Of each row the row before; the first one is its own. */
  rowBefore(): Traced {
    const [zero, one, last] = [0, 1, -1].map(value => this.#tracer.integers(value)) as [
      Tensor,
      Tensor,
      Tensor,
    ]
    const first = this.#tracer.add('Slice', [this, zero, one, zero])
    return this.#tracer.add('Concat', [first, this.#tracer.add('Slice', [this, zero, last, zero])], {
      axis: 0,
    })
  }

  /** Its columns and then those of others. */
  concat(...others: readonly Traced[]): Traced {
    return others.length === 0 ? this : this.#tracer.add('Concat', [this, ...others], { axis: 1 })
  }

  #with(op: string, other: TracedOperand): Traced {
    return this.#tracer.add(op, [this, expectOperand(op, other)])
  }

  #compared(op: string, other: TracedOperand): Traced {
    return this.#tracer.add('Cast', [this.#with(op, other)], { to: 1 })
  }
}

/** Writes a graph down while functions compute with {@link Traced} values. */
export class Tracer {
  readonly graph = new GraphBuilder({ name: 'step' })
  /** A column of ones. */
  ones: Traced | undefined

  /** A value with a name of this graph. */
  value(name: string): Traced {
    return new Traced(this, name)
  }

  /** An operator with one output; values of another graph are refused. */
  add(
    op: string,
    operands: readonly (TracedOperand | Tensor<ElementType>)[],
    attributes: Readonly<Record<string, number>> = {},
  ): Traced {
    const names = operands.map((operand): Operand => {
      if (!(operand instanceof Traced)) return operand
      if (operand.tracer === this) return operand.name
      throw argumentError('operand', 'a value of this simulation', `${operand.name} of another one`)
    })
    return this.value(this.graph.add(op, names, attributes))
  }

  /** A column of a number. */
  number(value: number): Traced {
    return this.ones!.multiply(value)
  }

  /** Integers as an operand. */
  integers(...values: readonly number[]): Tensor<ElementType> {
    return Tensor.from(BigInt64Array.from(values, BigInt)) as Tensor<ElementType>
  }

  /** The outputs of another graph, whose inputs are values of this one. */
  inline(graph: Graph, inputs: ReadonlyMap<string, Traced>): Map<string, Traced> {
    const names = new Map([...inputs].map(([name, value]) => [name, value.name]))
    const outputs = this.graph.inline(graph, names)
    return new Map([...outputs].map(([name, value]) => [name, this.value(value)]))
  }
}

/** The values by name that a function has given; numbers become values of `like`'s graph. */
export function expectTraced(what: string, values: unknown, tracer: Tracer): Map<string, Traced> {
  expectObject(what, 'an object of values by name', values)
  return new Map(
    Object.entries(values).map(([name, value]) => {
      if (value instanceof Traced || typeof value === 'number')
        return [name, typeof value === 'number' ? tracer.number(value) : value]
      throw argumentError(`${what}.${name}`, 'a value of the simulation or a number', value)
    }),
  )
}

function expectOperand(op: string, operand: TracedOperand): TracedOperand {
  if (operand instanceof Traced || (typeof operand === 'number' && Number.isFinite(operand))) return operand
  throw argumentError(`operand of ${op}`, 'a value of the simulation or a finite number', operand)
}
