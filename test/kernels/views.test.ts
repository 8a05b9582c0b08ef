// Operations on views: elementwise, reductions, copies. TypeScript against formulas, the CPU against TypeScript.
import t, { type Test } from 'tap'
import { numel } from '#lib/core/shape.js'
import { erf } from '#lib/kernels/js/activations.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs, KernelOp } from '#lib/kernels/kernels.js'
import { binaryFns, reduceFns, unaryFns } from '#lib/kernels/strided-args.js'
import { requireAddon } from '#lib/native.js'
import { within } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()

/** Functions of integers or of truth: element-types.test.ts has them. */
const others = {
  bitwise_not: 0,
  is_nan: 0,
  is_inf: 0,
  celu: 0,
  bit_and: 0,
  bit_or: 0,
  bit_xor: 0,
  shift_left: 0,
  shift_right: 0,
  less: 0,
  less_or_equal: 0,
  equal: 0,
  mod: 0,
  fmod: 0,
}
/** Where a function is defined and does not grow too fast to compare. */
const ranges: Readonly<Record<string, readonly [number, number]>> = {
  reciprocal: [0.25, 4],
  sqrt: [0.25, 4],
  log: [0.25, 4],
  tan: [-1.2, 1.2],
  asin: [-0.9, 0.9],
  acos: [-0.9, 0.9],
  atanh: [-0.9, 0.9],
  acosh: [1.1, 4],
}
t.teardown(() => addon.setThreads(0))
const random = randomGenerator(11)

type ViewOp = 'unary' | 'binary' | 'reduce' | 'copyStrided'

/** Runs an operation on both engines and returns what they wrote; `out` is the name of the output. */
function both<Op extends ViewOp>(
  op: Op,
  args: Omit<KernelArgs[Op], 'y' | 'dst'>,
  out: 'y' | 'dst',
  count: number,
) {
  const [js, cpu] = [0, 1].map(() => new Float32Array(count).fill(Number.NaN)) as [Float32Array, Float32Array]
  jsKernels.runSync(op, { ...args, [out]: js } as unknown as KernelArgs[Op])
  addon.run(op, { ...args, [out]: cpu })
  return { js, cpu }
}

/** TypeScript computes in double and rounds once; the CPU rounds each step in f32. */
const near = (t: Test, { js, cpu }: { js: Float32Array; cpu: Float32Array }, name: string): void =>
  within(t, cpu, js, i => 4e-6 * Math.max(1, Math.abs(js[i]!)), name)

t.test('erf', t => {
  // Abramowitz and Stegun, table 7.1, and the limits.
  const known = [
    [0, 0],
    [0.5, 0.5204998778130465],
    [1, 0.8427007929497149],
    [2, 0.9953222650189527],
    [2.5, 0.999593047982555],
    [3, 0.9999779095030014],
    [9, 1],
  ] as const
  for (const [x, y] of known) {
    t.ok(Math.abs(erf(x) - y) < 1e-15 && Math.abs(erf(-x) + y) < 1e-15, `erf(${x})`)
  }
  t.ok(Number.isNaN(erf(Number.NaN)))
  t.end()
})

t.test('functions of one number', t => {
  for (const fn of unaryFns.filter(fn => !(fn in others))) {
    for (const count of [0, 1, 37, 20011]) {
      const [low, high] = ranges[fn] ?? [-4, 4]
      const x = uniform(random, count, low, high)
      near(t, both('unary', { fn, dtype: 'f32', count, x }, 'y', count), `${fn} of ${count}`)
    }
  }
  const special = Float32Array.of(Number.NaN, -Infinity, Infinity, -0)
  const { js, cpu } = both('unary', { fn: 'relu', dtype: 'f32', count: 4, x: special }, 'y', 4)
  t.same([...cpu], [Number.NaN, 0, Infinity, -0])
  t.same(js, cpu)
  const x = uniform(random, 9)
  const expected = x.map(value => -value)
  addon.run('unary', { fn: 'neg', dtype: 'f32', count: 9, x, y: x })
  t.same(x, expected, 'in place')
  t.end()
})

