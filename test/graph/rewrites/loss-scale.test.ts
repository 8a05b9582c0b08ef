// The factor of the loss: what it multiplies, what takes it out of gradients again, and steps that change nothing.
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import {
  addLossScale,
  lossScale,
  skipUnlessFinite,
  unscaleGradients,
} from '#lib/graph/rewrites/loss-scale.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'
import { identical } from '../../fixtures/close.js'

/** loss = Σ w² x */
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [3]) }],
  outputs: [{ name: 'loss' }],
  nodes: [
    makeNode('Mul', ['w', 'w'], ['square']),
    makeNode('Mul', ['square', 'x'], ['product']),
    makeNode('ReduceSum', ['product'], ['loss'], { attributes: { keepdims: int(0) } }),
  ],
  initializers: new Map([['w', Constant.f32([1, -2, 0.3])]]),
})
const x = Float32Array.of(0.1, 7, -3)

t.test('gradients of the scaled loss, divided, are those of the loss', async t => {
  const scaled = addLossScale(graph, 'loss')
  const { graph: both, gradients } = differentiate(scaled.graph, { loss: scaled.loss, wrt: ['w'] })
  const divided = unscaleGradients(both, gradients)
  const [large, plain] = [gradients.get('w')!, divided.gradients.get('w')!]
  const outputs = ['loss', scaled.loss, large, plain].map(name => ({ name }))
  using plan = await Plan.create({ ...divided.graph, outputs }, jsKernels)
  const expected = Float32Array.of(1, -2, 0.3).map((w, i) => Math.fround(2 * w) * x[i]!)
  for (const scale of [1, 65536, 2 ** -20]) {
    const results = await plan.run({ x, [lossScale]: Float32Array.of(scale) })
    const values = (name: string) => Float32Array.from(results[name] as Float32Array)
    identical(
      t,
      values(scaled.loss),
      values('loss').map(loss => scale * loss),
      `loss · ${scale}`,
    )
    identical(
      t,
      values(large),
      values(plain).map(slope => scale * slope),
      `gradient · ${scale}`,
    )
    for (const [i, slope] of expected.entries())
      t.ok(Math.abs(values(plain)[i]! - slope) <= 1e-6 * Math.abs(slope))
  }
})

t.test('a state changes only where the norm is finite', async t => {
  const state = makeGraph({
    inputs: [
      { name: 'norm', type: tensorType('f32', []) },
      { name: 'next', type: tensorType('f32', [2]) },
    ],
    outputs: [{ name: 'copy' }],
    nodes: [makeNode('Identity', ['next'], ['copy'])],
    initializers: new Map([['w', Constant.f32([1, 2])]]),
    updates: new Map([['w', 'copy']]),
  })
  const made = skipUnlessFinite(state, 'norm')
  t.strictSame([...made.updates!.keys()], ['w'])
  using plan = await Plan.create(made, jsKernels)
  const after = async (norm: number, next: number[]) => {
    await plan.run({ norm: Float32Array.of(norm), next: Float32Array.from(next) })
    return [...(plan.state('w') as Float32Array)]
  }
  t.strictSame(await after(3.4028234663852886e38, [3, 4]), [3, 4], 'the largest f32 is finite')
  t.strictSame(await after(Number.POSITIVE_INFINITY, [5, 6]), [3, 4])
  t.strictSame(await after(Number.NaN, [5, Number.NaN]), [3, 4])
  t.strictSame(await after(0, [7, 8]), [7, 8])
})
