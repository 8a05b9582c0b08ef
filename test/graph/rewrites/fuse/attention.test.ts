// Attention from products and softmax, with and without splitting heads.
import t from 'tap'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { openKernels } from '#lib/kernels/open.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../../fixtures/backends.js'
import { close } from '../../../fixtures/close.js'
import { operators, sameOptimized } from '../../../fixtures/models/optimized.js'
import { typed } from '../../../fixtures/one-node.js'
import { randomFeeds, runOnnxRuntime } from '../../../fixtures/onnx-runtime.js'

const perm = (...axes: number[]) => ({ attributes: { perm: ints(axes) } })
const lower = Array.from({ length: 25 }, (_, i) => (i % 5 <= Math.floor(i / 5) ? 1 : 0))

/** y from q, k, v, each [2, 5, 3 · 4], which are split into 3 heads. */
function graphOf(
  masking: readonly Node[],
  turned: readonly Node[],
  constants: Readonly<Record<string, Constant>> = {},
): Graph {
  const split = (name: string): Node => makeNode('Reshape', [name, 'split'], [`${name}/parts`])
  return makeGraph({
    inputs: ['q', 'k', 'v'].map(name => ({ name, type: tensorType('f32', [2, 5, 12]) })),
    outputs: [{ name: 'y' }],
    nodes: [
      ...['q', 'k', 'v'].map(split),
      makeNode('Transpose', ['q/parts'], ['q4'], perm(0, 2, 1, 3)),
      makeNode('Transpose', ['v/parts'], ['v4'], perm(0, 2, 1, 3)),
      ...turned,
      makeNode('MatMul', ['q4', 'kt'], ['product']),
      makeNode('Div', ['product', 'root'], ['scores']),
      ...masking,
      makeNode('Softmax', ['masked'], ['p'], { attributes: { axis: int(-1) } }),
      makeNode('MatMul', ['p', 'v4'], ['y4']),
      makeNode('Transpose', ['y4'], ['y3'], perm(0, 2, 1, 3)),
      makeNode('Reshape', ['y3', 'joined'], ['y']),
    ],
    initializers: new Map([
      ['split', Constant.i64([2, 5, 3, 4])],
      ['joined', Constant.i64([2, 5, 12])],
      ['root', Constant.f32(2)],
      ['hidden', Constant.f32(Number.NEGATIVE_INFINITY)],
      ['seen', Constant.from('bool', [1, 1, 5, 5], Uint8Array.from(lower))],
      [
        'blind',
        Constant.from(
          'bool',
          [1, 1, 5, 5],
          Uint8Array.from(lower, value => 1 - value),
        ),
      ],
      [
        'bias',
        Constant.f32(
          lower.map(value => value - 0.5),
          [5, 5],
        ),
      ],
      ...Object.entries(constants),
    ]),
  })
}

const direct = [makeNode('Transpose', ['k/parts'], ['kt'], perm(0, 2, 3, 1))]
const twice = [
  makeNode('Transpose', ['k/parts'], ['k4'], perm(0, 2, 1, 3)),
  makeNode('Transpose', ['k4'], ['kt'], perm(0, 1, 3, 2)),
]
const maskings = {
  none: [makeNode('Identity', ['scores'], ['masked'])],
  added: [makeNode('Add', ['scores', 'bias'], ['masked'])],
  seen: [makeNode('Where', ['seen', 'scores', 'hidden'], ['masked'])],
  hidden: [makeNode('Where', ['blind', 'hidden', 'scores'], ['masked'])],
}

for (const [name, masking] of Object.entries(maskings)) {
  t.test(`mask: ${name}`, async t => {
    for (const turned of [direct, twice]) {
      const { graph, fusions } = await sameOptimized(t, graphOf(masking, turned))
      t.equal(fusions.get('attention heads'), 1)
      t.same(operators(graph), { ...(name === 'hidden' ? { Not: 1 } : {}), Attention: 1 })
    }
  })
}

// The second query sees no key, the fourth the first one only.
const rows = ['10110', '00000', '11111', '10000', '01101'].flatMap(row => [...row].map(Number))

for (const low of [-1e4, -1e9, -3.4028234663852886e38]) {
  t.test(`rows whose keys are all hidden by ${low}`, async t => {
    const constants = {
      hidden: Constant.f32(low),
      seen: Constant.from('bool', [1, 1, 5, 5], Uint8Array.from(rows)),
      blind: Constant.from(
        'bool',
        [1, 1, 5, 5],
        Uint8Array.from(rows, value => 1 - value),
      ),
      bias: Constant.f32(
        rows.map(value => (1 - value) * low),
        [5, 5],
      ),
    }
    for (const name of ['added', 'seen', 'hidden'] as const) {
      const graph = graphOf(maskings[name], direct, constants)
      // What is left of a score beside -1e4 is a multiple of 2^-10.
      const limit = low === -1e4 && name === 'added' ? 2 ** -9 : 1e-5
      const { fusions, graph: fused } = await sameOptimized(t, graph, limit)
      t.equal(fusions.get('attention heads'), 1, name)
      const feeds = randomFeeds(graph, 3)
      const { y } = await runOnnxRuntime(serializeOnnx(typed(graph)), feeds)
      for (const backend of backends) {
        using plan = await Plan.create(fused, await openKernels({ backend }))
        const given = Object.fromEntries(Array.from(feeds, ([input, { data }]) => [input, data]))
        const outputs = await plan.run(given)
        close(t, outputs.y as Float32Array, y!.data as Float32Array, limit, `${name} on ${backend}`)
      }
    }
  })
}

t.test('a mask that all keys share', async t => {
  const narrow = {
    bias: Constant.f32([1, 2, -1, 0, 3], [5, 1]),
    seen: Constant.from('bool', [5, 1], Uint8Array.of(1, 0, 1, 1, 0)),
    hidden: Constant.f32(-1e9),
  }
  for (const name of ['added', 'seen'] as const) {
    const { fusions } = await sameOptimized(t, graphOf(maskings[name], direct, narrow))
    t.notOk(fusions.has('attention'), name)
  }
})

t.test('a scale of 0 is no default', async t => {
  const root = Constant.f32(Number.POSITIVE_INFINITY)
  const { fusions } = await sameOptimized(t, graphOf(maskings.none, direct, { root }))
  t.equal(fusions.get('attention'), 1)
})

t.test('scores that are an output stay', async t => {
  const graph = graphOf(maskings.none, direct)
  const { fusions } = await sameOptimized(t, { ...graph, outputs: [...graph.outputs, { name: 'p' }] })
  t.notOk(fusions.has('attention'))
})
