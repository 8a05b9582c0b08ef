// compile.js: time from the nodes of a graph (2,000) to its first result.
import { Model } from 'dgx-spark'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Graph } from '#lib/graph/graph.js' */
/** @import { Case } from '../harness.js' */

const layers = 200
const width = 16

/** Layers of ten nodes: normalization, product, bias, activation, moves, gate and residual. @returns {Graph} */
function deepGraph() {
  const vector = (/** @type {number} */ value) =>
    Constant.from('f32', [width], new Float32Array(width).fill(value))
  const initializers = new Map([
    ['gain', vector(1)],
    ['bias', vector(0.1)],
    ['square', Constant.i64([1, width, 4, 4])],
    ['rows', Constant.i64([1, width, width])],
  ])
  let value = 'x'
  const nodes = Array.from({ length: layers }, (_, layer) => {
    const name = (/** @type {string} */ part) => `${layer}.${part}`
    initializers.set(name('weight'), Constant.from('f32', [width, width], uniform(width * width, layer + 1)))
    const parts = [
      makeNode('LayerNormalization', [value, 'gain'], [name('norm')], { attributes: { axis: int(-1) } }),
      makeNode('MatMul', [name('norm'), name('weight')], [name('product')]),
      makeNode('Add', [name('product'), 'bias'], [name('sum')]),
      makeNode('Relu', [name('sum')], [name('active')]),
      makeNode('Reshape', [name('active'), 'square'], [name('image')]),
      makeNode('Transpose', [name('image')], [name('turned')], { attributes: { perm: ints([0, 1, 3, 2]) } }),
      makeNode('Sigmoid', [name('turned')], [name('gate')]),
      makeNode('Mul', [name('turned'), name('gate')], [name('gated')]),
      makeNode('Reshape', [name('gated'), 'rows'], [name('flat')]),
      makeNode('Add', [name('flat'), value], [name('out')]),
    ]
    value = name('out')
    return parts
  }).flat()
  const type = tensorType('f32', [1, width, width])
  return makeGraph({ inputs: [{ name: 'x', type }], outputs: [{ name: value }], nodes, initializers })
}

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* compile({ backend }) {
  const graph = deepGraph()
  const x = uniform(width * width, 7)
  let compileMs = 0
  yield {
    name: 'compile',
    shape: `${graph.nodes.length} nodes`,
    dtype: 'f32',
    bytes: x.byteLength,
    run: async () => {
      const model = await Model.fromGraph(graph, { backend })
      await model.run({ x })
      compileMs = model.stats.compileMs
      model.dispose()
    },
    check: () => {
      if (!(compileMs > 0)) throw new Error('nothing was compiled')
    },
  }
}
