// exported-graph.js: a model with inputs and outputs as files that a peer in another language reads: the graph as JSON,
// numbers as safetensors.
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { writeSafetensors } from 'dgx-spark'
import { Constant } from '#lib/graph/constant.js'
import { removeDead } from '#lib/graph/rewrites/remove-dead.js'
import { inferFacts } from '#lib/graph/shape-inference.js'

/** @import { ElementType, SafetensorsTensor, Tensor } from 'dgx-spark' */
/** @import { Attribute, Graph, Node } from '#lib/graph/graph.js' */
/** @import { Fact } from '#lib/graph/shape-inference.js' */

/** @typedef {Record<string, Tensor<ElementType>>} Tensors */

const plainAttributes = new Set(['float', 'floats', 'int', 'ints', 'string', 'strings'])

/**
 * Writes `graph.json` (names of inputs and outputs; op, inputs, outputs and attributes of each node), `weights`, `feeds`
 * and `expected.safetensors`. Arithmetic with shapes, known from those of the inputs, has become constants.
 * @param {Graph} graph a canonical one @param {Tensors} feeds @param {Tensors} expected its outputs
 * @param {string} folder that is there
 * @throws {Error} naming a node with a graph or tensor as attribute, or of a domain that is not ONNX's own
 */
export async function exportGraph(graph, feeds, expected, folder) {
  const { inputs, outputs, nodes, initializers } = withoutShapeArithmetic(graph, feeds)
  const names = (/** @type {Graph['inputs']} */ values) => values.map(({ name }) => name)
  const text = JSON.stringify({
    inputs: names(inputs),
    outputs: names(outputs),
    nodes: nodes.map(describe),
  })
  await writeFile(path.join(folder, 'graph.json'), text)
  for (const [name, tensors] of Object.entries({ weights: initializers, feeds, expected })) {
    const entries = tensors instanceof Map ? tensors : Object.entries(tensors)
    const records = Array.from(entries, ([key, tensor]) => /** @type {const} */ ([key, recordOf(tensor)]))
    await writeSafetensors(path.join(folder, `${name}.safetensors`), records)
  }
}

/** @param {Graph} graph @param {Tensors} feeds @returns {Graph} */
function withoutShapeArithmetic(graph, feeds) {
  const shapes = Object.fromEntries(Object.entries(feeds).map(([name, { shape }]) => [name, shape]))
  const facts = inferFacts(graph, { shapes })
  const initializers = new Map(graph.initializers)
  const nodes = graph.nodes.filter(({ outputs: [name = '', ...others] }) => {
    const constant = others.length === 0 ? knownIntegers(facts.get(name)) : undefined
    if (constant) initializers.set(name, constant)
    return !constant
  })
  return removeDead({ ...graph, nodes, initializers })
}

/** @param {Fact | undefined} fact */
function knownIntegers(fact) {
  const { type, known } = fact ?? {}
  if (type?.kind !== 'tensor' || type.dtype !== 'i64' || !known) return undefined
  if (!known.elements.every(Number.isSafeInteger)) return undefined
  const elements = BigInt64Array.from(/** @type {number[]} */ (known.elements), BigInt)
  return Constant.from('i64', known.shape, elements)
}

/** @param {Node} node */
function describe({ op, domain, inputs, outputs, attributes }) {
  if (domain !== '') throw new Error(`${domain}::${op} is not an operator of ONNX`)
  const values = Object.entries(attributes).map(([name, attribute]) => [name, plain(op, name, attribute)])
  return { op, inputs, outputs, attributes: Object.fromEntries(values) }
}

/** @param {string} op @param {string} name @param {Attribute} attribute */
function plain(op, name, { type, value }) {
  if (!plainAttributes.has(type)) throw new Error(`${op}: attribute '${name}' is of type ${type}`)
  if (Array.isArray(value)) return value.map(item => (typeof item === 'string' ? item : Number(item)))
  return typeof value === 'bigint' ? Number(value) : value
}

/** @param {Tensor<ElementType> | Constant} tensor @returns {SafetensorsTensor} */
function recordOf({ dtype, shape, data }) {
  return {
    dtype: /** @type {SafetensorsTensor['dtype']} */ (dtype.toUpperCase()),
    shape,
    data: /** @type {SafetensorsTensor['data']} */ (data),
  }
}
