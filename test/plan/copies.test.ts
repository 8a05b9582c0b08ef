// Concatenations and slices that copy nothing.
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'

const axis = { attributes: { axis: int(0) } }
/** x [3, 2]: parts are computed, joined, joined again and cut. */
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [3, 2]) }],
  outputs: [{ name: 'y' }, { name: 'all' }],
  nodes: [
    makeNode('Neg', ['x'], ['a']),
    makeNode('Add', ['x', 'x'], ['b']),
    makeNode('Concat', ['a', 'b'], ['ab'], axis),
    makeNode('Relu', ['b'], ['c']),
    makeNode('Concat', ['ab', 'c', 'c', 'x'], ['all'], axis),
    makeNode('Slice', ['all', 'from', 'to', 'rows'], ['cut']),
    makeNode('Abs', ['cut'], ['positive']),
    makeNode('Sub', ['positive', 'cut'], ['y']),
  ],
  initializers: new Map([
    ['from', Constant.i64([1])],
    ['to', Constant.i64([5])],
    ['rows', Constant.i64([0])],
  ]),
})

t.test('only what is there already, or twice, is copied', async t => {
  const copies = compile(graph).steps.filter(({ op }) => op === 'copyStrided')
  t.equal(copies.length, 2, 'the second c and the input x')
})

for (const backend of backends) {
  t.test(`values on ${backend}`, async t => {
    using plan = await Plan.create(graph, await openKernels({ backend }))
    const x = Float32Array.of(1, -2, 3, 4, -5, 6)
    for (let run = 0; run < 2; run++) {
      const { y, all } = await plan.run({ x })
      const [a, b] = [x.map(value => -value), x.map(value => 2 * value)]
      const c = b.map(value => Math.max(value, 0))
      const joined = [...a, ...b, ...c, ...c, ...x]
      t.same([...(all as Float32Array)], joined)
      t.same(
        [...(y as Float32Array)],
        joined.slice(2, 10).map(value => Math.abs(value) - value),
      )
    }
  })
}

t.test('a profile names every call', async t => {
  using plan = await Plan.create(graph, await openKernels({ backend: 'js' }))
  const times = await plan.profile(2)
  t.equal(times.length, plan.stats.steps)
  t.ok(times.every(({ ms, sizes }) => ms >= 0 && sizes.length > 0))
})
