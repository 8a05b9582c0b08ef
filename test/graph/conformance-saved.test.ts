// Every conformance case that ONNX Runtime passes still passes after it was canonicalised and saved at the lowest
// opset; and graphs with random faults end in a SparkError.
import t from 'tap'
import { SparkError } from '#lib/core/errors.js'
import { Constant } from '#lib/graph/constant.js'
import type { Attribute, Dimension, Graph, Node } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { inferShapes } from '#lib/graph/shape-inference.js'
import { parseOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { type ConformanceCase, conformanceCases, noModels } from '../fixtures/models/onnx-models.js'
import { hasRuntimeType, runOnnxRuntime } from '../fixtures/onnx-runtime.js'
import { randomGenerator } from '../fixtures/values/random.js'

/** What is wrong with the outputs of a case after saving; undefined when nothing is. */
async function problem({ name, model, inputs, outputs }: ConformanceCase): Promise<string | undefined> {
  const graph = parseOnnx(model, name)
  const feeds = new Map(graph.inputs.map(({ name }, i) => [name, inputs[i]!]))
  const results = await runOnnxRuntime(serializeOnnx(canonicalise(graph)), feeds, true)
  for (const [i, want] of outputs.entries()) {
    const output = results[graph.outputs[i]!.name]!
    if (String(output.dims) !== String(want.shape)) return `shape ${output.dims} instead of ${want.shape}`
    // Bits of f16 are not numbers to compare, and strings have no distance.
    if (want.dtype === 'string' || want.dtype === 'f16' || want.dtype === 'bf16') continue
    const actual = Array.from(output.data as Float32Array, Number)
    const wrong = Array.from(want.data as Float32Array, Number).findIndex(
      (value, at) => Math.abs(actual[at]! - value) > 1e-3 * Math.abs(value) + 1e-4,
    )
    if (wrong >= 0) return `element ${wrong} is ${actual[wrong]} instead of ${want.data[wrong]}`
  }
  return undefined
}

t.test('saved cases run as before', { skip: noModels }, async t => {
  const failures: string[] = []
  let count = 0
  for (const it of conformanceCases()) {
    if (it.onnxruntime !== 'pass' || !it.inputs.every(hasRuntimeType)) continue
    count++
    const why = await problem(it).catch((error: Error) => error.message)
    if (why) failures.push(`${it.name}: ${why}`)
  }
  t.comment(`${count} cases`)
  t.same(failures, [])
  t.ok(count > 880)
})

const random = randomGenerator(31)
const below = (limit: number): number => Math.floor(random() * limit)
const pick = <T>(list: readonly T[]): T => list[below(list.length)]!

const integers = [0, -1, 1, 2, 3, 7, -7, 100, 2 ** 31, 2 ** 53, -(2 ** 40), 2n ** 63n - 1n, -(2n ** 63n)]
const dimensions: readonly Dimension[] = [0, 1, 2, 3, 5, 17, 'n', null, 2 ** 31, 2 ** 40]

function oddAttribute(): Attribute {
  switch (below(4)) {
    case 0:
      return { type: 'int', value: pick(integers) }
    case 1:
      return { type: 'ints', value: Array.from({ length: below(6) }, () => pick(integers)) }
    case 2:
      return { type: 'float', value: pick([0, -1, Number.NaN, Infinity, 1e30]) }
    default:
      return { type: 'string', value: pick(['', 'SAME_UPPER', 'ij,jk->ik', 'linear']) }
  }
}

const attributeNames = [
  'axis',
  'axes',
  'perm',
  'kernel_shape',
  'pads',
  'k',
  'split',
  'strides',
  'group',
  'to',
]

/** A node with a fault: another operator, other inputs, or another attribute. */
function broken(node: Node, graph: Graph, operators: readonly string[]): Node {
  switch (below(5)) {
    case 0:
      return { ...node, op: pick(operators) }
    case 1:
      return { ...node, inputs: node.inputs.slice(0, below(node.inputs.length + 1)) }
    case 2:
      return {
        ...node,
        inputs: node.inputs.map(name => (below(2) ? name : pick(['', ...graph.inputs.map(it => it.name)]))),
      }
    case 3:
      return { ...node, domain: 'com.microsoft', op: pick(operators) }
    default: {
      const name = pick([...Object.keys(node.attributes), ...attributeNames])
      return { ...node, attributes: { ...node.attributes, [name]: oddAttribute() } }
    }
  }
}

const contributed = [
  'FusedMatMul',
  'FusedConv',
  'FusedGemm',
  'Attention',
  'MultiHeadAttention',
  'GroupQueryAttention',
  'MatMulNBits',
  'QLinearConcat',
  'SkipLayerNormalization',
]

function brokenGraph(graph: Graph, operators: readonly string[]): Graph {
  const nodes = graph.nodes.map(node =>
    below(graph.nodes.length) < 2 ? broken(node, graph, operators) : node,
  )
  const inputs = graph.inputs.map(({ name, type }) => {
    if (below(2) || type?.kind !== 'tensor') return { name, ...(type && { type }) }
    return { name, type: { ...type, shape: Array.from({ length: below(6) }, () => pick(dimensions)) } }
  })
  const fixed = below(2) ? inputs[below(inputs.length)] : undefined
  const initializers = new Map(graph.initializers)
  if (fixed)
    initializers.set(
      fixed.name,
      Constant.i64(Array.from({ length: below(5) }, () => pick([0, 1, 3, -1, 2 ** 40]))),
    )
  const opsets = below(2) ? graph.opsets : new Map([['', 1 + below(28)]])
  return { ...graph, nodes, inputs: inputs.filter(input => input !== fixed), initializers, opsets }
}

t.test('graphs with faults end in a SparkError', { skip: noModels }, async t => {
  const graphs = conformanceCases().map(({ model, name }) => parseOnnx(model, name))
  const operators = [...new Set(graphs.flatMap(graph => graph.nodes.map(node => node.op))), ...contributed]
  const counts = new Map<string, number>()
  for (let i = 0; i < 8000; i++) {
    let result = 'fine'
    try {
      serializeOnnx(inferShapes(canonicalise(brokenGraph(pick(graphs), operators))))
    } catch (error) {
      if (!(error instanceof SparkError)) throw error
      result = error.code
    }
    counts.set(result, (counts.get(result) ?? 0) + 1)
  }
  t.comment([...counts].map(([code, count]) => `${code}: ${count}`).join(', '))
  t.ok(counts.has('ERR_SHAPE') && counts.has('fine'))
})
