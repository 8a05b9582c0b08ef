// operands.ts: what sizes the further operands of an operator must have beside the first one. Kernels read as many
// elements as the first one asks for: others would be read past, or not at all.
import type { Dimension } from '../graph.js'
import { type Call, showShape } from './call.js'
import { compatible, product, type Shape } from './dimensions.js'

/** Refuses operands that do not fit together. */
type Check = (call: Call) => void

/** Operand `i` must broadcast to `shape` without enlarging it. */
export function expectBroadcast(call: Call, i: number, name: string, shape: Shape | undefined): void {
  const own = call.shape(i)
  if (!own || !shape) return
  const missing = shape.length - own.length
  const fits = missing >= 0 && own.every((dim, at) => dim === 1 || compatible(dim, shape[at + missing]!))
  if (!fits) throw call.fail(`${name} is ${showShape(own)}; it must broadcast to ${showShape(shape)}`)
}

/** Operand `i` must have `count` elements. */
function expectCount(call: Call, i: number, name: string, count: Dimension | undefined, why: string): void {
  const own = call.shape(i)
  if (!own || typeof count !== 'number' || compatible(product(own), count)) return
  throw call.fail(`${name} is ${showShape(own)}; it must have ${count} elements, ${why}`)
}

/** Operand `i` must have exactly these sizes. */
function expectShape(call: Call, i: number, name: string, shape: Shape): void {
  const own = call.shape(i)
  if (!own || (own.length === shape.length && own.every((dim, at) => compatible(dim, shape[at]!)))) return
  throw call.fail(`${name} is ${showShape(own)}; it must be ${showShape(shape)}`)
}

/** The first operand must have so many dimensions. */
function expectRank(call: Call, least: number): void {
  const x = call.shape(0)
  if (x && x.length < least)
    throw call.fail(`its input is ${showShape(x)}; it must have at least ${least} dimensions`)
}

/** Operands with an element for each channel of the first one. */
const perChannel =
  (...names: readonly string[]): Check =>
  call => {
    expectRank(call, 1)
    const x = call.shape(0)
    const channels = x && (x.length === 1 ? 1 : x[1])
    for (const [i, name] of names.entries()) expectCount(call, i + 1, name, channels, 'one for each channel')
  }

const groupNormalization: Check = call => {
  expectRank(call, 2)
  perChannel('scale', 'bias')(call)
  const [channels, groups] = [call.shape(0)?.[1], call.int('num_groups', 1)]
  if (groups < 1 || (typeof channels === 'number' && channels % groups !== 0))
    throw call.fail(`num_groups ${groups} does not divide ${channels ?? '?'} channels`)
}

/** An axis that an attribute names must be there. */
const alongAxis =
  (fallback: number): Check =>
  call => {
    const x = call.shape(0)
    if (x) call.axis(call.int('axis', fallback), x.length)
  }

const parametersOfRows: Check = call => {
  alongAxis(-1)(call)
  expectBroadcast(call, 1, 'scale', call.shape(0))
  expectBroadcast(call, 2, 'bias', call.shape(0))
}

/** Operands of one element. */
const single =
  (...names: readonly string[]): Check =>
  call => {
    for (const [i, name] of names.entries()) expectCount(call, i + 1, name, 1, 'or be a scalar')
  }

/** Convolutions with the weight as input `weight` and the bias as input `bias`. */
const convolution =
  (weight: number, bias: number): Check =>
  call => {
    const w = call.shape(weight)
    const groups = call.int('group', 1)
    expectCount(call, bias, 'its bias', w?.[0], 'one for each filter')
    const filters = w?.[0]
    if (groups < 1 || (typeof filters === 'number' && filters % groups !== 0))
      throw call.fail(`group ${groups} does not divide the ${filters ?? '?'} filters of ${showShape(w)}`)
    expectKernel(call, w)
  }

function expectKernel(call: Call, w: Shape | undefined): void {
  const kernel = call.ints('kernel_shape')
  const same =
    kernel?.length === (w?.length ?? 0) - 2 && kernel.every((size, i) => compatible(size, w![i + 2]!))
  if (kernel && w && !same)
    throw call.fail(`kernel_shape is ${showShape(kernel)}, but the weight is ${showShape(w)}`)
}

