// Compiling ends: each attempt at a part of a graph learns of elements that the next one takes into account, or it fails.
// Scripts run in processes of their own, because attempts without end would block this one.
import t from 'tap'
import { backends } from '../fixtures/backends.js'
import { scriptResult } from '../fixtures/child.js'

const head = `
  import { Model } from 'dgx-spark'
  import { graph } from '#lib/graph/attributes.js'
  import { Constant } from '#lib/graph/constant.js'
  import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'

  const input = (name, dtype, shape) => ({ name, type: tensorType(dtype, shape) })
  const outcome = async (graph, backend, feeds) => {
    try {
      const model = await Model.fromGraph(graph, { backend })
      const { y } = await model.run(feeds)
      model.dispose()
      return Array.from(y.data, Number)
    } catch (error) {
      return error.code ?? String(error)
    }
  }
`

t.test('axes that are no axes', async t => {
  const operators = ['ReduceL2', 'ReduceLogSum', 'ReduceLogSumExp', 'ReduceSum']
  const outcomes = await scriptResult(`${head}
    const outcomes = []
    for (const op of ${JSON.stringify(operators)}) {
      for (const backend of ${JSON.stringify(backends)}) {
        for (const axes of [Float32Array.of(0.5), BigInt64Array.of(7n)]) {
          const dtype = axes instanceof Float32Array ? 'f32' : 'i64'
          const model = makeGraph({
            inputs: [input('x', 'f32', [2, 3]), input('axes', dtype, [1])],
            outputs: [{ name: 'y' }],
            nodes: [makeNode(op, ['x', 'axes'], ['y'])],
          })
          outcomes.push(await outcome(model, backend, { x: new Float32Array(6), axes }))
        }
      }
    }
    console.log(JSON.stringify(outcomes))
  `)
  t.same(
    outcomes,
    operators.flatMap(() => backends.flatMap(() => ['ERR_DTYPE', 'ERR_SHAPE'])),
  )
})

t.test('a branch that needs elements that it computes', async t => {
  const outcomes = await scriptResult(`${head}
    const branch = name => makeGraph({
      outputs: [{ name: name + '_sum' }],
      nodes: [
        makeNode('Sub', ['a', 'one'], [name + '_axis']),
        makeNode('CumSum', ['x', name + '_axis'], [name + '_sum']),
      ],
    })
    const attributes = { then_branch: graph(branch('then')), else_branch: graph(branch('else')) }
    const model = makeGraph({
      inputs: [input('x', 'f32', [2, 3]), input('a', 'i64', [])],
      outputs: [{ name: 'y' }],
      initializers: new Map([['yes', Constant.from('bool', [], Uint8Array.of(1))], ['one', Constant.i64(1)]]),
      nodes: [makeNode('If', ['yes'], ['y'], { attributes })],
    })
    const feeds = { x: Float32Array.of(1, 2, 3, 4, 5, 6), a: BigInt64Array.of(2n) }
    const outcomes = []
    for (const backend of ${JSON.stringify(backends)}) outcomes.push(await outcome(model, backend, feeds))
    console.log(JSON.stringify(outcomes))
  `)
  t.same(
    outcomes,
    backends.map(() => [1, 3, 6, 4, 9, 15]),
  )
})
