// Stages of cut graphs, run one after another, give what the whole gives, bit for bit; cuts that cannot be made are named.
import path from 'node:path'
import { Model, type Tensor } from 'dgx-spark'
import t from 'tap'
import { hintOf } from '#lib/core/size.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { cutGraph, cutPoints, stageEnds } from '#lib/graph/rewrites/cut.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { backends } from '../../fixtures/backends.js'
import { differing, runStages } from '../../fixtures/cluster/stages.js'
import { modelFiles, noModels } from '../../fixtures/models/onnx-models.js'
import { randomFeeds } from '../../fixtures/onnx-runtime.js'
import { tensorsOf } from '../../fixtures/random-graph/checks.js'
import { randomGraph } from '../../fixtures/random-graph/random-graph.js'

/** Up to `count` of the places, spread evenly. */
const some = (ends: readonly number[], count: number): number[] =>
  ends.filter((_, i) => Math.floor((i * count) / ends.length) !== Math.floor(((i - 1) * count) / ends.length))

const sizes: Record<string, number> = { batch: 1, sequence: 576, length: 7, b: 2 }
/** Small enough for the loops in TypeScript. */
const forJs = /mnist|silero|byte_sb/
/** Not in a unit test. */
const large = /^light_(?!squeezenet)|tinyphysics|3294407|RFB/

for (const file of noModels ? [] : modelFiles().filter(file => !large.test(path.basename(file)))) {
  const name = path.basename(file)
  t.test(name, async t => {
    const graph = canonicalise(await readOnnx(file))
    const feeds = tensorsOf(randomFeeds(graph, 3, sizes)) as Record<string, Tensor<never>>
    if (feeds.sr) (feeds.sr.data as BigInt64Array)[0] = 16000n
    const ends = cutPoints(graph).map(({ end }) => end)
    t.comment(`${graph.nodes.length} nodes, ${ends.length} places`)
    for (const backend of backends.filter(backend => backend === 'cpu' || forJs.test(name))) {
      const options = { backend, precision: 'fp32' } as const
      using model = await Model.fromGraph(graph, options)
      const whole = await model.run<Tensor<never>>(feeds)
      const cuts = some(ends, 4)
      const results = await runStages(graph, cuts, feeds, options)
      t.equal(differing(whole, results), undefined, `${backend}: ${cuts}`)
    }
  })
}

t.test('random graphs', async t => {
  for (let seed = 1; seed <= 15; seed++) {
    const random = await randomGraph(seed)
    const graph = canonicalise(random.graph)
    const feeds = tensorsOf(random.feeds) as Record<string, Tensor<never>>
    const ends = cutPoints(graph, { maxValues: 8 }).map(({ end }) => end)
    for (const backend of backends) {
      const options = { backend, precision: 'fp32' } as const
      using model = await Model.fromGraph(graph, options)
      const whole = await model.run<Tensor<never>>(feeds)
      const results = await runStages(graph, some(ends, 3), feeds, options)
      t.equal(differing(whole, results), undefined, `seed ${seed} on ${backend}: ${some(ends, 3)} of ${ends}`)
    }
  }
})

const f32 = (...shape: (number | string)[]) => tensorType('f32', shape)

/** x [2, 2] · w twice, in the branches of an If as well, with w shared, and outputs that are an input and a weight. */
function branchGraph(): Graph {
  const branch = (name: string, op: string) => ({
    type: 'graph' as const,
    value: makeGraph({
      name,
      nodes: [makeNode(op, ['y', 'w'], [`${name}_z`])],
      outputs: [{ name: `${name}_z` }],
    }),
  })
  return makeGraph({
    inputs: [
      { name: 'x', type: f32(2, 2) },
      { name: 'which', type: tensorType('bool', []) },
      { name: 'unused', type: f32(1) },
    ],
    outputs: ['unused', 'w', 'z', 'y'].map(name => ({ name })),
    initializers: new Map([['w', Constant.f32([1, 2, 3, 4], [2, 2])]]),
    nodes: [
      makeNode('MatMul', ['x', 'w'], ['y']),
      makeNode('Sigmoid', ['y'], ['s']),
      makeNode('If', ['which'], ['b'], {
        attributes: { then_branch: branch('then', 'MatMul'), else_branch: branch('else', 'Sub') },
      }),
      makeNode('Transpose', ['w'], ['wt']),
      makeNode('MatMul', ['s', 'wt'], ['m']),
      makeNode('Add', ['b', 'm'], ['z']),
    ],
  })
}