const transposedConvolution: Check = call => {
  const [x, w] = [call.shape(0), call.shape(1)]
  const groups = call.int('group', 1)
  if (x && w && (x.length !== w.length || x.length < 3 || !compatible(x[1]!, w[0]!)))
    throw call.fail(`x is ${showShape(x)} and the weight ${showShape(w)}`)
  const channels = w?.[0]
  if (groups < 1 || (typeof channels === 'number' && channels % groups !== 0))
    throw call.fail(`group ${groups} does not divide ${channels ?? '?'} channels`)
  const filters = w?.[1]
  expectCount(
    call,
    2,
    'its bias',
    typeof filters === 'number' ? filters * groups : null,
    'one for each filter',
  )
  expectKernel(call, w)
}

/** Heads, rows and the length of a row of input `i` of an attention. */
function headsOf(call: Call, i: number, attribute: string): Shape | undefined {
  const shape = call.shape(i)
  if (!shape || shape.length === 4) return shape
  const heads = call.int(attribute, 0)
  const width = shape[2]
  if (shape.length !== 3 || heads < 1) {
    throw call.fail(`input ${i} is ${showShape(shape)}; it needs 4 dimensions, or 3 and ${attribute}`)
  }
  if (typeof width === 'number' && width % heads !== 0)
    throw call.fail(`${attribute} ${heads} does not divide the last size of ${showShape(shape)}`)
  return [shape[0]!, heads, shape[1]!, typeof width === 'number' ? width / heads : null]
}

/** Queries, keys and values, the inputs from `first` on, must have heads that fit together. */
export function expectHeads(call: Call, first: number): readonly [q: Shape, k: Shape, v: Shape] | undefined {
  const q = headsOf(call, first, 'q_num_heads')
  const k = headsOf(call, first + 1, 'kv_num_heads')
  const v = headsOf(call, first + 2, 'kv_num_heads')
  if (!q || !k || !v) return undefined
  const fits =
    compatible(q[0]!, k[0]!) &&
    compatible(q[3]!, k[3]!) &&
    [0, 1, 2].every(axis => compatible(k[axis]!, v[axis]!))
  if (!fits)
    throw call.fail(`${[q, k, v].map(showShape).join(', ')} are no queries, keys and values of one attention`)
  const [heads, shared] = [q[1], k[1]]
  if (typeof heads === 'number' && typeof shared === 'number' && heads % shared !== 0)
    throw call.fail(`${heads} heads of queries cannot share ${shared} of keys`)
  return [q, k, v]
}

const attention: Check = call => {
  const operands = expectHeads(call, 0)
  if (!operands) return
  const [q, k, v] = operands
  for (const [i, own] of [k, v].entries())
    expectShape(call, 4 + i, `past ${i === 0 ? 'keys' : 'values'}`, [own[0]!, own[1]!, null, own[3]!])
  const past = call.has(4) ? (call.shape(4)?.[2] ?? null) : 0
  const keys = typeof k[2] === 'number' && typeof past === 'number' ? k[2] + past : null
  expectMask(call, [q[0]!, q[1]!, q[2]!, keys])
}

/** A mask may be shorter than the keys, which are then not seen. */
function expectMask(call: Call, scores: Shape): void {
  const own = call.shape(3)
  const [width, keys] = [own?.at(-1), scores[3]]
  const shorter = typeof width === 'number' && typeof keys === 'number' && width < keys
  expectBroadcast(call, 3, 'the mask', shorter ? [...scores.slice(0, 3), width] : scores)
}

/** x, W, R, bias, lengths, and further operands by their places, of a layer with so many functions. */
const recurrent =
  (functions: number, states: readonly number[]): Check =>
  call => {
    const x = call.shape(0)
    if (x && x.length !== 3) throw call.fail(`x is ${showShape(x)}; it must have 3 dimensions`)
    const hidden: Dimension = call.int('hidden_size', undefined) ?? call.shape(2)?.[2] ?? null
    const directions = call.text('direction', 'forward') === 'bidirectional' ? 2 : 1
    const rows = typeof hidden === 'number' ? functions * hidden : null
    const batch = x?.[call.int('layout', 0) === 1 ? 0 : 1] ?? null
    expectShape(call, 1, 'W', [directions, rows, x?.[2] ?? null])
    expectShape(call, 2, 'R', [directions, rows, hidden])
    expectShape(call, 3, 'B', [directions, rows === null ? null : 2 * rows])
    expectShape(call, 4, 'sequence_lens', [batch])
    const state = call.int('layout', 0) === 1 ? [batch, directions, hidden] : [directions, batch, hidden]
    for (const i of states) expectShape(call, i, i === 5 ? 'initial_h' : 'initial_c', state)
    if (functions === 4)
      expectShape(call, 7, 'P', [directions, typeof hidden === 'number' ? 3 * hidden : null])
  }

