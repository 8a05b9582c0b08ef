// Operations on tensors of every element type: the CPU against TypeScript, which computes integers without limits.
import t, { type Test } from 'tap'
import { type ElementArray, elementArrayOf, elementBits } from '#lib/core/dtype.js'
import { floatReader, isInteger } from '#lib/kernels/js/elements.js'
import { integerBinary, integerUnary } from '#lib/kernels/js/integer-functions.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs, KernelOp, KernelType } from '#lib/kernels/kernels.js'
import { type BinaryFn, reduceFns, scatterFns, type UnaryFn } from '#lib/kernels/strided-args.js'
import { requireAddon } from '#lib/native.js'
import { randomGenerator } from '../fixtures/values/random.js'

const addon = requireAddon()
const random = randomGenerator(23)

const wholeTypes = 'i64 i32 i16 i8 i4 i2 u64 u32 u16 u8 u4 u2 bool'.split(' ') as KernelType[]
const numberTypes = 'f32 f64 f16 bf16'.split(' ') as KernelType[]
const tinyTypes = 'f8_e4m3 f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz f8_e8m0 f4'.split(' ') as KernelType[]

/** Elements of random bits; floats of ordinary size but for `wild`. */
function elements(dtype: KernelType, count: number, wild = false): ElementArray {
  const array = new (elementArrayOf(dtype))(count)
  if (!wild && numberTypes.includes(dtype)) {
    const values = Float32Array.from({ length: count }, () => (random() - 0.5) * 8)
    jsKernels.runSync('cast', {
      srcDtype: 'f32',
      dstDtype: dtype,
      count,
      saturate: false,
      src: values,
      dst: array,
    })
    return array
  }
  const bytes = new Uint8Array(array.buffer)
  const bits = dtype === 'bool' ? 1 : elementBits[dtype]
  for (let i = 0; i < bytes.length; i++) bytes[i] = Math.floor(random() * (bits < 8 ? 2 ** bits : 256))
  return array
}

/** How far results may be apart, as a part of their size: each engine rounds its own way. */
const tolerances: Partial<Record<KernelType, number>> = { f32: 1e-5, f64: 1e-12, f16: 2e-3, bf16: 1.6e-2 }

function agree(t: Test, dtype: KernelType, js: ElementArray, cpu: ElementArray, name: string): void {
  const tolerance = tolerances[dtype]
  if (isInteger(dtype) || tolerance === undefined) {
    t.same(cpu, js, name)
    return
  }
  const [a, b] = [floatReader(dtype, cpu), floatReader(dtype, js)]
  const wrong = Array.from({ length: js.length }, (_, i) => i).find(i => {
    const same = Object.is(a(i), b(i)) || a(i) === b(i)
    return !same && !(Math.abs(a(i) - b(i)) <= tolerance * Math.max(1, Math.abs(b(i))))
  })
  t.equal(
    wrong,
    undefined,
    wrong === undefined ? name : `${name}: [${wrong}] is ${a(wrong)}, not ${b(wrong)}`,
  )
}

/** Runs an operation on both engines; `outputs` are made anew for each. */
function compare<Op extends KernelOp>(
  t: Test,
  op: Op,
  args: Partial<KernelArgs[Op]>,
  outputs: Readonly<Record<string, readonly [KernelType, number, ElementArray?]>>,
  name: string,
): void {
  const fresh = () =>
    Object.fromEntries(
      Object.entries(outputs).map(([key, [dtype, count, start]]) => [
        key,
        start ? start.slice() : new (elementArrayOf(dtype))(count),
      ]),
    )
  const [js, cpu] = [fresh(), fresh()]
  jsKernels.runSync(op, { ...args, ...js } as unknown as KernelArgs[Op])
  addon.run(op, { ...args, ...cpu } as unknown as KernelArgs[Op])
  for (const [key, [dtype]] of Object.entries(outputs))
    agree(t, dtype, js[key]!, cpu[key]!, `${name}: ${key}`)
}

