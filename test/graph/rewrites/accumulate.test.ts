// A step over several parts: weighted sums of what each part gives, in plain loops, also where parts differ in size.
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { accumulate, partName } from '#lib/graph/rewrites/accumulate.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'
import { close } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

/** s = Σ (x · w')² / n with w' = w + b, and t = Σ w'²: s varies from part to part, t does not. */
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', ['n', 3]) }],
  outputs: [{ name: 's' }, { name: 't' }, { name: 'y' }],
  nodes: [
    makeNode('Add', ['w', 'b'], ['sum']),
    makeNode('MatMul', ['x', 'sum'], ['y']),
    makeNode('Mul', ['y', 'y'], ['squares']),
    makeNode('ReduceMean', ['squares'], ['s'], { attributes: { keepdims: int(0) } }),
    makeNode('Mul', ['sum', 'sum'], ['weights']),
    makeNode('ReduceSum', ['weights'], ['t'], { attributes: { keepdims: int(0) } }),
  ],
  initializers: new Map([
    ['w', Constant.f32([1, -2, 3], [3, 1])],
    ['b', Constant.f32([0.5])],
  ]),
})
const adapted = [1.5, -1.5, 3.5]

const random = randomGenerator(4)
const meanOf = (x: Float32Array): number => {
  const rows = x.length / 3
  let sum = 0
  for (let row = 0; row < rows; row++) {
    sum += adapted.reduce((total, w, i) => total + w * x[3 * row + i]!, 0) ** 2
  }
  return sum / rows
}

for (const sizes of [[5], [2, 3], [4, 1, 2]]) {
  t.test(`parts of ${sizes}`, async t => {
    const total = sizes.reduce((sum, size) => sum + size)
    const weights = sizes.map(size => size / total)
    const made = accumulate(graph, { inputs: ['x'], values: ['s', 't'], weights })
    t.strictSame(
      made.inputs.map(({ name }) => name),
      sizes.map((_, part) => partName('x', part)),
    )
    t.strictSame(
      made.outputs.map(({ name }) => name),
      ['s', 't'],
      'y, of one part only, is no output any more',
    )
    t.equal(
      made.nodes.filter(({ outputs }) => outputs[0] === 'sum').length,
      1,
      'what never varies is not repeated',
    )
    t.equal(made.nodes.filter(({ op }) => op === 'MatMul').length, sizes.length)
    const xs = sizes.map(size => uniform(random, 3 * size))
    const feeds = Object.fromEntries(xs.map((x, part) => [partName('x', part), x]))
    const shapes = Object.fromEntries(sizes.map((size, part) => [partName('x', part), [size, 3]]))
    using plan = await Plan.create(made, jsKernels, { shapes })
    const { s, t: constant } = await plan.run(feeds)
    const expected = xs.reduce((sum, x, part) => sum + weights[part]! * meanOf(x), 0)
    close(t, s as Float32Array, [expected], 1e-6, 's')
    close(t, constant as Float32Array, [1.5 ** 2 + 1.5 ** 2 + 3.5 ** 2], 1e-6, 't counts once')
  })
}

t.test('names that parts would take, and subgraphs', async t => {
  const branch = (scale: number) => ({
    type: 'graph' as const,
    value: makeGraph({
      nodes: [makeNode('Mul', ['x', 'inner'], ['scaled'])],
      outputs: [{ name: 'scaled' }],
      initializers: new Map([['inner', Constant.f32(scale)]]),
    }),
  })
  const odd = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [2]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('If', ['yes'], ['chosen'], {
        attributes: { then_branch: branch(2), else_branch: branch(3) },
      }),
      makeNode('Add', ['chosen', 'y/part1'], ['y']),
    ],
    initializers: new Map([
      ['yes', Constant.from('bool', [], Uint8Array.of(1))],
      ['y/part1', Constant.f32([10, 20])],
    ]),
  })
  const made = accumulate(odd, { inputs: ['x'], values: ['y'], weights: [0.25, 0.75] })
  const defined = made.nodes.flatMap(({ outputs }) => outputs)
  t.equal(new Set([...defined, ...made.initializers.keys()]).size, defined.length + made.initializers.size)
  const inner = made.nodes.flatMap(({ attributes }) =>
    Object.values(attributes).flatMap(attribute =>
      attribute.type === 'graph' ? attribute.value.nodes.flatMap(({ outputs }) => outputs) : [],
    ),
  )
  t.equal(new Set(inner).size, 4, 'values inside of branches have names of their own, too')
})
