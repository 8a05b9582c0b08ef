// Recomputation in the backward pass: the same bits with less memory.
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { recompute } from '#lib/graph/rewrites/recompute.js'
import { checkGraph } from '#lib/graph/validate.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'
import { randomGenerator } from '../../fixtures/values/random.js'

const depth = 12

function network() {
  const random = randomGenerator(3)
  const nodes = Array.from({ length: depth }, (_, layer) => [
    makeNode('MatMul', [`a${layer}`, `w${layer}`], [`h${layer}`]),
    makeNode('Tanh', [`h${layer}`], [`t${layer}`]),
    // Every second layer has a way around it, so that values cross more than one run.
    layer % 2 === 0
      ? makeNode('Identity', [`t${layer}`], [`a${layer + 1}`])
      : makeNode('Add', [`t${layer}`, `a${layer - 1}`], [`a${layer + 1}`]),
  ]).flat()
  const weight = () =>
    Constant.f32(
      Array.from({ length: 25 }, () => random() - 0.5),
      [5, 5],
    )
  const square = [
    makeNode('Mul', [`a${depth}`, `a${depth}`], ['square']),
    makeNode('ReduceSum', ['square'], ['loss'], { attributes: { keepdims: int(0) } }),
  ]
  return makeGraph({
    inputs: [{ name: 'a0', type: tensorType('f32', [333, 5]) }],
    outputs: [{ name: 'loss' }],
    nodes: [...nodes, ...square],
    initializers: new Map(Array.from({ length: depth }, (_, layer) => [`w${layer}`, weight()])),
  })
}

t.test('the same bits with less memory', async t => {
  const forward = network()
  const wrt = Array.from({ length: depth }, (_, layer) => `w${layer}`)
  const { graph, gradients } = differentiate(forward, { loss: 'loss', wrt })
  const whole = { ...graph, outputs: [...graph.outputs, ...[...gradients.values()].map(name => ({ name }))] }
  const random = randomGenerator(5)
  const a0 = Float32Array.from({ length: 333 * 5 }, () => random() - 0.5)
  const run = async (segments: number) => {
    const rewritten = recompute(whole, { forward: forward.nodes.length, segments })
    checkGraph(rewritten, 'recomputed')
    using plan = await Plan.create(rewritten, jsKernels)
    const results = await plan.run({ a0 })
    const bytes = Object.values(results).map(array => Buffer.from(array.slice().buffer as ArrayBuffer))
    return { bytes: Buffer.concat(bytes), ...plan.stats, nodes: rewritten.nodes.length }
  }
  const plain = await run(1)
  t.equal(plain.nodes, whole.nodes.length)
  for (const segments of [2, 3, 4, 7]) {
    const { bytes, arenaBytes, nodes } = await run(segments)
    t.ok(bytes.equals(plain.bytes), `${segments} runs`)
    t.ok(arenaBytes < 0.9 * plain.arenaBytes, `${arenaBytes} bytes instead of ${plain.arenaBytes}`)
    t.ok(nodes > plain.nodes)
  }
})
