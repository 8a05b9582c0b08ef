// Ifs whose condition depends on data: what is computed of both branches is what the If gives, and so are gradients.
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { selectBranches } from '#lib/graph/rewrites/select-branches.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { type HostTensor, hostTensor } from '#lib/model/values.js'
import { Plan } from '#lib/plan/plan.js'
import { Trainer } from '#lib/training/trainer.js'
import { gradientError } from '../../fixtures/gradients.js'
import { randomAdapter } from '../../fixtures/models/trainable.js'

const branch = (nodes: readonly Node[], output: string, constants: Record<string, Constant> = {}) =>
  makeGraph({ nodes, outputs: [{ name: output }], initializers: new Map(Object.entries(constants)) })

const choose = (condition: string, yes: Graph, no: Graph, output: string): Node =>
  makeNode('If', [condition], [output], {
    attributes: {
      then_branch: { type: 'graph', value: yes },
      else_branch: { type: 'graph', value: no },
    },
  })

/** y = ln(x) · w where the sum of x is above 0; else x as it is below −1, and x² · 3 in between. */
const nodes: readonly Node[] = [
  makeNode('ReduceSum', ['x'], ['all'], { attributes: { keepdims: int(1) } }),
  makeNode('Reshape', ['all', 'one'], ['total']),
  makeNode('Greater', ['total', 'zero'], ['high']),
  makeNode('Less', ['total', 'minus'], ['low']),
  choose(
    'high',
    branch([makeNode('Log', ['x'], ['log']), makeNode('Mul', ['log', 'w'], ['weighted'])], 'weighted'),
    branch(
      [
        choose(
          'low',
          branch([], 'x'),
          branch(
            [makeNode('Mul', ['x', 'x'], ['squared']), makeNode('Mul', ['squared', 'three'], ['cube'])],
            'cube',
            {
              three: Constant.f32(3),
            },
          ),
          'inner',
        ),
      ],
      'inner',
    ),
    'y',
  ),
]
const constants = {
  one: Constant.i64([1]),
  zero: Constant.f32(0),
  minus: Constant.f32(-1),
}
const shape = [2, 3]
const graph = makeGraph({
  inputs: [
    { name: 'x', type: tensorType('f32', shape) },
    { name: 'w', type: tensorType('f32', shape) },
  ],
  outputs: [{ name: 'y' }],
  nodes,
  initializers: new Map(Object.entries(constants)),
})

/** Ranges of x for which each branch is taken. */
const ranges = { logarithm: [0.5, 2], itself: [-2, -1], square: [-0.15, 0] } as const

t.test('values', async t => {
  const selected = selectBranches(graph)
  t.notOk(selected.nodes.some(({ op }) => op === 'If'))
  using plan = await Plan.create(selected, jsKernels)
  const w = Float32Array.from({ length: 6 }, (_, i) => i - 2)
  for (const [taken, [low, high]] of Object.entries(ranges)) {
    const x = Float32Array.from({ length: 6 }, (_, i) => low + ((high - low) * (i + 0.5)) / 6)
    const runner = new GraphRunner(graph, jsKernels)
    const [y] = await runner.run([x, w].map(data => hostTensor('f32', shape, data)))
    t.same([...((await plan.run({ x, w })).y as Float32Array)], [...(y as HostTensor).data], taken)
  }
})

t.test('gradients, where the other branch has infinite ones, too', async t => {
  const { nodes, initializers } = selectBranches(graph)
  for (const [taken, range] of Object.entries(ranges)) {
    const errors = await gradientError({
      inputs: { x: { shape, range }, w: { shape } },
      nodes,
      constants: Object.fromEntries(initializers),
    })
    for (const [name, error] of Object.entries(errors)) t.ok(error < 1e-6, `${taken}, d${name}: ${error}`)
  }
})

t.test('parameters that a branch reads', t => {
  const initializers = new Map([...graph.initializers, ['w', Constant.f32(Array(6).fill(1), shape)]])
  const frozen = { ...graph, inputs: graph.inputs.slice(0, 1), initializers }
  const choices = (parameters: string[]): number =>
    selectBranches(frozen, { parameters }).nodes.filter(
      ({ op, inputs }) => op === 'Where' && inputs.includes('w'),
    ).length
  t.same([choices([]), choices(['w'])], [0, 1], 'only what is trained has to be kept from gradients')
  t.end()
})

t.test('branches of different or unknown sizes stay', t => {
  const cut = makeNode('Slice', ['x', 'from', 'to', 'axis'], ['part'])
  const initializers = new Map([
    ...graph.initializers,
    ['from', Constant.i64([0])],
    ['to', Constant.i64([1])],
    ['axis', Constant.i64([0])],
  ])
  const uneven = {
    ...graph,
    nodes: [...nodes.slice(0, 4), choose('high', branch([cut], 'part'), branch([], 'x'), 'y')],
    initializers,
  }
  t.same(selectBranches(uneven).nodes, uneven.nodes)
  const open = {
    ...graph,
    inputs: graph.inputs.map(({ name }) => ({ name, type: tensorType('f32', ['n', 3]) })),
  }
  t.ok(selectBranches(open).nodes.some(({ op }) => op === 'If'))
  t.notOk(selectBranches(open, { shapes: { x: shape, w: shape } }).nodes.some(({ op }) => op === 'If'))
  t.end()
})

t.test('a training through both branches', async t => {
  const model = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', 5]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('MatMul', ['x', 'fc.weight'], ['h']),
      makeNode('ReduceSum', ['x'], ['sum'], { attributes: { keepdims: int(0) } }),
      makeNode('Greater', ['sum', 'zero'], ['high']),
      choose(
        'high',
        branch([makeNode('Tanh', ['h'], ['bent'])], 'bent'),
        branch([makeNode('Neg', ['h'], ['turned'])], 'turned'),
        'y',
      ),
    ],
    initializers: new Map([
      [
        'fc.weight',
        Constant.f32(
          Array.from({ length: 35 }, (_, i) => Math.sin(i)),
          [5, 7],
        ),
      ],
      ['zero', Constant.f32(0)],
    ]),
  })
  const adapter = randomAdapter(model, { rank: 2, change: 0.5, seed: 5 })
  const trainer = new Trainer({ graph: model }, adapter, {
    loss: { type: 'mse', output: 'y' },
    teacher: { graph: model },
    epochs: 30,
    backend: 'js',
    optimizer: { type: 'adamw', learningRate: 0.02 },
  })
  const side = (sign: number) => ({
    x: { shape: [3, 5], data: Float32Array.from({ length: 15 }, (_, i) => sign * (0.3 + Math.cos(i))) },
  })
  const losses: number[] = []
  for await (const { loss } of trainer.steps(() => [side(1), side(-1)])) losses.push(loss)
  for (const first of [0, 1]) {
    const [before, after] = [losses[first]!, losses.at(first - 2)!]
    t.ok(after < 0.3 * before, `the loss of a branch fell from ${before} to ${after}`)
  }
})
