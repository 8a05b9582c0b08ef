// Many runs in one call: states move on from run to run, whatever they become.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'

const states = (names: readonly string[]) =>
  new Map(names.map(name => [name, { axis: undefined, capacity: 1 } as const]))

const planOf = async (graph: Graph, backend: 'js' | 'cpu'): Promise<Plan> =>
  Plan.create(graph, await openKernels({ backend }), { states: states([...graph.updates!.keys()]) })

/** Numbers that are added up, the two values before that, one that stays, and a record of all sums. */
const counter = (): Graph =>
  makeGraph({
    inputs: [
      { name: 'sum', type: tensorType('f32', [2]) },
      { name: 'before', type: tensorType('f32', [2]) },
      { name: 'earlier', type: tensorType('f32', [2]) },
      { name: 'left', type: tensorType('f32', [2]) },
      { name: 'right', type: tensorType('f32', [2]) },
      { name: 'kept', type: tensorType('f32', [2]) },
      { name: 'step', type: tensorType('i64', [2]) },
      { name: 'record', type: tensorType('f32', [2, 8, 1]) },
      { name: 'x', type: tensorType('f32', [2]) },
    ],
    nodes: [
      makeNode('Add', ['sum', 'x'], ['next']),
      makeNode('Unsqueeze', ['next', 'axes'], ['row']),
      makeNode('TensorScatter', ['record', 'row', 'step'], ['recorded']),
      makeNode('Add', ['step', 'one'], ['next step']),
      makeNode('Mul', ['sum', 'x'], ['product']),
    ],
    initializers: new Map([
      ['one', Constant.i64([1])],
      ['axes', Constant.i64([1, 2])],
    ]),
    outputs: [{ name: 'next' }, { name: 'sum' }, { name: 'product' }, { name: 'recorded' }],
    updates: new Map([
      ['sum', 'next'],
      ['before', 'sum'],
      ['earlier', 'before'],
      ['left', 'right'],
      ['right', 'left'],
      ['kept', 'kept'],
      ['step', 'next step'],
      ['record', 'recorded'],
    ]),
  })

for (const backend of backends) {
  t.test(`states after many runs in one call on ${backend}`, async t => {
    using plan = await planOf(counter(), backend)
    const set = (name: string, values: number[]): void => (plan.state(name) as Float32Array).set(values)
    set('left', [1, 2])
    set('right', [3, 4])
    set('kept', [5, 6])
    await plan.storeState()
    const of = (name: string): unknown[] => Array.from(plan.state(name) as Float32Array)
    const output = (name: string): number[] =>
      Array.from(plan.arrayOf(plan.outputs.find(each => each.name === name)!) as Float32Array)
    await plan.run({ x: Float32Array.of(1, 10) })
    await plan.runBound(4)
    await plan.fetchState()
    t.same(of('sum'), [5, 50])
    t.same(of('before'), [4, 40], 'what another state was')
    t.same(of('earlier'), [3, 30])
    t.same(
      [of('left'), of('right')],
      [
        [3, 4],
        [1, 2],
      ],
      'two states that change their values, an odd number of times',
    )
    t.same(of('kept'), [5, 6])
    t.same(of('step').map(Number), [5, 5], 'the first value of a state of integers is no constant')
    t.same(of('record'), [1, 2, 3, 4, 5, 0, 0, 0, 10, 20, 30, 40, 50, 0, 0, 0])
    t.same(output('next'), [5, 50])
    t.same(output('sum'), [4, 40], 'an output that is a state is what it was before the last run')
    t.same(output('product'), [4, 400])
    t.same(output('recorded'), of('record'))
  })

  t.test(`a signal ends many runs on ${backend}`, async t => {
    const graph = makeGraph({
      inputs: ['sum', 'x'].map(name => ({ name, type: tensorType('f32', [1000]) })),
      nodes: [makeNode('Add', ['sum', 'x'], ['next'])],
      outputs: [{ name: 'next' }],
      updates: new Map([['sum', 'next']]),
    })
    using plan = await planOf(graph, backend)
    await plan.run({ x: new Float32Array(1000).fill(1) })
    const stop = new AbortController()
    const runs = plan.runBound(2 ** 40, stop.signal)
    setTimeout(() => stop.abort(new Error('enough')), 20)
    await t.rejects(runs, { message: 'enough' })
    t.ok(plan.state('sum')[0]! > 1, 'it had run')
    await t.rejects(plan.runBound(2, AbortSignal.abort(new Error('before'))), { message: 'before' })
    await plan.runBound(1)
  })
}
