// Ifs whose condition follows from shapes become the branch that they take.
import t from 'tap'
import { graph as graphAttribute, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { inlineBranches } from '#lib/graph/rewrites/inline-branches.js'
import { openKernels } from '#lib/kernels/open.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { hostTensor } from '#lib/model/values.js'
import { backends } from '../../fixtures/backends.js'
import { operators } from '../../fixtures/models/optimized.js'

const branch = (nodes: readonly Node[], output: string, constants: Record<string, Constant> = {}) =>
  graphAttribute(
    makeGraph({ outputs: [{ name: output }], nodes, initializers: new Map(Object.entries(constants)) }),
  )

/** y = x has 1 row ? (x has 3 columns ? −x : x) + 2 : |x|, all decided by the shape [rows, 3] of x. */
const byShape = (rows: number): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [rows, 3]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Shape', ['x'], ['rows'], { attributes: { end: int(1) } }),
      makeNode('Shape', ['x'], ['columns'], { attributes: { start: int(1) } }),
      makeNode('Equal', ['rows', 'one'], ['single']),
      makeNode('Equal', ['columns', 'three'], ['narrow']),
      makeNode('If', ['single'], ['y'], {
        attributes: {
          then_branch: branch(
            [
              makeNode('If', ['narrow'], ['signed'], {
                attributes: {
                  then_branch: branch([makeNode('Neg', ['x'], ['negative'])], 'negative'),
                  else_branch: branch([], 'x'),
                },
              }),
              makeNode('Add', ['signed', 'two'], ['moved']),
            ],
            'moved',
            { two: Constant.f32(2) },
          ),
          else_branch: branch([makeNode('Abs', ['x'], ['size'])], 'size'),
        },
      }),
    ],
    initializers: new Map([
      ['one', Constant.i64([1])],
      ['three', Constant.i64([3])],
    ]),
  })

t.test('branches that are certain, branches inside of them included', async t => {
  const single = inlineBranches(byShape(1))
  t.match(operators(single), { Neg: 1, Add: 1, Identity: 2 })
  t.notOk(operators(single).If)
  t.ok(single.initializers.has('two'), 'constants of a branch come along')
  t.match(operators(inlineBranches(byShape(5))), { Abs: 1, Identity: 1 })
  const plain = makeGraph({ ...byShape(1), nodes: [makeNode('Neg', ['x'], ['y'])] })
  t.equal(inlineBranches(plain), plain, 'a graph without branches is the same')
})

t.test('a condition that is data stays', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'choice', type: tensorType('bool', []) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('If', ['choice'], ['y'], {
        attributes: { then_branch: branch([], 'one'), else_branch: branch([], 'three') },
      }),
    ],
    initializers: byShape(1).initializers,
  })
  t.equal(inlineBranches(graph), graph)
})

for (const backend of backends) {
  t.test(`one plan on ${backend}`, async t => {
    for (const [rows, expected] of [
      [1, [1, 4, -1]],
      [2, [1, 2, 3, 4, 5, 6]],
    ] as const) {
      const runner = new GraphRunner(byShape(rows), await openKernels({ backend }))
      const x = Float32Array.of(1, -2, 3, -4, 5, -6).subarray(0, rows * 3)
      for (let run = 0; run < 3; run++) {
        const [y] = await runner.run([hostTensor('f32', [rows, 3], x)])
        t.same([...(y as { data: Float32Array }).data], expected)
      }
      t.equal(runner.plans.length, 1)
      runner.dispose()
    }
  })
}

for (const backend of backends) {
  t.test(`bound on ${backend}`, async t => {
    const runner = new GraphRunner(byShape(1), await openKernels({ backend }))
    const [x, y] = [Float32Array.of(1, -2, 3), new Float32Array(3)]
    const buffers = new Map([
      ['x', x],
      ['y', y],
    ])
    using plan = await runner.bind([hostTensor('f32', [1, 3], x)], buffers)
    t.equal(plan.stats.steps, 2, 'the comparisons of sizes are gone')
    for (const value of [5, -6]) {
      x[1] = value
      await plan.runBound()
      t.same([...y], [1, 2 - value, -1])
    }
    runner.dispose()
  })
}
