// Ifs that the sizes given for the inputs decide: the branch computes what the If did; others stay.
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { inlineBranches } from '#lib/graph/rewrites/inline-branches.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'

const branch = (nodes: readonly Node[], output: string, constants: Record<string, Constant> = {}) =>
  makeGraph({ nodes, outputs: [{ name: output }], initializers: new Map(Object.entries(constants)) })

/** y = 2x, or for three columns 5x, or for three columns and one row x². */
const nested: Graph = makeGraph({
  inputs: [
    { name: 'x', type: tensorType('f32', ['n', 'm']) },
    { name: 'flag', type: tensorType('bool', []) },
  ],
  outputs: [{ name: 'y' }],
  nodes: [
    makeNode('Shape', ['x'], ['sizes']),
    makeNode('Gather', ['sizes', 'one'], ['columns']),
    makeNode('Equal', ['columns', 'three'], ['wide']),
    makeNode('If', ['wide'], ['y'], {
      attributes: {
        then_branch: {
          type: 'graph',
          value: branch(
            [
              makeNode('Gather', ['sizes', 'zero'], ['rows']),
              makeNode('Equal', ['rows', 'one'], ['lone']),
              makeNode('If', ['lone'], ['inner'], {
                attributes: {
                  then_branch: {
                    type: 'graph',
                    value: branch([makeNode('Mul', ['x', 'x'], ['squared'])], 'squared'),
                  },
                  else_branch: {
                    type: 'graph',
                    value: branch([makeNode('Mul', ['x', 'five'], ['large'])], 'large', {
                      five: Constant.f32(5),
                    }),
                  },
                },
              }),
            ],
            'inner',
          ),
        },
        else_branch: {
          type: 'graph',
          value: branch([makeNode('Add', ['x', 'x'], ['doubled'])], 'doubled'),
        },
      },
    }),
  ],
  initializers: new Map([
    ['zero', Constant.from('i64', [], BigInt64Array.of(0n))],
    ['one', Constant.from('i64', [], BigInt64Array.of(1n))],
    ['three', Constant.from('i64', [], BigInt64Array.of(3n))],
  ]),
})

t.test('the branch that runs, also inside of another', async t => {
  for (const [shape, expected] of [
    [[2, 2], (x: number) => 2 * x],
    [[2, 3], (x: number) => 5 * x],
    [[1, 3], (x: number) => x * x],
  ] as const) {
    const shapes = { x: shape, flag: [] }
    const graph = inlineBranches(nested, { shapes })
    t.notOk(graph.nodes.some(({ op }) => op === 'If'))
    using plan = await Plan.create({ ...graph, inputs: graph.inputs.slice(0, 1) }, jsKernels, {
      shapes: { x: shape },
    })
    const x = Float32Array.from({ length: shape[0] * shape[1] }, (_, i) => i - 1.5)
    t.same([...((await plan.run({ x })).y as Float32Array)], [...x].map(expected))
  }
})

t.test('what the sizes do not decide stays', async t => {
  t.equal(inlineBranches(nested).nodes.find(({ op }) => op === 'If')?.op, 'If')
  const nodes = nested.nodes.map(node => (node.op === 'If' ? { ...node, inputs: ['flag'] } : node))
  const graph = { ...nested, nodes }
  t.equal(inlineBranches(graph, { shapes: { x: [2, 3], flag: [] } }), graph)
  const loss = makeNode('ReduceSum', ['y'], ['loss'], { attributes: { keepdims: int(0) } })
  const summed = { ...graph, nodes: [...nodes, loss] }
  t.throws(() => differentiate(summed, { loss: 'loss', wrt: ['x'] }), {
    code: 'ERR_UNSUPPORTED',
    message: /If.*cannot be differentiated/,
  })
})
