// Plans: what is compiled away, what stays from run to run, and what a caller can get wrong.
import t, { type Test } from 'tap'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan, type PlanOptions } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { takeAway, transfer } from '../fixtures/values/odd-values.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'
import { randomConstants } from '../fixtures/values/random-tensors.js'

const random = randomGenerator(5)
const f32 = randomConstants(random)

const weights = new Map([
  ['w1', f32(5, 7)],
  ['b1', f32(5)],
  ['c', f32(5)],
  ['w2', f32(5, 3)],
])

/** Two layers, a residual, a normalization: y [N, 3] from x [N, 7]. */
function network(parts: Partial<Graph> = {}): Graph {
  return makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['N', 7]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Gemm', ['x', 'w1', 'b1'], ['h'], { attributes: { transB: { type: 'int', value: 1 } } }),
      makeNode('Relu', ['h'], ['r']),
      makeNode('Mul', ['r', 'r'], ['square']),
      makeNode('Add', ['square', 'h'], ['sum']),
      makeNode('Neg', ['c'], ['negated']),
      makeNode('Add', ['sum', 'negated'], ['moved']),
      makeNode('Exp', ['h'], ['nobody reads this']),
      makeNode('MatMul', ['moved', 'w2'], ['product']),
      makeNode('Shape', ['product'], ['size']),
      makeNode('Reshape', ['product', 'size'], ['same']),
      makeNode('Softmax', ['same'], ['y']),
    ],
    initializers: weights,
    ...parts,
  })
}

async function planOf(graph: Graph, backend: 'js' | 'cpu', options: PlanOptions = {}): Promise<Plan> {
  return Plan.create(graph, await openKernels({ backend }), options)
}

const shapes = { x: [3, 7] }

for (const backend of backends) {
  t.test(`results on ${backend}`, async t => {
    using plan = await planOf(network(), backend, { shapes })
    using exact = await planOf(network(), 'js', { shapes, double: true })
    const x = uniform(random, 21)
    const expected = (await exact.run({ x: Float64Array.from(x) })).y as Float64Array
    for (let run = 0; run < 3; run++)
      close(t, (await plan.run({ x })).y as Float32Array, expected, 2e-6, `run ${run}`)
    close(
      t,
      (await plan.run({ x: x.map(v => v / 2) })).y as Float32Array,
      (await exact.run({ x: Float64Array.from(x, v => v / 2) })).y as Float64Array,
      2e-6,
      'other inputs',
    )
    t.same(
      plan.inputs.map(({ name, shape }) => [name, shape]),
      [['x', [3, 7]]],
    )
    t.same(
      plan.outputs.map(({ name, shape }) => [name, shape]),
      [['y', [3, 3]]],
    )
  })

  t.test(`state on ${backend}`, async t => {
    // total ← total + x is copied back at the end; parameter ← AdamW(parameter) is written in place.
    const graph = makeGraph({
      inputs: [
        { name: 'x', type: tensorType('f32', [3]) },
        ...['rate', 'step'].map(name => ({ name, type: tensorType('f64', []) })),
      ],
      outputs: [{ name: 'next total' }, { name: 'before' }],
      nodes: [
        makeNode('AdamW', ['rate', 'step', 'p', 'x', 'm', 'v'], ['p1', 'm1', 'v1'], { domain: sparkDomain }),
        makeNode('Add', ['total', 'x'], ['next total']),
        makeNode('Mul', ['p', 'two'], ['before']),
      ],
      initializers: new Map([
        ...['p', 'm', 'v', 'total'].map(name => [name, Constant.f32([0, 0, 0])] as const),
        ['two', Constant.f32(2)],
      ]),
      updates: new Map([
        ['p', 'p1'],
        ['m', 'm1'],
        ['v', 'v1'],
        ['total', 'next total'],
      ]),
    })
    using plan = await planOf(graph, backend)
    const feeds = (step: number) => ({
      x: Float32Array.of(1, -2, 3),
      rate: Float64Array.of(0.125),
      step: Float64Array.of(step),
    })
    const first = await plan.run(feeds(1))
    t.same([...first['next total']!], [1, -2, 3])
    t.same([...first.before!], [0, 0, 0], 'readers of a parameter come before its update')
    close(t, plan.state('p') as Float32Array, [-0.125, 0.125, -0.125], 1e-6, 'a first step of AdamW')
    const second = await plan.run(feeds(2))
    t.same([...second['next total']!], [2, -4, 6])
    close(
      t,
      second.before as Float32Array,
      [-0.25, 0.25, -0.25],
      1e-6,
      'twice the parameter of the first run',
    )
    ;(plan.state('total') as Float32Array).fill(10)
    t.same([...(await plan.run(feeds(3)))['next total']!], [11, 8, 13], 'state can be set')
    t.throws(() => plan.state('x'), { code: 'ERR_ARGUMENT', message: /no state 'x'/ })
  })

  t.test(`labels are checked at each run on ${backend}`, async t => {
    const graph = makeGraph({
      inputs: [{ name: 'labels', type: tensorType('i32', [2]) }],
      outputs: [{ name: 'loss' }],
      nodes: [makeNode('SoftmaxCrossEntropyLoss', ['scores', 'labels'], ['loss'])],
      initializers: new Map([['scores', f32(2, 3)]]),
    })
    using plan = await planOf(graph, backend)
    await plan.run({ labels: Int32Array.of(0, 2) })
    await t.rejects(plan.run({ labels: Int32Array.of(0, 3) }), {
      code: 'ERR_ARGUMENT',
      message: /labels\[1\] is 3/,
    })
    await t.resolves(plan.run({ labels: Int32Array.of(1, 1) }), 'the plan works on')
  })
}