t.test('functions of two numbers, broadcast', t => {
  const loops = [
    { shape: [], aStrides: [], bStrides: [], a: 1, b: 1 },
    { shape: [5], aStrides: [1], bStrides: [0], a: 5, b: 1 },
    { shape: [5], aStrides: [0], bStrides: [1], a: 1, b: 5 },
    { shape: [3, 0, 2], aStrides: [0, 2, 1], bStrides: [2, 0, 1], a: 0, b: 6 },
    { shape: [3, 4, 5], aStrides: [20, 5, 1], bStrides: [0, 1, 0], a: 60, b: 4 },
    { shape: [3, 4, 5], aStrides: [1, 3, 12], bStrides: [5, 0, 1], a: 60, b: 15 },
    { shape: [70, 3, 101], aStrides: [101, 0, 1], bStrides: [0, 1, 0], a: 7070, b: 3 },
  ]
  for (const fn of binaryFns.filter(fn => !(fn in others))) {
    for (const { shape, aStrides, bStrides, a, b } of loops) {
      const [low, high] = fn === 'div' || fn === 'pow' ? [0.5, 2] : [-3, 3]
      const operands = { a: uniform(random, a, low, high), b: uniform(random, b, low, high) }
      const count = numel(shape)
      const args = { fn, dtype: 'f32' as const, shape, aStrides, bStrides, ...operands }
      near(t, both('binary', args, 'y', count), `${fn} over [${shape}]`)
    }
  }
  t.end()
})

t.test('reductions', t => {
  const loops = [
    { shape: [], reduced: [], strides: [], reducedStrides: [], count: 1 },
    { shape: [3], reduced: [5], strides: [5], reducedStrides: [1], count: 15 },
    { shape: [5], reduced: [3], strides: [1], reducedStrides: [5], count: 15 },
    { shape: [2, 4], reduced: [3, 5], strides: [60, 5], reducedStrides: [20, 1], count: 120 },
    { shape: [], reduced: [10007], strides: [], reducedStrides: [1], count: 10007 },
    { shape: [2], reduced: [0], strides: [0], reducedStrides: [1], count: 0 },
    { shape: [0], reduced: [3], strides: [3], reducedStrides: [1], count: 0 },
  ]
  for (const fn of reduceFns) {
    for (const { count, ...loop } of loops) {
      const x = uniform(random, count, fn === 'prod' ? 0.9 : -2, fn === 'prod' ? 1.1 : 2)
      const outputs = numel(loop.shape)
      const results = both('reduce', { fn, dtype: 'f32', ...loop, x }, 'y', outputs)
      if (count === 0) t.same(results.cpu, results.js, 'of nothing')
      else near(t, results, `${fn} of [${loop.shape}; ${loop.reduced}]`)
    }
  }
  const nothing = {
    dtype: 'f32' as const,
    shape: [],
    reduced: [0],
    strides: [],
    reducedStrides: [1],
    x: new Float32Array(0),
  }
  const values = reduceFns.map(fn => both('reduce', { fn, ...nothing }, 'y', 1).cpu[0])
  t.same(values, [0, Number.NaN, -Infinity, Infinity, 1, 0, 0])
  t.end()
})

t.test('NaN is not lost', t => {
  const x = Float32Array.of(1, Number.NaN, 3)
  const loop = { dtype: 'f32' as const, shape: [], reduced: [3], strides: [], reducedStrides: [1] }
  for (const fn of reduceFns) {
    const { js, cpu } = both('reduce', { fn, ...loop, x }, 'y', 1)
    t.ok(Number.isNaN(js[0]) && Number.isNaN(cpu[0]), fn)
  }
  const pair = { dtype: 'f32' as const, shape: [2], aStrides: [1], bStrides: [1] }
  for (const fn of ['max', 'min'] as const) {
    const operands = { a: Float32Array.of(Number.NaN, 1), b: Float32Array.of(1, Number.NaN) }
    const { js, cpu } = both('binary', { fn, ...pair, ...operands }, 'y', 2)
    t.ok([...js, ...cpu].every(Number.isNaN), fn)
  }
  t.end()
})

t.test('copies', t => {
  const src = uniform(random, 3 * 4 * 5)
  const copy = (args: Partial<KernelArgs['copyStrided']>, count: number) =>
    both(
      'copyStrided',
      { ...({ dtype: 'f32', srcOffset: 0, dstOffset: 0, src } as const), ...args } as never,
      'dst',
      count,
    )
  const transposed = copy({ shape: [5, 3, 4], srcStrides: [1, 20, 5], dstStrides: [12, 4, 1] }, 60)
  t.same(transposed.js, transposed.cpu)
  t.equal(transposed.cpu[1 * 12 + 2 * 4 + 3], src[2 * 20 + 3 * 5 + 1], 'a transpose')
  const reversed = copy({ shape: [2, 5], srcOffset: 44, srcStrides: [-20, -1], dstStrides: [5, 1] }, 10)
  t.same([...reversed.cpu], [...src.subarray(40, 45)].reverse().concat([...src.subarray(20, 25)].reverse()))
  t.same(reversed.js, reversed.cpu)
  const part = copy({ shape: [2, 2], srcStrides: [5, 1], dstStrides: [3, 1], dstOffset: 1 }, 6)
  t.same([...part.cpu], [Number.NaN, src[0], src[1], Number.NaN, src[5], src[6]], 'the rest stays')
  t.same(part.js, part.cpu)
  for (const [dtype, type] of [
    ['bf16', Uint16Array],
    ['f8_e4m3', Uint8Array],
  ] as const) {
    const [from, to] = [type.from([1, 2, 3, 4]), new type(4)]
    addon.run('copyStrided', {
      dtype,
      shape: [4],
      srcOffset: 3,
      dstOffset: 0,
      srcStrides: [-1],
      dstStrides: [1],
      src: from,
      dst: to,
    })
    t.same([...to], [4, 3, 2, 1], dtype)
  }
  t.end()
})

