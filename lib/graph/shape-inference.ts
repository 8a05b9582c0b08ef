// shape-inference.ts: types and shapes of all values, and the elements of the small ones that shapes are computed from.
// One row per operator in shapes/<family>.ts.
import { expectKnownOptions } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { atOnce, type Paced } from '../core/paced.js'
import { isSize, isWhole, lessThan } from '../core/size.js'
import type { Constant } from './constant.js'
import { mapSubgraphs } from './edit.js'
import type { Node, Subgraph, SymbolicDimension, ValueInfo, ValueType } from './graph.js'
import { keepFacts, keptFacts } from './kept-facts.js'
import { expectChoices } from './shapes/attribute-choices.js'
import { type Fact, type KnownValue, type Rule, ShapeContext, showShape } from './shapes/context.js'
import { mergeDimension } from './shapes/dimensions.js'
import { isFollowed, knownConstant } from './shapes/known-values.js'
import { expectOperandTypes } from './shapes/operand-types.js'
import type { OperatorRow } from './shapes/row.js'
import { rowOf } from './shapes/table.js'

export type { Fact, KnownValue } from './shapes/context.js'

/** Options of {@link inferFacts}. */
export interface InferenceOptions {
  /**
   * Sizes of inputs at run time, by name. They replace the sizes in the file. In inputs that are not among them the
   * name of a size becomes its first number here. Without them the sizes of the file hold.
   */
  readonly shapes?: Readonly<Record<string, readonly number[]>>
}

/**
 * Infers the types of all values of a canonical graph, subgraphs included.
 * @returns what is known of each value by its name; values of operators without a rule are missing. Without `shapes` they
 * are kept with the graph, and not inferred again
 * @throws SparkError ERR_SHAPE or ERR_DTYPE naming the node whose inputs do not fit together, ERR_ARGUMENT for a shape
 * of no input
 */
export function inferFacts(graph: Subgraph, options: InferenceOptions = {}): ReadonlyMap<string, Fact> {
  return atOnce(inferFactsPaced(graph, options))
}

/** {@link inferFacts} with pauses. */
export function* inferFactsPaced(
  graph: Subgraph,
  options: InferenceOptions = {},
): Paced<ReadonlyMap<string, Fact>> {
  expectKnownOptions('options', options, ['shapes'])
  const { shapes } = options
  const trustFile = shapes === undefined
  const isOwn = trustFile || Object.keys(shapes).length === 0
  const known = isOwn ? keptFacts(graph) : undefined
  if (known?.trustFile === trustFile) return known.facts
  const inference = new ShapeInference({ trustFile, strict: true })
  yield* inference.inferGraph(graph, bindInputs(graph.inputs, shapes))
  const { facts } = inference
  if (isOwn && !known) keepFacts(graph, { facts, trustFile })
  return facts
}

/**
 * The graph with the type of every value written into it, as far as it can be inferred.
 * @throws SparkError as {@link inferFacts}
 */
export function inferShapes<G extends Subgraph>(graph: G, options: InferenceOptions = {}): G {
  return annotate(graph, inferFacts(graph, options))
}

function annotate<G extends Subgraph>(graph: G, facts: ReadonlyMap<string, Fact>): G {
  const typed = (info: ValueInfo): ValueInfo => {
    const type = facts.get(info.name)?.type ?? info.type
    return type ? { name: info.name, type } : info
  }
  const values = new Map<string, ValueType>()
  const ends = new Set([...graph.inputs, ...graph.outputs].map(({ name }) => name))
  for (const name of graph.nodes.flatMap(node => node.outputs)) {
    const type = facts.get(name)?.type
    if (type && !ends.has(name)) values.set(name, type)
  }
  return {
    ...graph,
    inputs: graph.inputs.map(typed),
    outputs: graph.outputs.map(typed),
    nodes: graph.nodes.map(node => mapSubgraphs(node, inner => annotate(inner, facts))),
    values,
  }
}

