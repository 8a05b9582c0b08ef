// PagedAttention in graphs: caches that are states are written in place, and one plan serves all sizes of the tables.
import t from 'tap'
import { float, int } from '#lib/graph/attributes.js'
import {
  type Attributes,
  type Graph,
  makeGraph,
  makeNode,
  sparkDomain,
  tensorType,
} from '#lib/graph/graph.js'
import type { KernelArgs } from '#lib/kernels/kernels.js'
import { openKernels } from '#lib/kernels/open.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { type HostTensor, hostTensor } from '#lib/model/values.js'
import { compile } from '#lib/plan/compile.js'
import { backends } from '../fixtures/backends.js'
import { identical } from '../fixtures/close.js'
import { PagedProblem, type Piece } from '../fixtures/paged-attention.js'

type Args = KernelArgs['pagedAttention'] & { y: Float32Array }

const names = ['query', 'key', 'value', 'keys', 'values', 'starts', 'past', 'blocks', 'cos', 'sin'] as const

/** One attention over `args`, whose rows, sequences and tables have symbols as sizes. */
function graphOf(args: Args, attributes: Attributes = {}): Graph {
  const { heads, kvHeads, depth, rotary, blocks, blockSize, scale } = args
  const cache = [blocks, blockSize, kvHeads, depth]
  const shapes: Record<(typeof names)[number], readonly (number | string)[]> = {
    query: ['tokens', heads * depth],
    key: ['tokens', kvHeads * depth],
    value: ['tokens', kvHeads * depth],
    keys: cache,
    values: cache,
    starts: ['starts'],
    past: ['sequences'],
    blocks: ['sequences', 'table'],
    cos: ['tokens', rotary / 2],
    sin: ['tokens', rotary / 2],
  }
  const isTable = (name: string): boolean => ['starts', 'past', 'blocks'].includes(name)
  return makeGraph({
    inputs: names.map(name => ({ name, type: tensorType(isTable(name) ? 'i32' : 'f32', shapes[name]) })),
    outputs: ['y', 'nextKeys', 'nextValues'].map(name => ({ name })),
    nodes: [
      makeNode('PagedAttention', names, ['y', 'nextKeys', 'nextValues'], {
        domain: sparkDomain,
        attributes: {
          num_heads: int(heads),
          kv_num_heads: int(kvHeads),
          scale: float(scale),
          ...attributes,
        },
      }),
    ],
  })
}

function feedsOf(args: Args): HostTensor[] {
  const { tokens, sequences, heads, kvHeads, depth, rotary, blocks, blockSize, table } = args
  const cache = [blocks, blockSize, kvHeads, depth]
  const rows = (width: number, data: Float32Array): HostTensor => hostTensor('f32', [tokens, width], data)
  return [
    rows(heads * depth, args.query),
    rows(kvHeads * depth, args.key),
    rows(kvHeads * depth, args.value),
    hostTensor('f32', cache, args.keyCache as Float32Array),
    hostTensor('f32', cache, args.valueCache as Float32Array),
    hostTensor('i32', [sequences + 1], args.starts),
    hostTensor('i32', [sequences], args.past),
    hostTensor('i32', [sequences, table], args.block),
    rows(rotary / 2, args.cos!),
    rows(rotary / 2, args.sin!),
  ]
}

const problem = new PagedProblem({ lengths: [9, 14, 6, 11, 12, 30, 2], depth: 8, rotary: 4 })

/** Calls of all sizes: rows of one to all sequences, from one to all of their positions. */
function callOf(i: number): Args {
  const sequences = 1 + ((i * 5) % 7)
  const pieces = problem.whole.slice(0, sequences).map(([b, , length]): Piece => {
    return [b, 0, Math.min(length, 1 + ((i + b) % 9))]
  })
  const args = problem.call(pieces, problem.caches(), i % 3)
  // A narrower table is one of other sizes, too.
  const table = Math.min(args.table, 3 + (i % 4))
  const block = Int32Array.from({ length: sequences * table }, (_, at) => {
    return args.block[Math.floor(at / table) * args.table + (at % table)]!
  })
  return { ...args, table, block, y: new Float32Array(args.y.length) }
}

for (const backend of backends) {
  t.test(`${backend}: one plan serves all sizes`, async t => {
    const kernels = await openKernels({ backend })
    const calls = Array.from({ length: 50 }, (_, i) => callOf(i + 8))
    const runner = new GraphRunner(graphOf(calls[0]!), kernels)
    for (const [i, call] of calls.entries()) {
      const [y, keys] = (await runner.run(feedsOf(call))) as HostTensor[]
      await kernels.run('pagedAttention', call)
      identical(t, y!.data as Float32Array, call.y, `y of run ${i}`)
      t.same(keys!.data, call.keyCache, `keys of run ${i}`)
    }
    // One token, one sequence, and all others.
    t.ok(runner.compilations <= 4, `${runner.compilations} compilations`)
    runner.dispose()
  })
}

t.test('a cache that is a state is written in place', t => {
  const graph = graphOf(callOf(3))
  const shapes = { query: [5, 32], key: [5, 16], value: [5, 16], starts: [3], past: [2], blocks: [2, 4] }
  const angles = { cos: [5, 2], sin: [5, 2] }
  const updates = new Map([
    ['keys', 'nextKeys'],
    ['values', 'nextValues'],
  ])
  const states = new Map([...updates.keys()].map(name => [name, { axis: undefined, capacity: 0 }]))
  const stepsOf = (graph: Graph, options = {}): string[] =>
    compile(graph, { shapes: { ...shapes, ...angles }, ...options }).steps.map(({ op }) => op)
  t.strictSame(stepsOf({ ...graph, outputs: [{ name: 'y' }], updates }, { states }), ['pagedAttention'])
  t.strictSame(stepsOf(graph).sort(), ['copyStrided', 'copyStrided', 'pagedAttention'], 'otherwise copied')
  t.end()
})

t.test('nodes that do not fit are refused by name', t => {
  const args = callOf(3)
  const graph = graphOf(args)
  const refused = (change: Partial<Graph>, message: RegExp, code = 'ERR_SHAPE'): void => {
    const changed = { ...graph, ...change }
    const shapes = Object.fromEntries(feedsOf(args).map(({ shape }, i) => [names[i]!, shape]))
    t.throws(() => compile(changed, { shapes }), { code, message }, `${message}`)
  }
  const withType = (
    name: string,
    dtype: 'f32' | 'f16' | 'i32',
    shape: readonly number[],
  ): Partial<Graph> => ({
    inputs: graph.inputs.map(input =>
      input.name === name ? { name, type: tensorType(dtype, shape) } : input,
    ),
  })
  const cache = [args.blocks, args.blockSize, args.kvHeads, args.depth]
  const node = graph.nodes[0]!
  refused(graphOf(args, { num_heads: int(3) }), /3 heads of queries cannot share 2/)
  refused(graphOf(args, { kv_num_heads: int(0) }), /kv_num_heads is 0/)
  refused({ nodes: [{ ...node, outputs: ['y'] }], outputs: [{ name: 'y' }] }, /outputs/)
  refused({ nodes: [{ ...node, inputs: node.inputs.slice(0, 9) }] }, /cosines and sines/)
  refused(withType('keys', 'f16', cache), /keys are f16 and values f32/, 'ERR_UNSUPPORTED')
  t.end()
})
