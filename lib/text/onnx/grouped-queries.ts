// grouped-queries.ts: GroupQueryAttention, which knows its past and rotates by itself, as PagedAttention.
import { SparkError } from '../../core/errors.js'
import { describeNode, givenFloat, givenInt, graphOf, int, intOf, tensorOf } from '../../graph/attributes.js'
import { GraphBuilder } from '../../graph/builder.js'
import { Constant } from '../../graph/constant.js'
import { producersOf } from '../../graph/edit.js'
import { type Graph, makeNode, type Node } from '../../graph/graph.js'
import { canonicalise } from '../../graph/rewrites/canonicalise.js'
import type { DecoderPorts } from './decoder-ports.js'
import { type MaskForm, maskForms } from './masks.js'
import { appendPagedAttention, type Heads } from './paged-attention.js'

const domain = 'com.microsoft'

/** Whether a node is a GroupQueryAttention. */
const isGroupedQueries = (node: Node): boolean => node.op === 'GroupQueryAttention' && node.domain === domain

/** Indices of the inputs. */
const at = {
  query: 0,
  key: 1,
  value: 2,
  pastKey: 3,
  cosines: 7,
  sines: 8,
  positions: 9,
  bias: 10,
  sinks: 11,
  keyScale: 12,
  queryNorm: 14,
  keyNorm: 15,
}

const input = (node: Node, index: number): string => node.inputs[index] ?? ''

/** What is added to the scores of a node; '' for nothing. */
const biasOf = (node: Node): string => input(node, at.bias)

/** A graph with PagedAttention. */
export interface GroupedGraph {
  readonly graph: Graph
  /** Tokens up to which the first of two tables of rotary embeddings holds; Infinity where there is one. */
  readonly shortLength: number
}

/**
 * Replaces the nodes of GroupQueryAttention in a graph of any opset.
 * @throws SparkError ERR_UNSUPPORTED naming a node that cannot be replaced
 */
export async function pageGroupedQueries(
  graph: Graph,
  ports: DecoderPorts,
  contextLength: number,
): Promise<GroupedGraph> {
  const biases = new Set(graph.nodes.filter(isGroupedQueries).map(biasOf))
  biases.delete('')
  const masks =
    biases.size > 0 ? await maskForms(canonicalise(graph), ports, [...biases], contextLength) : new Map()
  const pass = new GroupedQueries(graph, ports, masks)
  for (const node of graph.nodes) pass.visit(node)
  return pass.build()
}

/** A table of cosines or sines by position. */
interface Table {
  readonly name: string
  /** Rows of the part for short sequences; undefined where there is one part. */
  readonly shortRows?: number
}

class GroupedQueries {
  readonly #ports: DecoderPorts
  readonly #masks: ReadonlyMap<string, MaskForm>
  readonly #build: GraphBuilder
  readonly #producers: ReadonlyMap<string, Node>
  readonly #graph: Graph
  /** Rows of tables by the names of table and positions. */
  readonly #rows = new Map<string, string>()
  readonly #tables = new Map<string, Table>()
  #shortLength = Number.POSITIVE_INFINITY

  constructor(graph: Graph, ports: DecoderPorts, masks: ReadonlyMap<string, MaskForm>) {
    this.#graph = graph
    this.#ports = ports
    this.#masks = masks
    this.#build = new GraphBuilder(graph, 'paged')
    this.#producers = producersOf(graph)
  }

  build(): GroupedGraph {
    return { graph: this.#build.rebuild(), shortLength: this.#shortLength }
  }

  visit(node: Node): void {
    if (!isGroupedQueries(node)) {
      this.#build.append(node)
      return
    }
    this.#expectSupported(node)
    const layer = this.#ports.layers.findIndex(({ keys }) => keys === input(node, at.pastKey))
    if (layer < 0) throw unsupported(node, `its past '${input(node, at.pastKey)}' is no input of the model`)
    const { kvHeads, headSize } = this.#ports.layers[layer]!
    const [heads, own] = [intOf(node, 'num_heads'), intOf(node, 'kv_num_heads')]
    if (own !== kvHeads) throw unsupported(node, `it has ${own} heads of keys, but its past has ${kvHeads}`)
    const [query, key, value] = this.#operands(node, heads * headSize, kvHeads * headSize)
    const beside = (name: string): Heads => ({ name, layout: 'beside' })
    const rotates = intOf(node, 'do_rotary') !== 0
    const optional = (index: number): string => input(node, index)
    appendPagedAttention(this.#build, {
      ...{ layer, heads, kvHeads, headSize },
      ...{ query: beside(query), key: beside(key), value: beside(value), output: beside(node.outputs[0]!) },
      scale: givenFloat(node, 'scale') || 1 / Math.sqrt(headSize),
      softcap: givenFloat(node, 'softcap') ?? 0,
      window: this.#window(node),
      cosines: rotates ? this.#angles(node, at.cosines) : '',
      sines: rotates ? this.#angles(node, at.sines) : '',
      isInterleaved: intOf(node, 'rotary_interleaved') !== 0,
      sinks: this.#sinks(node, heads),
      queryNorm: optional(at.queryNorm),
      keyNorm: optional(at.keyNorm),
      epsilon: givenFloat(node, 'qk_norm_epsilon') ?? 1e-6,
    })
  }