/** Types of the inputs with the given shapes, and with names of sizes replaced where a shape says what they are. */
function bindInputs(inputs: readonly ValueInfo[], shapes: InferenceOptions['shapes']): Fact[] {
  if (!shapes) return inputs.map(({ type }) => ({ type }))
  const sizes = new Map<string, number>()
  for (const [name, shape] of Object.entries(shapes)) {
    const type = inputs.find(input => input.name === name)?.type
    if (type?.kind !== 'tensor') {
      const names = inputs.map(input => input.name).join(', ')
      throw new SparkError(
        'ERR_ARGUMENT',
        `shapes.${name}: there is no such tensor among the inputs ${names}`,
      )
    }
    if (type.shape && type.shape.length !== shape.length) {
      throw new SparkError(
        'ERR_SHAPE',
        `shapes.${name} is ${showShape(shape)}, but the input is ${showShape(type.shape)}`,
      )
    }
    for (const [i, dim] of (type.shape ?? []).entries())
      if (typeof dim === 'string' && !sizes.has(dim)) sizes.set(dim, shape[i]!)
  }
  const bind = (dim: SymbolicDimension): SymbolicDimension =>
    typeof dim === 'string' ? (sizes.get(dim) ?? dim) : dim
  return inputs.map(({ name, type }) => {
    if (type?.kind !== 'tensor') return { type }
    const shape = Object.hasOwn(shapes, name) ? shapes[name] : type.shape?.map(bind)
    return { type: shape ? { ...type, shape } : type }
  })
}

/**
 * Infers node by node, so that a rewrite can ask for shapes while it makes its nodes. Names of values must be unique
 * over the graph and its subgraphs.
 */
export class ShapeInference {
  /** What is known so far, by the name of the value. */
  readonly facts: Map<string, Fact>
  readonly #trustFile: boolean
  #strict: boolean
  /** How many graphs the node that is inferred lies in. */
  #depth = 0
  /** Whether the node that is inferred runs for certain. */
  #certain = true
  #fits = true

  /**
   * @param options - `trustFile`: sizes that cannot be inferred are taken from the types in the graph; `strict`: nodes
   * whose inputs do not fit together are an error, otherwise only their outputs stay unknown; `facts`: what is known
   */
  constructor(options: { trustFile: boolean; strict: boolean; facts?: ReadonlyMap<string, Fact> }) {
    this.facts = new Map(options.facts)
    this.#trustFile = options.trustFile
    this.#strict = options.strict
  }

  /** Whether the inputs of all nodes fit together, as far as they run for certain. */
  get fits(): boolean {
    return this.#fits
  }

  /** Infers a graph whose inputs are given, and returns what is known of its outputs. */
  *inferGraph(graph: Subgraph, inputs: readonly Fact[]): Paced<Fact[]> {
    yield* this.#defineInputs(graph, inputs)
    for (const node of graph.nodes) yield* this.inferNodePaced(node, graph)
    return graph.outputs.map(({ name }) => this.facts.get(name) ?? {})
  }

