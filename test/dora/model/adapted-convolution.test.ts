// The precision of a convolution beside an adapter, by the mode and the backend.
import { Tensor } from 'dgx-spark'
import t from 'tap'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { insertDora } from '#lib/graph/rewrites/insert-dora.js'
import { roundWeights } from '#lib/graph/rewrites/round-weights.js'
import { weightConstant } from '#lib/graph/weight-constant.js'
import { compile } from '#lib/plan/compile.js'
import { storeWeight } from '#lib/weights/encode.js'
import { randomGenerator } from '../../fixtures/values/random.js'
import { randomConstants } from '../../fixtures/values/random-tensors.js'

const f32 = randomConstants(randomGenerator(5))

t.test('a convolution beside an adapter takes tensor cores of a GPU in modes of 16 bits', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1, 8, 6, 6]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Conv', ['x', 'w'], ['y'])],
    initializers: new Map([['w', f32(16, 8, 3, 3)]]),
  })
  const [a, b, magnitude] = [f32(2, 8, 3, 3), f32(16, 2, 1, 1), f32(16)]
  const adapted = insertDora(graph, [{ weight: 'w', module: 'w', a, b, magnitude, scale: 1 }])
  for (const [mode, compute] of [
    ['fp32', 'f32'],
    ['fp16', 'f16'],
    ['bf16', 'bf16'],
    ['fp8', 'bf16'],
  ] as const) {
    for (const backend of ['cuda', 'cpu'] as const) {
      const { steps } = compile(roundWeights(adapted, { mode }), { backend, bf16Support: 'matrix' })
      const computes = steps.flatMap(({ op, args }) => (op === 'conv' ? [args.compute] : []))
      t.same(computes, [backend === 'cuda' ? compute : 'f32'], `${mode} on ${backend}`)
    }
  }
  const w = graph.initializers.get('w')!.data as Float32Array
  const codes = storeWeight(Tensor.from(w, { shape: [16, 72] }), 'fp8')
  const exact = weightConstant([16, 8, 3, 3], codes, { transposed: false, exact: true })
  const coded = { ...adapted, initializers: new Map([...adapted.initializers, ['w', exact]]) }
  const { steps } = compile(coded, { backend: 'cuda', bf16Support: 'matrix' })
  const computes = steps.flatMap(({ op, args }) => (op === 'conv' ? [args.compute] : []))
  t.same(computes, ['f32'], 'nothing is rounded beside the codes of a file')
})