t.test('casts between all types', t => {
  const types = [...wholeTypes, ...numberTypes, ...tinyTypes]
  for (const srcDtype of types) {
    const src = elements(srcDtype, 1037, true)
    for (const dstDtype of types) {
      for (const saturate of [false, true]) {
        const rounding = (['up', 'down', 'nearest'] as const)[Math.floor(random() * 3)]!
        const args = { srcDtype, dstDtype, count: 1037, saturate, rounding, src }
        compare(t, 'cast', args, { dst: [dstDtype, 1037] }, `${srcDtype} to ${dstDtype}`)
      }
    }
  }
  t.end()
})

t.test('bits in another type', t => {
  const src = elements('f32', 37, true)
  const args = { srcDtype: 'f32', dstDtype: 'i32', count: 37, saturate: false, bits: true, src } as const
  compare(t, 'cast', args, { dst: ['i32', 37] }, 'f32 as i32')
  const dst = new BigInt64Array(37)
  for (const run of [addon.run, jsKernels.runSync]) {
    const error = { code: 'ERR_DTYPE', message: /f32 and i64 differ in size/ }
    t.throws(() => run('cast', { ...args, dstDtype: 'i64', dst }), error)
  }
  t.end()
})

t.test('functions of integers', t => {
  for (const dtype of wholeTypes) {
    const [a, b] = [elements(dtype, 35), elements(dtype, 5)]
    for (const fn of Object.keys(integerUnary) as UnaryFn[]) {
      compare(t, 'unary', { fn, dtype, count: 35, x: a }, { y: [dtype, 35] }, `${fn} of ${dtype}`)
    }
    for (const fn of Object.keys(integerBinary) as BinaryFn[]) {
      const result = ['less', 'less_or_equal', 'equal'].includes(fn) ? 'bool' : dtype
      const args = { fn, dtype, shape: [7, 5], aStrides: [5, 1], bStrides: [0, 1], a, b }
      compare(t, 'binary', args, { y: [result, 35] }, `${fn} of ${dtype}`)
    }
  }
  t.throws(
    () =>
      addon.run('unary', { fn: 'exp', dtype: 'i32', count: 1, x: new Int32Array(1), y: new Int32Array(1) }),
    {
      code: 'ERR_UNSUPPORTED',
    },
  )
  t.end()
})

t.test('functions of floats', t => {
  for (const dtype of numberTypes) {
    const [a, b] = [elements(dtype, 703), elements(dtype, 37)]
    for (const fn of [
      'swish',
      'elu',
      'celu',
      'selu',
      'shrink',
      'hard_sigmoid',
      'softplus',
      'mish',
      'round',
    ] as const) {
      const args = { fn, dtype, count: 703, alpha: 0.7, beta: 0.4, x: a }
      compare(t, 'unary', args, { y: [dtype, 703] }, `${fn} of ${dtype}`)
    }
    for (const fn of ['is_nan', 'is_inf'] as const) {
      const args = { fn, dtype, count: 1000, alpha: 1, beta: 0, x: elements(dtype, 1000, true) }
      compare(t, 'unary', args, { y: ['bool', 1000] }, `${fn} of ${dtype}`)
    }
    for (const fn of ['add', 'div', 'max', 'min', 'mod', 'fmod', 'prelu'] as const) {
      const args = { fn, dtype, shape: [19, 37], aStrides: [37, 1], bStrides: [0, 1], a, b }
      compare(t, 'binary', args, { y: [dtype, 703] }, `${fn} of ${dtype}`)
    }
    const args = { fn: 'less', dtype, shape: [37, 19], aStrides: [1, 37], bStrides: [1, 0], a, b } as const
    compare(t, 'binary', args, { y: ['bool', 703] }, `less of ${dtype}`)
  }
  t.end()
})