t.test('does not depend on the threads', t => {
  const x = uniform(random, 300 * 501)
  const args = {
    fn: 'sum',
    dtype: 'f32',
    shape: [501],
    strides: [1],
    reduced: [300],
    reducedStrides: [501],
    x,
  }
  const sums = [1, 3].map(threads => {
    addon.setThreads(threads)
    const y = new Float32Array(501)
    addon.run('reduce', { ...args, y })
    return y
  })
  t.same(sums[0], sums[1])
  t.end()
})

t.test('what would leave an operand is refused', t => {
  const six = new Float32Array(6)
  const binary = {
    fn: 'add',
    dtype: 'f32',
    shape: [2, 3],
    aStrides: [3, 1],
    bStrides: [0, 1],
    a: six,
    b: six,
    y: six,
  }
  const reduce = {
    fn: 'sum',
    dtype: 'f32',
    shape: [2],
    strides: [3],
    reduced: [3],
    reducedStrides: [1],
    x: six,
    y: six,
  }
  const copy = {
    dtype: 'f32',
    shape: [2, 3],
    srcOffset: 0,
    dstOffset: 0,
    srcStrides: [3, 1],
    dstStrides: [3, 1],
    src: six,
    dst: six.slice(),
  }
  const many = Array<number>(9).fill(1)
  const wrong: [KernelOp, object, string][] = [
    ['unary', { fn: 'exp', dtype: 'f32', count: 7, x: six, y: six }, 'ERR_SHAPE'],
    ['binary', { ...binary, aStrides: [4, 1] }, 'ERR_SHAPE'],
    ['binary', { ...binary, shape: [3, 3] }, 'ERR_SHAPE'],
    ['binary', { ...binary, aStrides: [3] }, 'ERR_SHAPE'],
    ['binary', { ...binary, bStrides: [-1, 1] }, 'ERR_ARGUMENT'],
    ['binary', { ...binary, shape: [2.5, 3] }, 'ERR_ARGUMENT'],
    ['binary', { ...binary, shape: '23' }, 'ERR_ARGUMENT'],
    ['binary', { ...binary, shape: many, aStrides: many, bStrides: many }, 'ERR_SHAPE'],
    ['reduce', { ...reduce, reducedStrides: [2] }, 'ERR_SHAPE'],
    ['reduce', { ...reduce, reduced: [4] }, 'ERR_SHAPE'],
    ['copyStrided', { ...copy, srcOffset: 1 }, 'ERR_SHAPE'],
    ['copyStrided', { ...copy, srcStrides: [-3, 1] }, 'ERR_SHAPE'],
    ['copyStrided', { ...copy, dstStrides: [3, 2] }, 'ERR_SHAPE'],
    ['copyStrided', { ...copy, srcOffset: -1 }, 'ERR_ARGUMENT'],
  ]
  for (const [op, args, code] of wrong) {
    t.throws(() => jsKernels.runSync(op, args as never), { code }, `${op} in TypeScript`)
    t.throws(() => addon.run(op, args), { code }, `${op} on the CPU`)
  }
  const huge = { ...copy, shape: [2 ** 40, 2 ** 40], srcStrides: [0, 0], dstStrides: [2 ** 40, 1] }
  t.throws(() => addon.run('copyStrided', huge), { code: 'ERR_SHAPE' })
  for (const op of ['unary', 'binary', 'reduce'] as const) {
    const args = { unary: { dtype: 'f32', count: 0, x: six, y: six }, binary, reduce }[op]
    t.throws(() => addon.run(op, { ...args, fn: 'chirp' }), { code: 'ERR_UNSUPPORTED' })
    t.throws(() => jsKernels.runSync(op, { ...args, fn: 'chirp' } as never), { code: 'ERR_ARGUMENT' })
  }
  const integers = { dtype: 'i32', count: 1, x: new Int32Array(1), y: new Int32Array(1) } as const
  t.throws(() => addon.run('unary', { fn: 'exp', ...integers }), { code: 'ERR_UNSUPPORTED' })
  t.end()
})
