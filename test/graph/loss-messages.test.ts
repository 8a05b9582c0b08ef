// What is said of labels that do not fit the scores.
import t from 'tap'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { inferFacts } from '#lib/graph/shape-inference.js'

t.test('labels are class indices', async t => {
  const graph = makeGraph({
    inputs: [
      { name: 'scores', type: tensorType('f32', [8, 10]) },
      { name: 'labels', type: tensorType('i64', [8, 10]) },
    ],
    outputs: [{ name: 'loss' }],
    nodes: [makeNode('SoftmaxCrossEntropyLoss', ['scores', 'labels'], ['loss'])],
  })
  t.throws(() => inferFacts(graph), {
    code: 'ERR_SHAPE',
    message:
      /its labels are \[8, 10\]; they must be class numbers \[8\] for scores \[8, 10\]: take the argMax of one-hot/,
  })
})
