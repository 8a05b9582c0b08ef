// A layer and a DoRA node of a graph are the same kernels in the same order: passes and gradients agree bit for bit.
import { DoRALinear, type NormGradient, Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Graph, makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../fixtures/backends.js'
import { identical } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const [tokens, cols, rows, rank, alpha] = [5, 37, 19, 3, 6] as const

const shapes = {
  x: [tokens, cols],
  w: [rows, cols],
  a: [rank, cols],
  b: [rows, rank],
  magnitude: [rows],
  bias: [rows],
  mask: [tokens, cols],
  dy: [tokens, rows],
}
type Name = keyof typeof shapes

const random = randomGenerator(29)
const values = Object.fromEntries(
  Object.entries(shapes).map(([name, shape]) => [name, uniform(random, numel(shape))]),
) as Record<Name, Float32Array>
const tensor = (name: Name) => Tensor.from(values[name], { shape: shapes[name] })
const differentiated: readonly Name[] = ['x', 'a', 'b', 'magnitude', 'bias']

/** y = DoRA(x) and the gradients of Σ y · dy, whose gradient with respect to y is dy. */
function graphOf(normGradient: NormGradient, withMask: boolean): { graph: Graph; gradients: string[] } {
  const inputs: Name[] = ['x', 'a', 'b', 'magnitude', 'bias', 'dy', ...(withMask ? ['mask' as const] : [])]
  const attributes = { scale: float(alpha / rank), norm_gradient: string(normGradient) }
  const operands = ['x', 'w', 'a', 'b', 'magnitude', 'bias', ...(withMask ? ['mask'] : [])]
  const forward = makeGraph({
    inputs: inputs.map(name => ({ name, type: tensorType('f32', shapes[name]) })),
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('DoRA', operands, ['y'], { domain: sparkDomain, attributes }),
      makeNode('Mul', ['y', 'dy'], ['products']),
      makeNode('ReduceSum', ['products'], ['loss'], { attributes: { keepdims: { type: 'int', value: 0 } } }),
    ],
    initializers: new Map([['w', Constant.from('f32', shapes.w, values.w)]]),
    opsets: new Map([
      ['', 28],
      [sparkDomain, 1],
    ]),
  })
  const { graph, gradients } = differentiate(forward, { loss: 'loss', wrt: differentiated })
  const names = differentiated.map(name => gradients.get(name)!)
  return { graph: { ...graph, outputs: ['y', ...names].map(name => ({ name })) }, gradients: names }
}

for (const backend of backends) {
  for (const normGradient of ['detached', 'exact'] as const) {
    for (const withMask of [false, true]) {
      t.test(`${backend}, norm ${normGradient}, ${withMask ? 'with' : 'without'} a mask`, async t => {
        const { graph, gradients } = graphOf(normGradient, withMask)
        using plan = await Plan.create(graph, await openKernels({ backend }))
        const feeds = Object.fromEntries(plan.inputs.map(({ name }) => [name, values[name as Name]]))
        const expected = await plan.run(feeds)

        const initial = { a: tensor('a'), b: tensor('b'), magnitude: tensor('magnitude') }
        using layer = await DoRALinear.fromLinear(
          { weight: tensor('w'), bias: tensor('bias') },
          { backend, rank, alpha, normGradient, initial },
        )
        const mask = withMask ? { mask: tensor('mask') } : {}
        const y = await layer.forward(tensor('x'), { training: true, ...mask })
        identical(t, y.data, expected.y as Float32Array, 'y')
        const actual = await layer.backward(tensor('dy'))
        for (const [i, name] of differentiated.entries()) {
          const gradient = actual[name as keyof typeof actual]!.toFloat32()
          identical(t, gradient, expected[gradients[i]!] as Float32Array, `gradient of ${name}`)
        }
      })
    }
  }
}
