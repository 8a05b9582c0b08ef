// Batched products of activations: layouts, broadcasting, and the order of sums.
import t, { type Test } from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs, MatrixStrides } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { close, identical } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

type Sizes = readonly [outer: number, inner: number, m: number, n: number, k: number]

/** Row-major strides of [outer, inner, rows, cols]; of the transposed matrices with `transposed`. */
const strides = (inner: number, rows: number, cols: number, transposed: boolean): MatrixStrides =>
  transposed ? [inner * rows * cols, rows * cols, 1, rows] : [inner * rows * cols, rows * cols, cols, 1]

function operands([outer, inner, m, n, k]: Sizes, aTransposed: boolean, bTransposed: boolean) {
  const random = randomGenerator(m + n + k)
  const batch = outer * inner
  return {
    outer,
    inner,
    m,
    n,
    k,
    alpha: 0.75,
    a: uniform(random, batch * m * k),
    aStrides: strides(inner, m, k, aTransposed),
    b: uniform(random, batch * k * n),
    bStrides: strides(inner, k, n, bTransposed),
    y: new Float32Array(batch * m * n).fill(Number.NaN),
    yStrides: strides(inner, m, n, false),
  }
}

function compare(t: Test, args: KernelArgs['matmul'], name: string): void {
  const expected = { ...args, y: args.y.slice() }
  addon.run('matmul', args)
  jsKernels.runSync('matmul', expected)
  close(t, args.y, expected.y, 1e-6, name)
}

t.test('every layout of both sides', async t => {
  for (const sizes of [
    [1, 1, 1, 1, 1],
    [2, 3, 5, 7, 9],
    [1, 2, 33, 65, 300],
    [3, 1, 1, 40, 17],
    [1, 5, 40, 1, 1],
    [1, 1, 300, 270, 20],
    [2, 1, 3, 4, 0],
    [0, 1, 3, 4, 5],
    [1, 1, 0, 4, 5],
  ] as const) {
    for (const a of [false, true]) {
      for (const b of [false, true]) compare(t, operands(sizes, a, b), `${sizes}, ${a}, ${b}`)
    }
  }
})

t.test('heads that are interleaved, as attention has them', async t => {
  // q, k: [batch, tokens, heads, width]; scores: [batch, heads, tokens, tokens]
  const [batch, tokens, heads, width] = [2, 13, 3, 20]
  const random = randomGenerator(1)
  const q = uniform(random, batch * tokens * heads * width)
  const k = uniform(random, batch * tokens * heads * width)
  const row = heads * width
  const scores = {
    outer: batch,
    inner: heads,
    m: tokens,
    n: tokens,
    k: width,
    alpha: width ** -0.5,
    a: q,
    aStrides: [tokens * row, width, row, 1] as const,
    b: k,
    bStrides: [tokens * row, width, 1, row] as const,
    y: new Float32Array(batch * heads * tokens * tokens),
    yStrides: [heads * tokens * tokens, tokens * tokens, tokens, 1] as const,
  }
  compare(t, scores, 'scores')
  const mixed = {
    outer: batch,
    inner: heads,
    m: tokens,
    n: width,
    k: tokens,
    alpha: 1,
    a: scores.y,
    aStrides: scores.yStrides,
    b: k,
    bStrides: [tokens * row, width, row, 1] as const,
    y: new Float32Array(batch * tokens * row).fill(7),
    yStrides: [tokens * row, width, row, 1] as const,
  }
  compare(t, mixed, 'mixed values, written between those of the other heads')
})

t.test('a matrix is repeated by a stride of 0', async t => {
  const args = operands([2, 3, 5, 6, 7], false, false)
  compare(t, { ...args, bStrides: [0, 0, 6, 1] }, 'one b')
  compare(t, { ...args, aStrides: [35, 0, 7, 1] }, 'one a for each outer index')
})

t.test('an element depends on neither its batch nor the threads', async t => {
  const sizes = [3, 2, 37, 45, 530] as const
  const args = operands(sizes, false, true)
  addon.setThreads(1)
  addon.run('matmul', args)
  for (const threads of [2, 5]) {
    addon.setThreads(threads)
    const again = { ...args, y: new Float32Array(args.y.length) }
    addon.run('matmul', again)
    identical(t, again.y, args.y, `${threads} threads`)
  }
  const [, , m, n, k] = sizes
  const alone = {
    ...args,
    outer: 1,
    inner: 1,
    m: 1,
    a: args.a.subarray(4 * m * k),
    b: args.b.subarray(4 * k * n),
  }
  const y = new Float32Array(n)
  addon.run('matmul', { ...alone, y })
  identical(t, y, args.y.subarray(4 * m * n, 4 * m * n + n), 'one row of one matrix alone')
})

t.test('a processor multiplies activations in f32 whatever a GPU would do', async t => {
  const args = operands([2, 1, 17, 19, 33], true, false)
  addon.run('matmul', args)
  for (const compute of ['f32', 'bf16', 'f16'] as const) {
    const y = new Float32Array(args.y.length)
    addon.run('matmul', { ...args, compute, y })
    identical(t, y, args.y, compute)
  }
})

t.test('operands that do not fit are refused', async t => {
  const args = operands([1, 2, 3, 4, 5], false, false)
  for (const run of [addon.run, jsKernels.runSync]) {
    t.throws(() => run('matmul', { ...args, a: args.a.subarray(1) }), { code: 'ERR_SHAPE' })
    t.throws(() => run('matmul', { ...args, y: args.y.subarray(1) }), { code: 'ERR_SHAPE' })
    t.throws(() => run('matmul', { ...args, aStrides: [0, 0, 2, 2] }), { code: 'ERR_SHAPE' })
    t.throws(() => run('matmul', { ...args, yStrides: [0, 12, 1, 3] }), { code: 'ERR_SHAPE' })
    t.throws(() => run('matmul', { ...args, bStrides: [0, 0, -4, 1] }), { code: 'ERR_ARGUMENT' })
    t.throws(() => run('matmul', { ...args, bStrides: [1] as unknown as MatrixStrides }), {
      code: 'ERR_ARGUMENT',
    })
    t.throws(() => run('matmul', { ...args, compute: 'nvfp4' as 'f16' }), { code: 'ERR_UNSUPPORTED' })
    t.throws(() => run('matmul', { ...args, m: 2 ** 40, aStrides: [0, 0, 2 ** 40, 1] }), {
      code: 'ERR_SHAPE',
    })
  }
})