t.test('branches, shared weights, values that skip a stage', async t => {
  const graph = branchGraph()
  const cuts = [1, 2, 4]
  const stages = cutGraph(graph, cuts)
  t.strictSame(
    stageEnds(graph, stages).map(({ feeds, takes, gives, passes, results }) => ({
      feeds,
      takes,
      gives,
      passes,
      results,
    })),
    [
      { feeds: ['x', 'unused'], takes: [], gives: ['y'], passes: [], results: ['unused', 'w', 'y'] },
      { feeds: [], takes: ['y'], gives: ['s'], passes: ['y'], results: [] },
      { feeds: ['which'], takes: ['y'], gives: ['b'], passes: ['s'], results: [] },
      { feeds: [], takes: ['s', 'b'], gives: [], passes: [], results: ['z'] },
    ],
  )
  t.strictSame(
    stages.map(({ initializers }) => [...initializers.keys()]),
    [['w'], [], ['w'], ['w']],
  )
  t.strictSame(stages.map(({ nodes }) => nodes.map(({ op }) => op)).at(-1), ['Transpose', 'MatMul', 'Add'])
  for (const backend of backends)
    for (const which of [0, 1]) {
      const feeds = tensorsOf(
        new Map([
          ['x', Constant.f32([1, -2, 0.5, 3], [2, 2])],
          ['which', Constant.from('bool', [], Uint8Array.of(which))],
          ['unused', Constant.f32([7], [1])],
        ]),
      ) as Record<string, Tensor<never>>
      using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
      const whole = await model.run<Tensor<never>>(feeds)
      const results = await runStages(graph, cuts, feeds, { backend, precision: 'fp32' })
      t.equal(differing(whole, results), undefined, `${backend} ${which}`)
    }
})

t.test('bytes are expressions of open sizes, and fusions are not cut', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: f32('rows', 8) }],
    outputs: [{ name: 'z' }],
    initializers: new Map([['w', Constant.from('f32', [8, 4], new Float32Array(32))]]),
    nodes: [
      makeNode('MatMul', ['x', 'w'], ['a']),
      makeNode('Relu', ['a'], ['b']),
      makeNode('Softmax', ['b'], ['c']),
      makeNode('Sum', ['c', 'c'], ['z']),
    ],
  })
  const points = cutPoints(graph)
  t.strictSame(
    points.map(({ end, values }) => [end, values]),
    [
      [2, ['b']],
      [3, ['c']],
    ],
    'behind the activation that the product ends with',
  )
  t.equal(typeof points[0]!.bytes === 'object' && points[0]!.bytes.formula, '16·rows')
  t.equal(hintOf(cutPoints(graph, { shapes: { x: [3, 8] } })[0]!.bytes), 48)
})

t.test('states stay with a stage', async t => {
  const graph = makeGraph({
    inputs: [
      { name: 'x', type: f32(4) },
      { name: 'state_a', type: f32(4) },
      { name: 'past.0.key', type: f32('n', 4) },
    ],
    outputs: ['next_state_a', 'present.0.key', 'y'].map(name => ({ name })),
    initializers: new Map([['count', Constant.f32([0], [1])]]),
    updates: new Map([['count', 'counted']]),
    nodes: [
      makeNode('Add', ['x', 'state_a'], ['next_state_a']),
      makeNode('Tanh', ['next_state_a'], ['t']),
      makeNode('Unsqueeze', ['t', 'axes'], ['row']),
      makeNode('Concat', ['past.0.key', 'row'], ['present.0.key'], {
        attributes: { axis: { type: 'int', value: 0 } },
      }),
      makeNode('ReduceSum', ['present.0.key'], ['sum'], {
        attributes: { keepdims: { type: 'int', value: 0 } },
      }),
      makeNode('Mul', ['sum', 'count'], ['y']),
      makeNode('Add', ['count', 'one'], ['counted']),
    ],
  })
  const initializers = new Map([
    ...graph.initializers,
    ['axes', Constant.i64([0])],
    ['one', Constant.f32([1], [1])],
  ] as const)
  const whole = { ...graph, initializers }
  const stages = cutGraph(whole, [2, 5])
  t.strictSame(
    stageEnds(whole, stages).map(({ states }) => [...states]),
    [[['state_a', 'next_state_a']], [['past.0.key', 'present.0.key']], []],
  )
  t.strictSame(
    stages.map(({ updates }) => [...updates!.keys()]),
    [[], [], ['count']],
  )
  t.throws(() => cutGraph(whole, [6]), {
    code: 'ERR_UNSUPPORTED',
    message: /the cut at 6, behind .*Mul.*state 'count'.*'counted'/,
  })
  t.notOk(cutPoints(whole, { maxValues: 9 }).some(({ end }) => end === 6))
  const states = new Map([['x', 'y']])
  t.throws(() => cutGraph(whole, [2], { states }), { code: 'ERR_UNSUPPORTED', message: /the state 'x'/ })
})

t.test('cuts that cannot be made are named', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: f32(4) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('SequenceConstruct', ['x', 'x'], ['list']),
      makeNode('ConcatFromSequence', ['list'], ['y'], { attributes: { axis: { type: 'int', value: 0 } } }),
    ],
  })
  t.throws(() => cutGraph(graph, [1]), { code: 'ERR_UNSUPPORTED', message: /'list'.* a sequence/ })
  t.strictSame(cutPoints(graph), [])
  for (const ends of [[0], [2], [1, 1], [1.5], [Number.NaN], 'one' as never])
    t.throws(() => cutGraph(graph, ends), { code: 'ERR_ARGUMENT' })
  t.strictSame(cutGraph(graph, []).length, 1)
  const fixed = makeGraph({
    inputs: [{ name: 'x', type: f32(4) }],
    outputs: [{ name: 'y' }],
    initializers: new Map([['w', Constant.f32([1, 2, 3, 4])]]),
    nodes: [makeNode('Neg', ['w'], ['v']), makeNode('Add', ['x', 'v'], ['y'])],
  })
  t.throws(() => cutGraph(fixed, [1]), {
    code: 'ERR_UNSUPPORTED',
    message: /leaves stage 0 nothing to compute/,
  })
})
