// logits.ts: the end of an exported decoder, computed for the rows that are wanted only.
import { int } from '../../graph/attributes.js'
import { GraphBuilder } from '../../graph/builder.js'
import { Constant } from '../../graph/constant.js'
import { producersOf } from '../../graph/edit.js'
import { type Graph, makeNode, type Node, tensorType, type ValueInfo } from '../../graph/graph.js'

/** Operators that compute each element from one of theirs, whose other operands are constants. */
const elementwise = new Set(['Cast', 'Identity', 'Mul', 'Div', 'Add', 'Sub', 'Tanh', 'Clip', 'Where'])
const products = new Set(['MatMul', 'Gemm', 'MatMulNBits', 'FusedMatMul', 'MatMulInteger'])

/** The nodes behind the last state of the tokens, from the product that makes logits on. */
interface Head {
  /** What the product reads. */
  readonly state: string
  readonly nodes: ReadonlySet<Node>
}

/** What is asked about values. */
export interface ValueQueries {
  /** Whether a value depends on inputs. */
  isVarying(name: string): boolean
  /** The last size of a value, where it is known. */
  widthOf(name: string): number | undefined
}

/**
 * The graph with outputs `logits` [rows, vocabulary], and `hidden` [rows, hidden size] where it is found, of the rows that
 * the input `rows` names.
 * @param logits - [1, tokens, vocabulary]
 * @returns the graph, and the hidden size; 0 where there is no output `hidden`
 */
export function wantedRows(
  graph: Graph,
  logits: string,
  vocabularySize: number,
  queries: ValueQueries,
): { readonly graph: Graph; readonly hiddenSize: number } {
  const build = new GraphBuilder(graph, 'rows')
  const head = headOf(graph, logits, queries)
  const rowsOf = (value: string): string => build.add('Gather', [value, 'rows'], { axis: int(1) })
  const states = new Map<string, string>()
  for (const node of graph.nodes) {
    if (head?.nodes.has(node) && node.inputs.includes(head.state))
      states.set(head.state, states.get(head.state) ?? rowsOf(head.state))
    const inputs = head?.nodes.has(node) ? node.inputs.map(name => states.get(name) ?? name) : node.inputs
    build.append({ ...node, inputs })
  }
  const flat = (value: string, name: string, width: number): ValueInfo => {
    build.append(makeNode('Reshape', [value, build.constant(Constant.i64([-1, width]))], [name]))
    return { name, type: tensorType('f32', ['rows', width]) }
  }
  const outputs = [flat(head ? logits : rowsOf(logits), 'logits', vocabularySize)]
  const hiddenSize = (head && queries.widthOf(head.state)) ?? 0
  if (head && hiddenSize > 0) outputs.unshift(flat(states.get(head.state)!, 'hidden', hiddenSize))
  return { graph: { ...build.rebuild(), outputs: [...graph.outputs, ...outputs] }, hiddenSize }
}

/** The way from the logits back to the last product; undefined where it is another one. */
function headOf(graph: Graph, logits: string, { isVarying }: ValueQueries): Head | undefined {
  const producers = producersOf(graph)
  const nodes = new Set<Node>()
  for (let value = logits; ; ) {
    const node = producers.get(value)
    const varying = node?.inputs.filter(isVarying) ?? []
    if (!node || varying.length !== 1) return undefined
    nodes.add(node)
    if (products.has(node.op))
      return node.inputs[0] === varying[0] ? { state: varying[0]!, nodes } : undefined
    if (!elementwise.has(node.op)) return undefined
    value = varying[0]!
  }
}