  #expectSupported(node: Node): void {
    for (const index of [at.keyScale, at.keyScale + 1])
      if (input(node, index) !== '') throw unsupported(node, 'quantized keys and values are not supported')
    for (const name of ['qk_output', 'sliding_window_cache'])
      if ((givenInt(node, name) ?? 0) !== 0) throw unsupported(node, `${name} is not supported`)
    if (givenInt(node, 'causal') === 0) throw unsupported(node, 'attention to later tokens is not supported')
  }

  #window(node: Node): number {
    const own = intOf(node, 'local_window_size')
    const window = own > 0 ? own : Number.POSITIVE_INFINITY
    return Math.min(window, this.#masks.get(biasOf(node))?.window ?? Number.POSITIVE_INFINITY)
  }

  /** Queries, keys and values, which may be side by side in one input. */
  #operands(node: Node, width: number, kvWidth: number): [string, string, string] {
    const [query, key, value] = [input(node, at.query), input(node, at.key), input(node, at.value)]
    if (key !== '') return [query, key, value]
    const slice = (first: number, count: number): string => {
      const ends = [first, first + count, 2].map(number => this.#build.constant(Constant.i64([number])))
      return this.#build.add('Slice', [query, ...ends])
    }
    return [slice(0, width), slice(width, kvWidth), slice(width + kvWidth, kvWidth)]
  }

  #sinks(node: Node, heads: number): string {
    const given = input(node, at.sinks)
    if (given !== '' || intOf(node, 'smooth_softmax') <= 0) return given
    return this.#build.constant(Constant.f32(Array(heads).fill(0)))
  }

  /** Cosines or sines of the positions of the rows, [tokens, rotated / 2]. */
  #angles(node: Node, index: number): string {
    const table = this.#tableOf(node, input(node, index))
    const positions = input(node, at.positions)
    const key = `${table.name} ${positions}`
    const made = this.#rows.get(key) ?? this.#gather(table, positions)
    this.#rows.set(key, made)
    return made
  }

  #gather({ name, shortRows }: Table, positions: string): string {
    const g = this.#build
    const cast = { to: int(6) }
    let index = 'positions'
    if (positions !== '')
      index = g.add('Cast', [g.add('Reshape', [positions, g.constant(Constant.i64([-1]))])], cast)
    if (shortRows !== undefined) {
      const step = g.constant(Constant.from('i32', [], Int32Array.of(shortRows)))
      index = g.add('Add', [index, g.add('Mul', ['long', step])])
    }
    return g.add('Gather', [name, index], { axis: int(0) })
  }

  /** The table behind a name: a weight, or one of two that an If chooses by the length of the sequence. */
  #tableOf(node: Node, name: string): Table {
    const known = this.#tables.get(name)
    if (known) return known
    const producer = this.#producers.get(name)
    const table = producer?.op === 'If' ? this.#chosenTable(producer, name) : { name }
    if (name === '') throw unsupported(node, 'it rotates, but has no cosines and sines')
    this.#tables.set(name, table)
    return table
  }

  #chosenTable(choice: Node, name: string): Table {
    const index = choice.outputs.indexOf(name)
    const [long, short] = ['then_branch', 'else_branch'].map(branch =>
      this.#branchTable(choice, branch, index),
    )
    const condition = this.#producers.get(choice.inputs[0]!)
    const limit =
      this.#graph.initializers.get(condition?.inputs[1] ?? '') ?? this.#constantOf(condition?.inputs[1])
    if (condition?.op !== 'Greater' || limit?.count !== 1 || !long || !short)
      throw unsupported(choice, 'it chooses between tables in a way that is not known')
    const [rows, width] = short.shape
    if (short.shape.length !== 2 || long.shape.length !== 2 || long.shape[1] !== width)
      throw unsupported(choice, 'its tables have different widths')
    this.#shortLength = Math.min(this.#shortLength, limit.integers()[0]!)
    const names = [short, long].map(constant => this.#build.constant(constant))
    const joined = this.#build.fresh(`${name}/both`)
    this.#build.append(makeNode('Concat', names, [joined], { attributes: { axis: int(0) } }))
    return { name: joined, shortRows: rows! }
  }

  #branchTable(choice: Node, branch: string, index: number): Constant | undefined {
    const graph = graphOf(choice, branch)
    const name = graph?.outputs[index]?.name ?? ''
    const inner = graph?.nodes.find(node => node.outputs.includes(name))
    if (inner?.op === 'Identity') return this.#graph.initializers.get(inner.inputs[0]!)
    const constant = inner?.op === 'Constant' ? tensorOf(inner, 'value') : undefined
    return constant ?? graph?.initializers.get(name) ?? this.#graph.initializers.get(name)
  }

  #constantOf(name: string | undefined): Constant | undefined {
    const producer = this.#producers.get(name ?? '')
    return producer?.op === 'Constant' ? tensorOf(producer, 'value') : undefined
  }
}

function unsupported(node: Node, why: string): SparkError {
  return new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: ${why}`)
}
