// GroupQueryAttention whose rows have pasts of their own lengths: on our engines, and as standard operators in ONNX
// Runtime, it gives what ONNX Runtime's own operator gives.
import { Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { numel } from '#lib/core/shape.js'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { loadAddon } from '#lib/native.js'
import { typed } from '../../fixtures/one-node.js'
import { runOnnxRuntime } from '../../fixtures/onnx-runtime.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const [queryHeads, heads, depth] = [4, 2, 32]

/** New tokens of rows with pasts. */
interface Case {
  /** New tokens of each row. */
  readonly length: number
  /** Keys of each row, the new ones included. */
  readonly ends: readonly number[]
  /** Keys that past buffers have room for; undefined: no past at all. */
  readonly held?: number
  readonly total?: number
  readonly packed?: boolean
  /** Elements of a head that are rotated. */
  readonly rotary?: number
  /** Places given for the rotation, in the place of those in the row. */
  readonly places?: boolean
  /** Whether something is added to the scores. */
  readonly bias?: boolean
  /** Whether each head has a sink. */
  readonly sink?: boolean
  readonly attributes?: Attributes
}

/** The inputs of the operator by name, '' where one is left out; what a past holds behind its last key is 0. */
function inputsOf(options: Case): Map<string, Constant> {
  const { length, ends, held, packed, rotary = 0, places, bias } = options
  const random = randomGenerator(3)
  const batch = ends.length
  const total = options.total ?? Math.max(...ends)
  const floats = (...shape: number[]): Constant => Constant.from('f32', shape, uniform(random, numel(shape)))
  const past = (): Constant => {
    const { data } = floats(batch, heads, held!, depth)
    const row = (i: number): number => Math.floor(i / depth) % held!
    const of = (i: number): number => Math.floor(i / (heads * held! * depth))
    const kept = (data as Float32Array).map((value, i) => (row(i) < ends[of(i)]! - length ? value : 0))
    return Constant.from('f32', [batch, heads, held!, depth], kept)
  }
  const angles = (count: number): Constant => floats(count, rotary / 2)
  const ids = Array.from({ length: batch * length }, (_, i) => BigInt((5 * i) % 7))
  return new Map([
    ['q', floats(batch, length, (packed ? queryHeads + 2 * heads : queryHeads) * depth)],
    ...(packed
      ? []
      : [
          ['k', floats(batch, length, heads * depth)] as const,
          ['v', floats(batch, length, heads * depth)] as const,
        ]),
    ...(held === undefined ? [] : [['pk', past()] as const, ['pv', past()] as const]),
    [
      'lengths',
      Constant.from(
        'i32',
        [batch],
        Int32Array.from(ends, end => end - 1),
      ),
    ],
    ['total', Constant.from('i32', [], Int32Array.of(total))],
    ...(rotary > 0 ? [['cos', angles(40)] as const, ['sin', angles(40)] as const] : []),
    ...(places ? [['places', Constant.from('i64', [batch, length], BigInt64Array.from(ids))] as const] : []),
    ...(bias ? [['bias', floats(1, queryHeads, length, total)] as const] : []),
    ...(options.sink ? [['sink', floats(queryHeads)] as const] : []),
  ])
}

function graphOf({ rotary = 0, attributes = {} }: Case, inputs: ReadonlyMap<string, Constant>): Graph {
  const order = ['q', 'k', 'v', 'pk', 'pv', 'lengths', 'total', 'cos', 'sin', 'places', 'bias', 'sink']
  const names = order.map(name => (inputs.has(name) ? name : ''))
  return makeGraph({
    inputs: [...inputs].map(([name, { dtype, shape }]) => ({ name, type: tensorType(dtype, shape) })),
    outputs: [{ name: 'y' }, { name: 'nk' }, { name: 'nv' }],
    nodes: [
      makeNode('GroupQueryAttention', names.slice(0, names.findLastIndex(Boolean) + 1), ['y', 'nk', 'nv'], {
        domain: 'com.microsoft',
        attributes: {
          num_heads: int(queryHeads),
          kv_num_heads: int(heads),
          do_rotary: int(rotary > 0 ? 1 : 0),
          ...attributes,
        },
      }),
    ],
    opsets: new Map([
      ['', 17],
      ['com.microsoft', 1],
    ]),
  })
}

type Outputs = Record<string, { dims: readonly number[]; data: ArrayLike<number> }>

async function onOurs(graph: Graph, inputs: ReadonlyMap<string, Constant>, backend: 'js' | 'cpu') {
  using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
  const feeds = [...inputs].map(([name, { data, shape, dtype }]) => [
    name,
    Tensor.of(data as never, shape, dtype),
  ])
  const outputs: Outputs = {}
  for (const [name, tensor] of Object.entries(await model.run<Tensor>(Object.fromEntries(feeds)))) {
    outputs[name] = { dims: tensor.shape, data: (tensor.data as Float32Array).slice() }
  }
  return outputs
}

/** Compares all outputs, but y of what `padded` says of [row, token]. */
function close(
  t: Test,
  label: string,
  actual: Outputs,
  expected: Outputs,
  padded: (row: number, token: number) => boolean,
): void {
  for (const [name, { dims, data }] of Object.entries(expected)) {
    t.same(actual[name]!.dims, dims, `${label}: ${name}`)
    const [, length = 1, width = 1] = dims
    const counts = (i: number): boolean =>
      name !== 'y' || !padded(Math.floor(i / (length * width)), Math.floor(i / width) % length)
    const worst = Array.from(data).reduce((most, value, i) => {
      return counts(i) ? Math.max(most, Math.abs(value - actual[name]!.data[i]!)) : most
    }, 0)
    t.ok(worst < 1e-5, `${label}: ${name} differs by ${worst}`)
  }
}

async function check(t: Test, label: string, options: Case): Promise<void> {
  const inputs = inputsOf(options)
  const graph = typed(graphOf(options, inputs))
  const expected = (await runOnnxRuntime(serializeOnnx(graph), inputs)) as unknown as Outputs
  const padded = (row: number, token: number): boolean =>
    options.length === Math.max(...options.ends) && token >= options.ends[row]!
  const standard = await runOnnxRuntime(serializeOnnx(canonicalise(graph)), inputs)
  close(t, `${label}, standard operators`, standard as unknown as Outputs, expected, padded)
  close(t, `${label}, js`, await onOurs(graph, inputs, 'js'), expected, padded)
  if (loadAddon().addon) close(t, `${label}, cpu`, await onOurs(graph, inputs, 'cpu'), expected, padded)
}

t.test('rows of one length', async t => {
  await check(t, 'a prompt', { length: 5, ends: [5, 5], held: 0, rotary: 32 })
  await check(t, 'a prompt without a past', { length: 5, ends: [5, 5], rotary: 32 })
  await check(t, 'a token', { length: 1, ends: [8, 8], held: 7 })
  await check(t, 'a token of one value', { length: 1, ends: [8, 8], held: 7, packed: true, rotary: 32 })
  await check(t, 'tokens behind a past', { length: 3, ends: [9], held: 6, rotary: 16 })
})

t.test('rows of their own lengths', async t => {
  const ends = [4, 7, 9]
  await check(t, 'a token', { length: 1, ends, held: 8 })
  await check(t, 'rotated', { length: 1, ends, held: 8, rotary: 32, packed: true })
  await check(t, 'rotated in part, interleaved', {
    length: 1,
    ends,
    held: 8,
    rotary: 16,
    attributes: { rotary_interleaved: int(1) },
  })
  await check(t, 'rotated by given places', { length: 1, ends, held: 8, rotary: 32, places: true })
  await check(t, 'a prompt with padding', { length: 5, ends: [5, 2, 3], held: 0, rotary: 32 })
  await check(t, 'a window', { length: 1, ends, held: 8, attributes: { local_window_size: int(4) } })
  await check(t, 'a prompt in a window', {
    length: 7,
    ends: [7, 7],
    held: 0,
    attributes: { local_window_size: int(3) },
  })
  await check(t, 'a bias', { length: 1, ends, held: 8, bias: true })
})

t.test('a softmax with a sink', async t => {
  const ends = [4, 7, 9]
  const smooth = { smooth_softmax: int(1) }
  await check(t, 'of 0', { length: 1, ends, held: 8, attributes: smooth })
  await check(t, 'of 0, a prompt with a bias', {
    length: 5,
    ends: [5, 5],
    held: 0,
    bias: true,
    attributes: smooth,
  })
  await check(t, 'of each head', { length: 1, ends, held: 12, sink: true, rotary: 32 })
  await check(t, 'of each head, in a window', {
    length: 7,
    ends: [7, 7],
    held: 0,
    sink: true,
    attributes: { local_window_size: int(3) },
  })
})

t.test('buffers longer than what they hold', async t => {
  const ends = [4, 7, 9]
  await check(t, 'a token', { length: 1, ends, held: 12, rotary: 32 })
  await check(t, 'a window', { length: 1, ends, held: 12, attributes: { local_window_size: int(4) } })
  await check(t, 'a bias', { length: 1, ends, held: 12, bias: true })
  await check(t, 'a prompt', { length: 5, ends: [5, 2, 4], held: 11, rotary: 32 })
})

t.test('tokens of rows of their own lengths, which ONNX Runtime takes only row by row', async t => {
  const options = { length: 3, ends: [6, 8], held: 10, total: 8, rotary: 32 }
  const inputs = inputsOf(options)
  const { y } = await onOurs(graphOf(options, inputs), inputs, 'js')
  for (const [row, end] of options.ends.entries()) {
    const own = [...inputs].map(([name, { dtype, shape, data }]): [string, Constant] => {
      if (name === 'total') return [name, Constant.from('i32', [], Int32Array.of(end))]
      if (shape[0] !== 2) return [name, Constant.from(dtype as 'f32', shape, data as Float32Array)]
      const size = data.length / 2
      const part = data.subarray(row * size, (row + 1) * size) as Float32Array
      return [name, Constant.from(dtype as 'f32', [1, ...shape.slice(1)], part)]
    })
    const alone = { ...options, ends: [end], total: end }
    const bytes = serializeOnnx(typed(graphOf(alone, new Map(own))))
    const expected = (await runOnnxRuntime(bytes, new Map(own))).y!.data as Float32Array
    const actual = Array.from(y!.data).slice(row * expected.length, (row + 1) * expected.length)
    const worst = actual.reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i]!)), 0)
    t.ok(worst < 1e-5, `row ${row} differs by ${worst}`)
  }
})

t.test('what has no standard form', t => {
  const options = { length: 1, ends: [4, 7], held: 8 }
  const refused = (name: string, value: number): void => {
    const attributes = { [name]: int(value) }
    t.throws(() => canonicalise(graphOf({ ...options, attributes }, inputsOf(options))), {
      code: 'ERR_UNSUPPORTED',
      message: new RegExp(`${name} ${value} has no standard form`),
    })
  }
  refused('causal', 0)
  refused('sliding_window_cache', 1)
  t.end()
})
