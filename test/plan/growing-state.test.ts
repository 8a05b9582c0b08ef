// States that grow: what a run adds is written behind them, and attention reads keys and values where they are.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { compile } from '#lib/plan/compile.js'
import { operandsOf, type Program } from '#lib/plan/program.js'

const [batch, heads, past, added, depth, capacity] = [2, 4, 21, 2, 8, 64]
const rows = [batch, heads, added, depth]
const cache = [batch, heads, past, depth]

interface Case {
  readonly name: string
  readonly nodes: readonly Node[]
  readonly inputs?: Readonly<Record<string, readonly number[]>>
  readonly initializers?: readonly (readonly [string, Constant])[]
  /** Whether the elements before the run stay. */
  readonly keeps?: boolean
  /** Copies of as many elements as a cache has. */
  readonly copies?: number
}

const axis2 = { attributes: { axis: int(2) } }
const joined = ['k', 'v'].map((name, i) =>
  makeNode('Concat', [`past_${name}`, name], [`all_${name}`], { name: `join ${i}`, ...axis2 }),
)
const flat = {
  q: [batch, added, heads * depth],
  k: [batch, added, heads * depth],
  v: [batch, added, heads * depth],
}
const microsoft = { domain: 'com.microsoft' }
const i32 = (shape: readonly number[], ...numbers: number[]) =>
  Constant.from('i32', shape, Int32Array.from(numbers))

const cases: readonly Case[] = [
  {
    name: 'Attention',
    nodes: [
      makeNode('Attention', ['q', 'k', 'v', '', 'past_k', 'past_v'], ['y', 'all_k', 'all_v'], {
        attributes: { is_causal: int(1) },
      }),
    ],
  },
  {
    name: 'Attention of one tensor for all heads',
    inputs: flat,
    nodes: [
      makeNode('Attention', ['q', 'k', 'v', '', 'past_k', 'past_v'], ['y', 'all_k', 'all_v'], {
        attributes: { is_causal: int(1), q_num_heads: int(heads), kv_num_heads: int(heads) },
      }),
    ],
  },
  {
    name: 'MultiHeadAttention',
    inputs: flat,
    nodes: [
      makeNode(
        'MultiHeadAttention',
        ['q', 'k', 'v', '', '', '', 'past_k', 'past_v'],
        ['y', 'all_k', 'all_v'],
        {
          ...microsoft,
          attributes: { num_heads: int(heads) },
        },
      ),
    ],
  },
  {
    name: 'GroupQueryAttention',
    inputs: flat,
    nodes: [
      makeNode(
        'GroupQueryAttention',
        ['q', 'k', 'v', 'past_k', 'past_v', 'ends', 'total'],
        ['y', 'all_k', 'all_v'],
        {
          ...microsoft,
          attributes: { num_heads: int(heads), kv_num_heads: int(heads) },
        },
      ),
    ],
    initializers: [
      ['ends', i32([batch], past + added - 1, past + added - 1)],
      ['total', i32([], past + added)],
    ],
    keeps: false,
  },
  {
    name: 'concatenations and products',
    nodes: [
      ...joined,
      makeNode('Transpose', ['all_k'], ['turned'], { attributes: { perm: ints([0, 1, 3, 2]) } }),
      makeNode('MatMul', ['q', 'turned'], ['scores']),
      makeNode('Softmax', ['scores'], ['weights']),
      makeNode('MatMul', ['weights', 'all_v'], ['y']),
    ],
  },
  {
    name: 'a past that others read, too',
    nodes: [
      ...joined,
      makeNode('ReduceSum', ['past_k'], ['s']),
      makeNode('ReduceSum', ['all_v'], ['u']),
      makeNode('Add', ['s', 'u'], ['y']),
    ],
    copies: 2,
  },
]

/** The cases with their past as inputs, which their presents replace. */
function graphOf({ nodes, inputs = { q: rows, k: rows, v: rows }, initializers = [] }: Case): Graph {
  const shapes = { ...inputs, past_k: cache, past_v: cache }
  const graph = makeGraph({
    inputs: Object.entries(shapes).map(([name, shape]) => ({ name, type: tensorType('f32', shape) })),
    outputs: [{ name: 'y' }, { name: 'all_k' }, { name: 'all_v' }],
    nodes,
    initializers: new Map(initializers),
    opsets: new Map([
      ['', 24],
      ['com.microsoft', 1],
    ]),
  })
  const updates = new Map([
    ['past_k', 'all_k'],
    ['past_v', 'all_v'],
  ])
  return { ...canonicalise(graph), outputs: [{ name: 'y' }], updates }
}

const states = new Map(['past_k', 'past_v'].map(name => [name, { axis: 2, capacity }]))

/** Copies that move a whole cache. */
const largeCopies = ({ steps }: Program): number =>
  steps.filter(({ op, args }) => op === 'copyStrided' && numel(args.shape as number[]) >= numel(cache)).length

for (const one of cases) {
  t.test(one.name, async t => {
    const program = compile(graphOf(one), { states })
    t.equal(largeCopies(program), one.copies ?? 0, 'the cache is not copied')
    t.same(
      program.next.map(({ name, keeps }) => [name, keeps]),
      [
        ['past_k', one.keeps ?? true],
        ['past_v', one.keeps ?? true],
      ],
    )
    for (const { shape } of program.next) t.same(shape, [batch, heads, past + added, depth])
    for (const { shape, buffer } of program.state) {
      t.same(shape, [batch, heads, capacity, depth])
      const writers = program.steps.filter(({ args }) =>
        [...operandsOf(args)].some(operand => operand.buffer === buffer && operand.access !== 'read'),
      )
      t.ok(writers.length > 0, 'the state is written')
    }
  })
}