const causalConvolution: Check = call => {
  const [x, w] = [call.shape(0), call.shape(1)]
  if (!x || !w) return
  if (x.length !== 3 || w.length !== 3 || !compatible(x[1]!, w[0]!) || !compatible(w[1]!, 1) || w[2] === 0)
    throw call.fail(`x is ${showShape(x)} and the weight ${showShape(w)}`)
  expectCount(call, 2, 'its bias', w[0], 'one for each channel')
  expectShape(call, 3, 'the past', [x[0]!, x[1]!, typeof w[2] === 'number' ? w[2] - 1 : null])
}

const gridSample: Check = call => {
  const [x, grid] = [call.shape(0), call.shape(1)]
  expectRank(call, 3)
  if (x) expectShape(call, 1, 'the grid', [x[0]!, ...x.slice(2).map(() => null), x.length - 2])
  if (grid && grid.length < 3) throw call.fail(`the grid is ${showShape(grid)}`)
}

/**
 * Labels have the sizes of the scores without their classes, which have weights. The batch is left to the kernel: where a
 * model has it written into it, a training may use another one.
 */
const loss: Check = call => {
  expectRank(call, 2)
  const x = call.shape(0)
  if (!x) return
  expectShape(call, 1, 'the labels', [null, ...x.slice(2)])
  expectCount(call, 2, 'its weights', x[1], 'one for each class')
}

/** Blocks of a power of their size in the channels, and of an image of two dimensions. */
const blocks: Check = call => {
  const x = call.shape(0)
  if (x && x.length !== 4) throw call.fail(`its input is ${showShape(x)}; it must have 4 dimensions`)
  const size = call.int('blocksize', 0)
  if (size < 1) throw call.fail(`blocksize is ${size}; it must be at least 1`)
}

const variadic: Check = call => {
  if (call.node.inputs.length === 0) throw call.fail('it has no inputs')
}

const table = (names: string, check: Check): Record<string, Check> =>
  Object.fromEntries(names.split(' ').map(name => [name, check]))

/** Checks by operator; others take what broadcasts, or look themselves. */
export const operandChecks: Readonly<Record<string, Check>> = {
  ...table('Softmax LogSoftmax Hardmax LpNormalization', alongAxis(-1)),
  ...table('LayerNormalization RMSNormalization', parametersOfRows),
  ...table('GlobalAveragePool GlobalMaxPool GlobalLpPool', call => expectRank(call, 2)),
  ...table('DepthToSpace SpaceToDepth', blocks),
  ...table('Max Min Sum Mean Concat', variadic),
  ...table('SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss', loss),
  LRN: call => {
    expectRank(call, 2)
    if (call.int('size', 1) < 1) throw call.fail(`size is ${call.int('size', 1)}; it must be at least 1`)
  },
  PRelu: call => expectBroadcast(call, 1, 'slope', call.shape(0)),
  GroupNormalization: groupNormalization,
  InstanceNormalization: perChannel('scale', 'bias'),
  BatchNormalization: perChannel('scale', 'bias', 'mean', 'variance'),
  Conv: convolution(1, 2),
  ConvInteger: convolution(1, -1),
  QLinearConv: convolution(3, 8),
  DeformConv: convolution(1, 3),
  ConvTranspose: transposedConvolution,
  Attention: attention,
  LinearAttention: call => {
    const x = call.shape(0)
    if (x && x.length !== 3) throw call.fail(`its input is ${showShape(x)}; it must have 3 dimensions`)
    expectHeads(call, 0)
  },
  Clip: single('min', 'max'),
  Dropout: single('ratio', 'training_mode'),
  CumSum: single('axis'),
  TopK: single('k'),
  Trilu: call => {
    expectRank(call, 2)
    single('k')(call)
  },
  RNN: recurrent(1, [5]),
  GRU: recurrent(3, [5]),
  LSTM: recurrent(4, [5, 6]),
  GridSample: gridSample,
  CausalConvWithState: causalConvolution,
}