  *#inferSubgraph(graph: Subgraph, inputs: readonly Fact[], certain: boolean): Paced<Fact[]> {
    const outer = this.#certain
    this.#certain &&= certain
    this.#depth++
    try {
      return yield* this.inferGraph(graph, inputs)
    } finally {
      this.#certain = outer
      this.#depth--
    }
  }

  /** Records a constant. */
  defineConstant(name: string, constant: Constant): void {
    const type: ValueType = { kind: 'tensor', dtype: constant.dtype, shape: constant.shape }
    this.facts.set(name, { type, known: knownConstant(constant) })
  }

  *#defineInputs(graph: Subgraph, inputs: readonly Fact[]): Paced<void> {
    for (const [name, constant] of graph.initializers) {
      this.defineConstant(name, constant)
      yield
    }
    for (const [i, { name, type }] of graph.inputs.entries()) {
      const given = inputs[i] ?? {}
      this.facts.set(name, { ...given, type: given.type ?? type })
    }
  }

  /** Infers the outputs of a node; `graph` is where it stands. */
  inferNode(node: Node, graph: Subgraph): void {
    atOnce(this.inferNodePaced(node, graph))
  }

  /** {@link ShapeInference.inferNode} with pauses: a node may hold graphs. */
  *inferNodePaced(node: Node, graph: Subgraph): Paced<void> {
    yield
    const ctx = new ShapeContext(node, this.facts, this.#depth, (inner, inputs, certain = true) =>
      this.#inferSubgraph(inner, inputs, certain),
    )
    const row = rowOf(node)
    const types = row ? yield* this.#apply(row, ctx) : []
    const declared = declaredTypes(graph)
    const merged = node.outputs.map((name, i) => this.#merge(types[i], declared(name)))
    const known = row ? this.#values(row, ctx, merged) : []
    for (const [i, name] of node.outputs.entries()) {
      if (name !== '') this.facts.set(name, { type: merged[i], known: known[i] })
    }
  }

  *#apply(row: OperatorRow, ctx: ShapeContext): Paced<readonly (ValueType | undefined)[]> {
    try {
      if (row.choices) expectChoices(ctx.node, row.choices)
      expectOperandTypes(ctx, row)
      row.check?.(ctx)
      return (yield* typesBy(row.shape, ctx)).map(type => expectSizes(ctx, type))
    } catch (error) {
      this.#tolerate(error)
      return yield* this.#withoutSizes(row.shape, ctx)
    }
  }

  /** What the element types alone say. */
  *#withoutSizes(rule: Rule, ctx: ShapeContext): Paced<readonly (ValueType | undefined)[]> {
    try {
      return yield* typesBy(rule, new ShapeContext(ctx.node, typesOnly(ctx), ctx.depth, ctx.inferSubgraph))
    } catch (error) {
      if (!isMismatch(error)) throw error
      return []
    }
  }

  #values(
    { values }: OperatorRow,
    ctx: ShapeContext,
    types: readonly (ValueType | undefined)[],
  ): readonly (KnownValue | undefined)[] {
    try {
      const known = values?.(ctx, types) ?? []
      return known.map((value, i) => (value && isFollowed(value, types[i]) ? value : undefined))
    } catch (error) {
      this.#tolerate(error)
      return []
    }
  }

  /** @throws any error that is none of a mismatch, or that a strict inference does not tolerate */
  #tolerate(error: unknown): void {
    if ((this.#strict && this.#certain) || !isMismatch(error)) throw error
    if (this.#certain) this.#fits = false
  }

  #merge(inferred: ValueType | undefined, declared: ValueType | undefined): ValueType | undefined {
    if (!inferred) return this.#trustFile ? declared : declared && withoutSizes(declared)
    if (!this.#trustFile || inferred.kind !== 'tensor' || declared?.kind !== 'tensor' || !declared.shape)
      return inferred
    const { shape } = inferred
    if (!shape) return { ...inferred, shape: declared.shape }
    if (shape.length !== declared.shape.length) return inferred
    return { ...inferred, shape: shape.map((dim, i) => mergeDimension(dim, declared.shape![i]!)) }
  }
}

/** What a rule says, which may take its time over the graphs in its node. */
function* typesBy(rule: Rule, ctx: ShapeContext): Paced<readonly (ValueType | undefined)[]> {
  const types = rule(ctx)
  return 'next' in types ? yield* types : types
}

const outputTypes = new WeakMap<readonly ValueInfo[], ReadonlyMap<string, ValueType | undefined>>()

/** What a graph itself says about the types of its values. */
function declaredTypes({ values, outputs }: Subgraph): (name: string) => ValueType | undefined {
  let types = outputTypes.get(outputs)
  if (!types) {
    types = new Map(outputs.map(({ name, type }) => [name, type]))
    outputTypes.set(outputs, types)
  }
  const known = types
  return name => values.get(name) ?? known.get(name)
}

/** Sizes that come out of arithmetic may be impossible. */
function expectSizes(ctx: ShapeContext, type: ValueType | undefined): ValueType | undefined {
  const shape = type?.kind === 'tensor' ? type.shape : undefined
  if (shape?.some(dim => isSize(dim) && (!isWhole(dim) || lessThan(dim, 0)))) {
    throw ctx.fail(`its output would have the shape ${showShape(shape)}`)
  }
  return type
}

function isMismatch(error: unknown): boolean {
  return error instanceof SparkError && (error.code === 'ERR_SHAPE' || error.code === 'ERR_DTYPE')
}

/** The inputs of a node without their sizes. */
function typesOnly(ctx: ShapeContext): Map<string, Fact> {
  return new Map(
    ctx.node.inputs.map((name, i): [string, Fact] => {
      const type = ctx.type(i)
      return [name, { type: type?.kind === 'tensor' ? { kind: 'tensor', dtype: type.dtype } : type }]
    }),
  )
}

/** A type of which only the number of dimensions is kept. */
function withoutSizes(type: ValueType): ValueType {
  return type.kind === 'tensor' && type.shape ? { ...type, shape: type.shape.map(() => null) } : type
}

/** Whether all sizes of a type are known: numbers, or expressions of sizes. */
export function isStatic(type: ValueType | undefined): boolean {
  return type?.kind === 'tensor' && type.shape !== undefined && type.shape.every(isSize)
}

/** The integers a value holds, when they are all known. */
export function integersOf(known: KnownValue | undefined): number[] | undefined {
  return known?.elements.every(element => Number.isInteger(element))
    ? (known.elements as number[])
    : undefined
}
