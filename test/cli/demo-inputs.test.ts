// Random inputs for models that say little about what they want.
import { Model } from 'dgx-spark'
import t from 'tap'
import { randomInputs, settingsOf, withSettings } from '#lib/cli/demo-inputs.js'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type TensorType, tensorType } from '#lib/graph/graph.js'

const inputs = (types: Record<string, TensorType>) =>
  Object.entries(types).map(([name, type]) => ({ name, type }))

/** Sound of at least 16 numbers, in steps of 16, for a state whose samples are in the second dimension. */
function sound(dims: (string | null)[]): Graph {
  return makeGraph({
    inputs: inputs({
      sound: tensorType('f32', [dims[0]!, dims[1]!]),
      state: tensorType('f32', [2, dims[2]!, 1]),
      rate: tensorType('i64', []),
    }),
    outputs: [{ name: 'y' }, { name: 'next' }],
    nodes: [
      makeNode('Unsqueeze', ['sound', 'axis'], ['lines']),
      makeNode('Conv', ['lines', 'w'], ['z'], { attributes: { strides: ints([16]), group: int(1) } }),
      makeNode('Squeeze', ['z', 'last'], ['rows']),
      makeNode('Unsqueeze', ['rows', 'first'], ['part']),
      makeNode('Concat', ['state', 'part'], ['next'], { attributes: { axis: int(0) } }),
      makeNode('Cast', ['rate'], ['narrow'], { attributes: { to: int(6) } }),
      makeNode('Equal', ['narrow', 'usual'], ['is']),
      makeNode('Where', ['is', 'next', 'none'], ['y']),
    ],
    initializers: new Map([
      ['first', Constant.i64([0])],
      ['none', Constant.f32(0)],
      ['axis', Constant.i64([1])],
      ['last', Constant.i64([2])],
      ['usual', Constant.from('i32', [], Int32Array.of(16000))],
      ['w', Constant.f32(Array(16).fill(0.1), [1, 1, 16])],
    ]),
  })
}

t.test('settings, open sizes and the dimension of samples', async t => {
  for (const dims of [
    ['batch', 'length', 'batch'],
    [null, null, null],
  ]) {
    const graph = sound(dims)
    t.same(
      [...settingsOf(graph)].map(([name, { data }]) => [name, [...(data as BigInt64Array)]]),
      [['rate', [16000n]]],
      'what it is compared with',
    )
    using model = await Model.fromGraph(graph, { backend: 'js' })
    const { batches, settings } = await randomInputs(model)
    const [batch] = batches(0)
    t.same(Object.keys(batch!), ['sound', 'state'])
    t.same([batch!.sound!.shape, batch!.sound!.axis], [[1, 16], 0], 'the first length that the model takes')
    t.same([batch!.state!.shape, batch!.state!.axis], [[2, 1, 1], 1])
    t.same(batches(5)[0], batch, 'five batches differ')
    t.notSame(batches(4)[0], batch)
    const folded = withSettings(graph, settings)
    t.same(
      folded.inputs.map(({ name }) => name),
      ['sound', 'state'],
    )
    t.equal(folded.initializers.get('rate')?.dtype, 'i64')
  }
})

t.test('token ids are rows of the smallest table', async t => {
  const graph = makeGraph({
    inputs: inputs({ ids: tensorType('i32', ['n', 7]), mask: tensorType('bool', ['n', 7]) }),
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Reshape', ['ids', 'flat'], ['list']),
      makeNode('Cast', ['list'], ['wide'], { attributes: { to: int(7) } }),
      makeNode('Gather', ['large', 'wide'], ['a']),
      makeNode('Gather', ['small', 'list'], ['b'], { attributes: { axis: int(1) } }),
      makeNode('Where', ['mask', 'a', 'b'], ['y']),
    ],
    initializers: new Map([
      ['flat', Constant.i64([-1, 7])],
      ['large', Constant.f32(Array(19).fill(1), [19])],
      ['small', Constant.f32(Array(3).fill(2), [1, 3])],
    ]),
  })
  using model = await Model.fromGraph(graph, { backend: 'js' })
  const { batches } = await randomInputs(model)
  const seen = Array.from({ length: 5 }, (_, epoch) => [
    ...(batches(epoch)[0]!.ids!.data as Int32Array),
  ]).flat()
  t.same([...new Set(seen)].sort(), [0, 1, 2])
})

t.test('what cannot be invented', async t => {
  const graph = makeGraph({
    inputs: inputs({ x: tensorType('f32', ['n', 'length']) }),
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Reshape', ['x', 'shape'], ['y'])],
    initializers: new Map([['shape', Constant.i64([-1, 7])]]),
  })
  using model = await Model.fromGraph(graph, { backend: 'js' })
  await t.rejects(randomInputs(model), {
    code: 'ERR_SHAPE',
    message: /Reshape.*no sizes that were tried for open dimensions \(length\) fit: give batches with --data/,
  })
  const unknown = { ...graph, inputs: [{ name: 'x', type: { kind: 'tensor', dtype: 'f32' } as const }] }
  using other = await Model.fromGraph(unknown, { backend: 'js' })
  await t.rejects(randomInputs(other), {
    code: 'ERR_UNSUPPORTED',
    message: /does not say how many dimensions/,
  })
})