t.test('choices, gathers and scatters', t => {
  const condition = elements('bool', 5) as Uint8Array
  const indices = BigInt64Array.of(2n, -1n, 0n, 2n, 1n, -7n)
  for (const dtype of [...wholeTypes, ...numberTypes, ...tinyTypes]) {
    const [a, b] = [elements(dtype, 35), elements(dtype, 7)]
    const choice = { dtype, shape: [7, 5], conditionStrides: [0, 1], aStrides: [5, 1], bStrides: [1, 0] }
    compare(t, 'select', { ...choice, condition, a, b }, { y: [dtype, 35] }, `select of ${dtype}`)
    const places = {
      dtype,
      shape: [6, 5],
      strides: [0, 1],
      indexStrides: [1, 0],
      steps: [5],
      limits: [7],
      indices,
    }
    compare(t, 'gather', { ...places, x: a }, { y: [dtype, 30] }, `gather of ${dtype}`)
    const updates = elements(dtype, 30)
    for (const fn of scatterFns) {
      if (tinyTypes.includes(dtype) && fn !== 'assign') continue
      compare(t, 'scatter', { ...places, fn, updates }, { y: [dtype, 35, a] }, `scatter ${fn} of ${dtype}`)
    }
  }
  const x = new Float32Array(6)
  const outside = {
    dtype: 'f32',
    shape: [1],
    strides: [0],
    indexStrides: [1],
    steps: [1],
    limits: [6],
    x,
  } as const
  for (const index of [6n, -7n]) {
    const args = { ...outside, indices: BigInt64Array.of(index), y: new Float32Array(1) }
    for (const run of [addon.run, jsKernels.runSync]) {
      t.throws(() => run('gather', args), { code: 'ERR_ARGUMENT', message: /not in \[-6, 6\)/ })
    }
  }
  t.end()
})

t.test('reductions, running sums and searches', t => {
  for (const dtype of [...wholeTypes, ...numberTypes]) {
    const x = elements(dtype, 7 * 13 * 3)
    for (const fn of reduceFns) {
      const args = { fn, dtype, shape: [7, 3], reduced: [13], strides: [39, 1], reducedStrides: [3], x }
      compare(t, 'reduce', args, { y: [dtype, 21] }, `${fn} of ${dtype}`)
      const none = { fn, dtype, shape: [3], reduced: [0], strides: [1], reducedStrides: [3], x }
      compare(t, 'reduce', none, { y: [dtype, 3] }, `${fn} of no ${dtype}`)
    }
    const axis = { dtype, outer: 7, size: 13, inner: 3, x }
    for (const [i, fn] of (['sum', 'sum', 'prod', 'prod'] as const).entries()) {
      const args = { ...axis, fn, exclusive: i % 2 === 0, reverse: i > 1 }
      compare(t, 'cumulate', args, { y: [dtype, 273] }, `running ${fn} of ${dtype}`)
    }
    for (const [k, largest, lastFirst] of [
      [4, true, false],
      [13, false, true],
      [1, true, true],
    ] as const) {
      const outputs = { values: [dtype, 21 * k], indices: ['i64', 21 * k] } as const
      compare(t, 'topK', { ...axis, k, largest, lastFirst }, outputs, `top ${k} of ${dtype}`)
    }
  }
  t.end()
})

t.test('operands without elements leave what is there', t => {
  const [none, wholes, y] = [new Float32Array(0), new Int32Array(0), Float32Array.of(5, 6)]
  const indices = new BigInt64Array(0)
  const empty = { dtype: 'f32', shape: [2, 0], indices } as const
  for (const run of [addon.run, jsKernels.runSync]) {
    for (const bits of [false, true]) {
      run('cast', {
        srcDtype: 'f32',
        dstDtype: 'i32',
        count: 0,
        saturate: false,
        bits,
        src: none,
        dst: wholes,
      })
    }
    const places = { ...empty, strides: [0, 1], indexStrides: [0, 1], steps: [1], limits: [2] }
    run('scatter', { ...places, fn: 'add', updates: none, y })
    run('gather', { ...places, x: y, y: none })
    const strides = { strides: [1], reducedStrides: [0, 1] }
    const sums = new Float32Array(2).fill(7)
    run('reduce', { fn: 'sum', dtype: 'f32', shape: [2], reduced: [0, 3], ...strides, x: none, y: sums })
    t.same([sums, y], [new Float32Array(2), Float32Array.of(5, 6)])
  }
  t.end()
})
