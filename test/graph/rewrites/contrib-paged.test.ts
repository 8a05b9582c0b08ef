// PagedAttention of com.microsoft: tables of angles become those of rows, packed operands are split, other forms refused.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { float, int, string } from '#lib/graph/attributes.js'
import { type Attributes, type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs } from '#lib/kernels/kernels.js'
import { identical } from '../../fixtures/close.js'
import { PagedProblem, type Piece } from '../../fixtures/paged-attention.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

type Args = KernelArgs['pagedAttention'] & { y: Float32Array }

const names = ['query', 'key', 'value', 'keys', 'values', 'starts', 'past', 'block', 'cos', 'sin'] as const
const extras = ['', 'sinks', 'queryNorm', 'keyNorm', '', '', 'metadata'] as const
const longest = 12
const random = randomGenerator(41)
const tables = [uniform(random, longest * 2).map(Math.cos), uniform(random, longest * 2).map(Math.sin)]

const problem = new PagedProblem({
  lengths: [9, 4],
  depth: 6,
  rotary: 4,
  sinks: true,
  norms: true,
  window: 5,
  softcap: 3,
})

/** Positions 6 to 9 of a sequence and all of another one, with angles by position. */
function callOf(): Args {
  const pieces: Piece[] = [
    [0, 6, 9],
    [1, 0, 4],
  ]
  const args = problem.call(pieces, problem.caches())
  const positions = pieces.flatMap(([, from, to]) => Array.from({ length: to - from }, (_, i) => from + i))
  const rows = (table: Float32Array): Float32Array =>
    Float32Array.from(positions.flatMap(position => [...table.subarray(2 * position, 2 * position + 2)]))
  const [keyCache, valueCache] = [1, 2].map(() => uniform(random, args.keyCache.length))
  return {
    ...args,
    cos: rows(tables[0]!),
    sin: rows(tables[1]!),
    keyCache: keyCache!,
    valueCache: valueCache!,
  }
}

const width = ({ heads, depth }: Args): number => heads * depth
const own = ({ kvHeads, depth }: Args): number => kvHeads * depth

/** The values of the inputs, and of those that are packed into the first one. */
function tensorsOf(args: Args, packed: boolean): Record<string, Tensor> {
  const { tokens, sequences, blocks, blockSize, kvHeads, depth, table, heads } = args
  const f32 = (data: ArrayLike<number>, ...shape: number[]): Tensor =>
    Tensor.of(Float32Array.from(data), shape, 'f32') as Tensor
  const i32 = (data: Int32Array, ...shape: number[]): Tensor =>
    Tensor.of(data.slice(), shape, 'i32') as unknown as Tensor
  const cache = [blocks, blockSize, kvHeads, depth]
  const side = Array.from({ length: tokens }, (_, n) => [
    ...args.query.subarray(n * width(args), (n + 1) * width(args)),
    ...args.key.subarray(n * own(args), (n + 1) * own(args)),
    ...args.value.subarray(n * own(args), (n + 1) * own(args)),
  ]).flat()
  return {
    query: packed ? f32(side, tokens, width(args) + 2 * own(args)) : f32(args.query, tokens, width(args)),
    ...(!packed && { key: f32(args.key, tokens, own(args)), value: f32(args.value, tokens, own(args)) }),
    keys: f32(args.keyCache, ...cache),
    values: f32(args.valueCache, ...cache),
    starts: i32(args.starts, sequences + 1),
    past: i32(args.past, sequences),
    block: i32(args.block, sequences, table),
    cos: f32(tables[0]!, longest, 2),
    sin: f32(tables[1]!, longest, 2),
    sinks: f32(args.sinks!, heads),
    queryNorm: f32(args.queryNorm!, depth),
    keyNorm: f32(args.keyNorm!, depth),
    metadata: i32(Int32Array.of(4, 9), 2),
  }
}

const attributesOf = ({ heads, kvHeads, scale, window = 0, softcap = 0, epsilon = 0 }: Args): Attributes => ({
  num_heads: int(heads),
  kv_num_heads: int(kvHeads),
  scale: float(scale),
  local_window_size: int(window),
  softcap: float(softcap),
  do_rotary: int(1),
  qk_norm_epsilon: float(epsilon),
})

function graphOf(tensors: Record<string, Tensor>, attributes: Attributes, inputs: readonly string[]): Graph {
  return makeGraph({
    inputs: Object.entries(tensors).map(([name, { dtype, shape }]) => ({
      name,
      type: tensorType(
        dtype,
        shape.map((size, axis) => (axis === 0 && name === 'query' ? 'tokens' : size)),
      ),
    })),
    outputs: ['y', 'nextKeys', 'nextValues'].map(name => ({ name })),
    nodes: [
      makeNode('PagedAttention', inputs, ['y', 'nextKeys', 'nextValues'], {
        domain: 'com.microsoft',
        attributes,
      }),
    ],
    opsets: new Map([
      ['', 21],
      ['com.microsoft', 1],
    ]),
  })
}

for (const packed of [false, true]) {
  t.test(packed ? 'operands side by side' : 'operands apart', async t => {
    const args = callOf()
    const tensors = tensorsOf(args, packed)
    const inputs = [...names.map(name => (packed && ['key', 'value'].includes(name) ? '' : name)), ...extras]
    const graph = graphOf(tensors, attributesOf(args), inputs)
    using model = await Model.fromGraph(graph, { backend: 'js', precision: 'fp32' })
    const { y, nextKeys } = await model.run<Tensor>(tensors)
    jsKernels.runSync('pagedAttention', args)
    identical(t, y!.data as Float32Array, args.y, 'y')
    identical(t, nextKeys!.data as Float32Array, args.keyCache as Float32Array, 'keys')
  })
}

t.test('other forms are refused by name', t => {
  const args = callOf()
  const refused = (message: RegExp, attributes: Attributes, inputs: readonly string[] = names): void => {
    const graph = graphOf(tensorsOf(args, false), { ...attributesOf(args), ...attributes }, inputs)
    t.throws(() => canonicalise(graph), { code: 'ERR_UNSUPPORTED', message }, `${message}`)
  }
  refused(/kv_cache_layout 'LATENT'/, { kv_cache_layout: string('LATENT') })
  refused(/k_quant_type 'PER_TENSOR'/, { k_quant_type: string('PER_TENSOR') })
  refused(/rotary_offset 8/, { rotary_offset: int(8) })
  refused(/v_head_size 4/, { v_head_size: int(4) })
  refused(/slot_mapping/, {}, [...names, 'past'])
  refused(/k_scale/, {}, [...names, '', '', '', '', 'sinks'])
  t.end()
})