t.test('what is compiled away', async t => {
  using plan = await planOf(network(), 'js', { shapes })
  // Gemm, Relu, Mul, Add, Add, MatMul and Softmax; Neg of a constant, Exp and the shapes are gone.
  t.equal(plan.stats.steps, 7)
  t.equal(plan.stats.setupSteps, 1)
  t.ok(plan.stats.lowerBound <= plan.stats.arenaBytes)
  t.ok(plan.stats.arenaBytes < 8 * 64, 'values in between share memory')
})

t.test('wrong feeds', async t => {
  using plan = await planOf(network(), 'js', { shapes })
  const x = new Float32Array(21)
  await t.rejects(plan.run({}), {
    code: 'ERR_ARGUMENT',
    message: /feeds\['x'\] must be a Float32Array for f32, got undefined/,
  })
  await t.rejects(plan.run({ x: new Float64Array(21) }), { code: 'ERR_ARGUMENT', message: /Float32Array/ })
  await t.rejects(plan.run({ x: new Float32Array(20) }), {
    code: 'ERR_SHAPE',
    message: /20 elements.*\[3, 7\] has 21/,
  })
  await t.rejects(plan.run({ x, z: x }), { code: 'ERR_ARGUMENT', message: /no input 'z'; it has: x/ })
  plan.dispose()
  plan.dispose()
  await t.rejects(plan.run({ x }), { code: 'ERR_DISPOSED' })
})

t.test('graphs that cannot be compiled', async t => {
  const fails = (
    t: Test,
    graph: Graph,
    expected: { code: string; message?: RegExp },
    options: PlanOptions = { shapes },
  ) => t.rejects(planOf(graph, 'js', options), expected)
  await fails(t, network(), { code: 'ERR_SHAPE', message: /input 'x' has the shape \[N, 7\]/ }, {})
  await fails(t, network(), { code: 'ERR_SHAPE' }, { shapes: { x: [3, 8] } })
  await fails(t, network(), { code: 'ERR_ARGUMENT', message: /shapes\.z/ }, { shapes: { z: [3] } })
  const nodes = [makeNode('Chirp', ['x'], ['y'], { name: 'bird' })]
  await fails(t, network({ nodes }), { code: 'ERR_UNSUPPORTED', message: /'bird' \(Chirp\)/ })
  await fails(t, network({ outputs: [{ name: 'z' }] }), { code: 'ERR_FORMAT', message: /'z'/ })
  await fails(t, network({ updates: new Map([['c', 'y']]) }), {
    code: 'ERR_FORMAT',
    message: /'y' cannot replace 'c'/,
  })
  const sizes = [
    makeNode('Cast', ['x'], ['sizes'], { attributes: { to: int(7) } }),
    makeNode('Reshape', ['x', 'sizes'], ['y']),
  ]
  await fails(t, network({ nodes: sizes }), { code: 'ERR_UNSUPPORTED', message: /depends on data/ })
})

t.test('one run at a time, and no memory that has gone', { skip: !backends.includes('cpu') }, async t => {
  const w = new Float32Array(512 * 512).fill(1)
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [300, 512]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
    initializers: new Map([['w', Constant.from('f32', [512, 512], w)]]),
  })
  using plan = await planOf(graph, 'cpu')
  const x = new Float32Array(300 * 512).fill(1)
  const [first, second] = await Promise.allSettled([plan.run({ x }), plan.run({ x })])
  t.equal(first.status, 'fulfilled')
  t.match(second, { status: 'rejected', reason: { code: 'ERR_ARGUMENT', message: /running/ } })
  t.equal((await plan.run({ x })).y![0], 512)
  const running = plan.run({ x })
  plan.dispose()
  t.equal((await running).y![0], 512, 'a plan that is disposed finishes its run')
  using other = await planOf(graph, 'cpu')
  transfer(w)
  t.equal((await other.run({ x })).y![0], 512, 'a plan holds its constants')
  transfer(x)
  await t.rejects(other.run({ x }), { code: 'ERR_DISPOSED', message: /feeds\['x'\] lies in memory/ })
  if (takeAway(w)) await t.rejects(other.runBound(), { code: 'ERR_DISPOSED', message: /detached/ })
})

t.test('a mean whose window is the whole image is a reduction', async t => {
  const pooling = (kernel: readonly number[], pads: readonly number[]): Graph =>
    makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [2, 3, 5, 7]) }],
      outputs: [{ name: 'y' }],
      nodes: [
        makeNode('AveragePool', ['x'], ['y'], {
          attributes: { kernel_shape: ints(kernel), pads: ints(pads), count_include_pad: int(1) },
        }),
      ],
    })
  const ops = (graph: Graph): string[] => compile(graph).steps.map(({ op }) => op)
  const whole = pooling([5, 7], [0, 0, 0, 0])
  t.same(ops(whole), ['reduce'])
  t.same(ops(pooling([5, 6], [0, 0, 0, 0])), ['pool'])
  t.same(ops(pooling([6, 7], [1, 0, 0, 0])), ['pool'], 'a line of zeros')
  const x = uniform(random, 2 * 3 * 35)
  const means = Float64Array.from({ length: 6 }, (_, plane) => {
    return x.subarray(plane * 35, plane * 35 + 35).reduce((sum, value) => sum + value, 0) / 35
  })
  for (const backend of backends) {
    using plan = await planOf(whole, backend)
    close(t, (await plan.run({ x })).y as Float32Array, means, 1e-6, backend)
  }
})
