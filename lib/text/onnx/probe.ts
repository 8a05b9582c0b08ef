// probe.ts: values that an exported decoder computes for an example: masks, positions, the attention of a layer.
import { SparkError } from '../../core/errors.js'
import { givenInt } from '../../graph/attributes.js'
import { GraphBuilder } from '../../graph/builder.js'
import { Constant } from '../../graph/constant.js'
import { readsOf } from '../../graph/edit.js'
import { type Graph, makeNode, type Node, tensorType, type ValueInfo } from '../../graph/graph.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'
import { type Fact, inferFacts, isStatic } from '../../graph/shape-inference.js'
import { Tensor } from '../../memory/tensor.js'
import type { Feed } from '../../model/feeds.js'
import { Model } from '../../model/model.js'
import type { AnyTensor } from '../../model/results.js'
import type { DecoderPorts } from './decoder-ports.js'

/** Lengths of an example. */
export interface ProbeSizes {
  /** Tokens whose keys and values are there already. */
  readonly past: number
  /** Tokens that are new. */
  readonly added: number
}

/** Values that are given in the place of what the graph computes, all f32, by name. */
export type GivenShapes = ReadonlyMap<string, readonly number[]>

/** Values by name. */
export type ProbedValues = ReadonlyMap<string, AnyTensor>

/**
 * Values of a canonical graph, computed for tokens of id 0 without padding. Weights are not read unless values depend on
 * them.
 * @throws SparkError ERR_UNSUPPORTED for a value that depends on more
 */
export async function probe(
  graph: Graph,
  ports: DecoderPorts,
  names: readonly string[],
  sizes: ProbeSizes,
): Promise<ProbedValues> {
  if (names.length === 0) return new Map()
  using opened = await Probe.open(graph, ports, names, sizes)
  return opened.run()
}

/** A part of a decoder that can be run. */
export class Probe implements Disposable {
  readonly #model: Model
  readonly #names: readonly string[]
  readonly #feeds: Readonly<Record<string, Feed>>
  readonly #given: GivenShapes

  private constructor(
    model: Model,
    names: readonly string[],
    feeds: Readonly<Record<string, Feed>>,
    given: GivenShapes,
  ) {
    this.#model = model
    this.#names = names
    this.#feeds = feeds
    this.#given = given
  }

  /**
   * Opens the part that computes values.
   * @param given - values that {@link Probe.run} gets
   */
  static async open(
    graph: Graph,
    ports: DecoderPorts,
    names: readonly string[],
    sizes: ProbeSizes,
    given: GivenShapes = new Map(),
  ): Promise<Probe> {
    const probed = probeGraph(withGiven(graph, given), ports, names, sizes)
    const own = probed.inputs.filter(({ name }) => !given.has(name))
    const feeds = Object.fromEntries(own.map(info => [info.name, feedOf(info, ports, sizes)]))
    const read = new Map([...given].filter(([name]) => probed.inputs.some(input => input.name === name)))
    return new Probe(await Model.fromGraph(probed, { backend: 'js', precision: 'fp32' }), names, feeds, read)
  }

  /** Computes the values. */
  async run(given: ReadonlyMap<string, Float32Array> = new Map()): Promise<ProbedValues> {
    const fed = [...this.#given].map(([name, shape]) => [name, Tensor.of(given.get(name)!, shape, 'f32')])
    const results = await this.#model.run<AnyTensor>({ ...this.#feeds, ...Object.fromEntries(fed) })
    return new Map(this.#names.map((name, i) => [name, results[`probe.${i}`]!]))
  }

  [Symbol.dispose](): void {
    this.#model.dispose()
  }
}

/** The graph with values as inputs. */
function withGiven(graph: Graph, given: GivenShapes): Graph {
  if (given.size === 0) return graph
  const nodes = graph.nodes.map(node =>
    node.outputs.some(name => given.has(name))
      ? { ...node, outputs: node.outputs.map(name => (given.has(name) ? '' : name)) }
      : node,
  )
  const inputs = [...given].map(([name, shape]) => ({ name, type: tensorType('f32', shape) }))
  return { ...graph, nodes, inputs: [...graph.inputs.filter(({ name }) => !given.has(name)), ...inputs] }
}

function probeGraph(graph: Graph, ports: DecoderPorts, names: readonly string[], sizes: ProbeSizes): Graph {
  const build = new GraphBuilder(graph, 'probe')
  const shapes = exampleShapes(ports, sizes)
  const known = graph.inputs.filter(({ name }) => Object.hasOwn(shapes, name)).map(({ name }) => name)
  const facts = inferFacts(graph, { shapes: Object.fromEntries(known.map(name => [name, shapes[name]!])) })
  for (const node of graph.nodes) build.append(withKnownShape(node, facts, build))
  const outputs = names.map((name, i) => {
    build.append(makeNode('Identity', [name], [`probe.${i}`]))
    return { name: `probe.${i}` }
  })
  const alive = removeDead({ ...build.rebuild(), outputs, updates: new Map(), values: new Map() })
  const reads = new Set(alive.nodes.flatMap(readsOf))
  return {
    ...alive,
    inputs: alive.inputs.filter(({ name }) => reads.has(name)),
    overridable: (alive.overridable ?? []).filter(({ name }) => alive.initializers.has(name)),
  }
}

/** Shapes of the inputs in an example, by name. */
function exampleShapes(ports: DecoderPorts, { past, added }: ProbeSizes): Record<string, number[]> {
  const shapes: Record<string, number[]> = { [ports.ids.name]: [1, added] }
  if (ports.mask) shapes[ports.mask.name] = [1, past + added]
  if (ports.positions) shapes[ports.positions.name] = [1, added]
  for (const { keys, values, kvHeads, headSize } of ports.layers)
    shapes[keys] = shapes[values] = [...(keys === values ? [2] : []), 1, kvHeads, past, headSize]
  return shapes
}

/** A node, where it gives a shape, as a constant: what has that shape may be the state of the whole model. */
function withKnownShape(node: Node, facts: ReadonlyMap<string, Fact>, build: GraphBuilder): Node {
  if (node.op !== 'Shape' || node.domain !== '') return node
  const type = facts.get(node.inputs[0]!)?.type
  const shape = isStatic(type) && type?.kind === 'tensor' ? (type.shape as readonly number[]) : undefined
  if (!shape) return node
  const part = shape.slice(givenInt(node, 'start') ?? 0, givenInt(node, 'end'))
  return makeNode('Identity', [build.constant(Constant.i64(part))], node.outputs)
}

function feedOf({ name, type }: ValueInfo, ports: DecoderPorts, { past, added }: ProbeSizes): Feed {
  const tensor = (values: readonly number[]): Feed => {
    const shape = [1, values.length]
    if (type?.kind === 'tensor' && type.dtype === 'i64')
      return Tensor.of(BigInt64Array.from(values, BigInt), shape, 'i64')
    return type?.kind === 'tensor' && type.dtype === 'i32'
      ? Tensor.of(Int32Array.from(values), shape, 'i32')
      : Tensor.of(Float32Array.from(values), shape, 'f32')
  }
  if (name === ports.ids.name) return tensor(Array(added).fill(0))
  if (name === ports.mask?.name) return tensor(Array(past + added).fill(1))
  if (name === ports.positions?.name) return tensor(Array.from({ length: added }, (_, i) => past + i))
  throw new SparkError('ERR_UNSUPPORTED', `a mask or positions depend on input '${name}'`)
}
