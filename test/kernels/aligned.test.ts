// Memory that begins where a cache line does.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { optimize } from '#lib/graph/rewrites/optimize.js'
import { allocate } from '#lib/kernels/aligned.js'
import { openKernels } from '#lib/kernels/open.js'
import { requireAddon } from '#lib/native.js'
import { Plan } from '#lib/plan/plan.js'

const isAligned = (array: ArrayBufferView): boolean =>
  (array.byteOffset - requireAddon().linePadding(array.buffer as ArrayBuffer)) % 64 === 0

t.test('room for elements begins with a cache line', async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  for (const bytes of [64, 100, 4096, 1 << 20]) {
    const { buffer, offset } = allocate(bytes, kernels)
    t.ok(buffer.byteLength - offset >= bytes, `${bytes} bytes are there`)
    t.ok(offset < 64)
    t.ok(isAligned(new Uint8Array(buffer, offset, bytes)), `${bytes} bytes`)
  }
})

t.test('packed weights of a plan do', async t => {
  const weight = Constant.f32(
    Array.from({ length: 33 * 70 }, (_, i) => i % 7),
    [33, 70],
  )
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [5, 33]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
    initializers: new Map([['w', weight]]),
  })
  using plan = await Plan.create(optimize(graph).graph, await openKernels({ backend: 'cpu' }))
  t.equal(plan.constants.length, 1)
  for (const array of plan.constants) t.ok(isAligned(array))
})

t.test('other backends have no preference', async t => {
  t.same(allocate(100, await openKernels({ backend: 'js' })), { buffer: new ArrayBuffer(100), offset: 0 })
})
