// Weights that get another layout before a product reads them are initializers afterwards, under their own names.
import { Model } from 'dgx-spark'
import t from 'tap'
import { createAdapter } from '#lib/dora/model/create-adapter.js'
import { ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { randomGenerator } from '../../fixtures/values/random.js'

const random = randomGenerator(5)
const [rows, cols] = [7, 5]
const weight = Constant.f32(
  Array.from({ length: rows * cols }, () => random() - 0.5),
  [rows, cols],
)
const x = Float32Array.from({ length: 3 * cols }, () => random())

/** x · `w`, which the nodes make of `fc.weight`. */
function product(layouts: readonly Node[], more: Partial<Graph> = {}, from = weight): Graph {
  const shape = ['wide', 'tall'].map(
    (name, i) => [name, Constant.i64(i ? [cols, -1] : [1, rows, cols])] as const,
  )
  return makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, cols]) }],
    outputs: [{ name: 'y' }],
    nodes: [...layouts, makeNode('MatMul', ['x', 'w'], ['y'], { name: '/fc/MatMul' })],
    initializers: new Map([['fc.weight', from], ...shape, ['first', Constant.i64([0])]]),
    ...more,
  })
}

const transposed = makeNode('Transpose', ['fc.weight'], ['w'])
const chains: Readonly<Record<string, readonly Node[]>> = {
  Transpose: [transposed],
  'Transpose with a permutation': [
    makeNode('Transpose', ['fc.weight'], ['w'], { attributes: { perm: ints([1, 0]) } }),
  ],
  Reshape: [makeNode('Reshape', ['fc.weight', 'tall'], ['w'])],
  'several nodes': [
    makeNode('Identity', ['fc.weight'], ['a']),
    makeNode('Reshape', ['a', 'wide'], ['b']),
    makeNode('Squeeze', ['b', 'first'], ['c']),
    makeNode('Transpose', ['c'], ['w']),
  ],
}

for (const [name, layouts] of Object.entries(chains)) {
  t.test(name, async t => {
    const graph = canonicalise(product(layouts))
    t.same(
      graph.nodes.map(({ op, inputs }) => [op, ...inputs]),
      [['MatMul', 'x', 'fc.weight']],
    )
    const folded = graph.initializers.get('fc.weight')!
    t.same(folded.shape, [cols, rows])
    const swaps = name !== 'Reshape'
    const expected = Float32Array.from(folded.data as Float32Array, (_, i) => {
      const from = swaps ? (i % rows) * cols + Math.floor(i / rows) : i
      return weight.data[from] as number
    })
    t.same(folded.data, expected)
    const adapter = await createAdapter(graph, { targetModules: 'all-linear', rank: 2, backend: 'js' })
    t.same(
      adapter.modules.map(module => [module.name, module.rows, module.cols]),
      [['fc', rows, cols]],
    )
    using model = await Model.fromGraph(product(layouts), { backend: 'js' })
    const { y } = await model.run({ x })
    const first = expected.reduce((sum, value, i) => (i % rows === 0 ? sum + value * x[i / rows]! : sum), 0)
    t.ok(Math.abs(Number(y!.data[0]) - first) < 1e-6)
  })
}

t.test('what stays as it is', async t => {
  const stays = (graph: Graph, nodes: number) => {
    const canonical = canonicalise(graph)
    t.equal(canonical.nodes.length, nodes)
    t.same(canonical.initializers.get('fc.weight')?.shape, graph.initializers.get('fc.weight')!.shape)
  }
  const both = [transposed, makeNode('Neg', ['fc.weight'], ['z'])]
  stays(product(both, { outputs: [{ name: 'y' }, { name: 'z' }] }), 3)
  stays(product([transposed], { outputs: [{ name: 'y' }, { name: 'w' }] }), 2)
  const input = { name: 'fc.weight', type: tensorType('f32', [rows, cols]) }
  const { inputs } = product([transposed])
  stays(product([transposed], { inputs: [...inputs, input] }), 2)
  stays(product([makeNode('Neg', ['fc.weight'], ['n']), makeNode('Transpose', ['n'], ['w'])]), 3)
  const cube = Constant.f32(new Array(rows * cols).fill(0), [1, rows, cols])
  const perm = { attributes: { perm: ints([0, 2, 1]) } }
  stays(product([makeNode('Transpose', ['fc.weight'], ['w'], perm)], {}, cube), 2)
})
