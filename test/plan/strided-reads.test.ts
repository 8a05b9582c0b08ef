// Transposes and slices in front of products and attention are read where the elements were.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

/** What moves elements, and what reads them then: y. */
interface Case {
  readonly name: string
  readonly shapes: Readonly<Record<string, readonly number[]>>
  readonly moves: readonly Node[]
  readonly uses: readonly Node[]
  /** Copies that are left. */
  readonly copies: number
}

const transpose = (from: string, to: string, ...perm: readonly number[]): Node =>
  makeNode('Transpose', [from], [to], { attributes: { perm: ints(perm) } })
const product = makeNode('MatMul', ['p', 'q'], ['y'])

const cases: readonly Case[] = [
  {
    name: 'both sides of a product turned',
    shapes: { a: [5, 3], b: [7, 5] },
    moves: [transpose('a', 'p', 1, 0), transpose('b', 'q', 1, 0)],
    uses: [product],
    copies: 0,
  },
  {
    name: 'heads split from columns',
    shapes: { a: [2, 5, 3, 4], b: [2, 7, 3, 4] },
    moves: [transpose('a', 'p', 0, 2, 1, 3), transpose('b', 'q', 0, 2, 3, 1)],
    uses: [product],
    copies: 0,
  },
  {
    name: 'columns of a slice of rows that are turned',
    shapes: { a: [5, 3], q: [3, 4] },
    moves: [transpose('a', 'turned', 1, 0), makeNode('Slice', ['turned', 'from', 'to', 'last'], ['p'])],
    uses: [product],
    copies: 0,
  },
  {
    name: 'neither rows nor columns without gaps',
    shapes: { a: [3, 2, 5, 2], q: [5, 4] },
    moves: [makeNode('Slice', ['a', 'last', 'end', 'last'], ['thin']), transpose('thin', 'p', 3, 1, 0, 2)],
    uses: [product],
    copies: 1,
  },
  {
    name: 'a third of the columns each for queries, keys and values',
    shapes: { x: [2, 5, 18] },
    moves: [makeNode('Split', ['x', 'thirds'], ['p', 'q', 'v'], { attributes: { axis: int(-1) } })],
    uses: [
      makeNode('Attention', ['p', 'q', 'v'], ['y'], {
        attributes: { q_num_heads: int(2), kv_num_heads: int(2), scale: float(0.5) },
      }),
    ],
    copies: 0,
  },
  {
    name: 'what another kernel reads, too',
    shapes: { a: [5, 3], q: [5, 4] },
    moves: [transpose('a', 'p', 1, 0)],
    uses: [
      makeNode('MatMul', ['p', 'q'], ['product']),
      makeNode('Softmax', ['p'], ['shares']),
      makeNode('MatMul', ['shares', 'q'], ['other']),
      makeNode('Add', ['product', 'other'], ['y']),
    ],
    copies: 1,
  },
]

const graphOf = (shapes: Case['shapes'], nodes: readonly Node[], outputs: readonly string[]): Graph =>
  makeGraph({
    inputs: Object.entries(shapes).map(([name, shape]) => ({ name, type: tensorType('f32', shape) })),
    outputs: outputs.map(name => ({ name })),
    nodes,
    initializers: new Map([
      ['from', Constant.i64([1])],
      ['to', Constant.i64([4])],
      ['last', Constant.i64([-1])],
      ['end', Constant.i64([9])],
      ['thirds', Constant.i64([6, 6, 6])],
    ]),
  })

/** y of a case, its moves made by a plan of their own. */
async function inTwoPlans({ shapes, moves, uses }: Case, feeds: Record<string, Float32Array>) {
  const kernels = await openKernels({ backend: 'js' })
  const made = ['p', 'q', 'v'].filter(name => moves.some(node => node.outputs.includes(name)))
  using first = await Plan.create(graphOf(shapes, moves, made), kernels)
  const { ...values }: Record<string, Float32Array> = {
    ...feeds,
    ...((await first.run(feeds)) as typeof feeds),
  }
  const between = { ...shapes, ...Object.fromEntries(first.outputs.map(({ name, shape }) => [name, shape])) }
  const read = Object.entries(between).filter(([name]) => uses.some(({ inputs }) => inputs.includes(name)))
  using second = await Plan.create(graphOf(Object.fromEntries(read), uses, ['y']), kernels)
  const { y } = await second.run(Object.fromEntries(read.map(([name]) => [name, values[name]!])))
  return (y as Float32Array).slice()
}

for (const each of cases) {
  t.test(each.name, async t => {
    const { shapes, moves, uses, copies } = each
    const graph = graphOf(shapes, [...moves, ...uses], ['y'])
    t.equal(
      compile(graph).steps.filter(({ op }) => op === 'copyStrided').length,
      copies,
      'copies that are left',
    )
    const random = randomGenerator(5)
    const feeds = Object.fromEntries(
      Object.entries(shapes).map(([name, shape]) => [name, uniform(random, numel(shape))]),
    )
    const expected = await inTwoPlans(each, feeds)
    for (const backend of backends) {
      using plan = await Plan.create(graph, await openKernels({ backend }))
      const { y } = await plan.run(feeds)
      close(t, y as Float32Array, expected, 1e-6, backend)
    }
  })
}
