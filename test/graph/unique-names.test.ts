// Values of branches get names of their own; what they are and who reads which stays.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { valueNames } from '#lib/graph/edit.js'
import { type Graph, makeGraph, makeNode, type Node, type Subgraph, tensorType } from '#lib/graph/graph.js'
import { uniqueNames } from '#lib/graph/rewrites/unique-names.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { type HostTensor, hostTensor } from '#lib/model/values.js'

const choose = (condition: string, output: string, yes: Subgraph, no: Subgraph): Node =>
  makeNode('If', [condition], [output], {
    attributes: { then_branch: { type: 'graph', value: yes }, else_branch: { type: 'graph', value: no } },
  })

const branch = (nodes: readonly Node[], output: string, constants: Record<string, number> = {}): Subgraph =>
  makeGraph({
    nodes,
    outputs: [{ name: output }],
    initializers: new Map(Object.entries(constants).map(([name, value]) => [name, Constant.f32(value)])),
  })

/**
 * y = 2x + 1 with both conditions, 2x · 10 with the first only, else 3x − (3x)², where `t` is a value of the outermost
 * graph, `k` a constant of three branches, and a branch within shadows `v` of the one around it.
 */
const graph: Graph = makeGraph({
  inputs: [
    { name: 'x', type: tensorType('f32', [2]) },
    { name: 'one', type: tensorType('bool', []) },
    { name: 'two', type: tensorType('bool', []) },
  ],
  outputs: [{ name: 'y' }],
  nodes: [
    makeNode('Neg', ['x'], ['t']),
    choose(
      'one',
      'y',
      branch(
        [
          makeNode('Mul', ['x', 'k'], ['v']),
          choose(
            'two',
            'w',
            branch([makeNode('Add', ['v', 'k'], ['t'])], 't', { k: 1 }),
            branch([makeNode('Mul', ['v', 'ten'], ['u'])], 'u', { ten: 10 }),
          ),
        ],
        'w',
        { k: 2 },
      ),
      branch(
        [
          makeNode('Mul', ['x', 'k'], ['v']),
          makeNode('Mul', ['v', 'v'], ['w']),
          makeNode('Sub', ['v', 'w'], ['u']),
        ],
        'u',
        { k: 3 },
      ),
    ),
  ],
})

/** Names that a graph and the graphs inside of it define. */
function definitions({ inputs, initializers, nodes }: Subgraph): string[] {
  const inner = nodes.flatMap(({ attributes }) =>
    Object.values(attributes).flatMap(attribute =>
      attribute.type === 'graph' ? definitions(attribute.value) : [],
    ),
  )
  const own = [
    ...inputs.map(({ name }) => name),
    ...initializers.keys(),
    ...nodes.flatMap(({ outputs }) => outputs),
  ]
  return [...own, ...inner]
}

async function run(model: Graph, x: Float32Array, [one, two]: readonly [number, number]): Promise<number[]> {
  const runner = new GraphRunner(model, jsKernels)
  const flag = (value: number) => hostTensor('bool', [], Uint8Array.of(value))
  const [y] = await runner.run([hostTensor('f32', [2], x), flag(one), flag(two)])
  return [...((y as HostTensor).data as Float32Array)]
}

t.test('every name once, the same results', async t => {
  const names = definitions(graph)
  t.ok(new Set(names).size < names.length, 'there are names that several values have')
  const made = uniqueNames(graph)
  const unique = definitions(made)
  t.equal(unique.length, names.length)
  t.equal(new Set(unique).size, unique.length)
  t.strictSame(made.nodes[0], graph.nodes[0], 'outer values keep their names')
  t.ok(valueNames(made).has('t') && valueNames(made).has('k'), 'and so do the first of several inner ones')
  const x = Float32Array.of(0.5, -2)
  for (const [flags, expected] of [
    [
      [1, 1],
      [2, -3],
    ],
    [
      [1, 0],
      [10, -40],
    ],
    [
      [0, 1],
      [1.5 - 2.25, -6 - 36],
    ],
  ] as const) {
    t.strictSame(await run(made, x, flags), expected)
  }
})

t.test('a graph whose names are unique is the same object', async t => {
  const made = uniqueNames(graph)
  t.equal(uniqueNames(made), made)
  t.equal(uniqueNames(makeGraph({ nodes: [makeNode('Neg', ['x'], ['y'])] })).nodes.length, 1)
})
