// Activations in 16 bits: the reference computes as with the same ones in f32; other products and the CPU refuse them.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { bf16Value } from '../fixtures/values/golden-values.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const [tokens, rows, cols] = [3, 5, 32]
const random = randomGenerator(7)
const weight: Weight = { format: 'f32', rows, cols, data: uniform(random, rows * cols) }
const x = uniform(random, tokens * cols).map(bf16Value)
/** Elements that bf16 holds, in it. */
const halvesOf = (values: Float32Array): Uint16Array =>
  Uint16Array.from(new Uint32Array(values.buffer), bits => bits >>> 16)

type Linear = KernelArgs['linear']

const linear = (changes: Partial<Linear> = {}): Linear => ({
  ...{ weight, tokens, x, compute: 'bf16', y: new Float32Array(tokens * rows) },
  ...changes,
})

t.test('a product', async t => {
  const [plain, halves] = [linear(), linear({ x: halvesOf(x), xDtype: 'bf16' })]
  for (const args of [plain, halves]) jsKernels.runSync('linear', args)
  t.strictSame(halves.y, plain.y)
  const rounded = linear({ y: new Uint16Array(tokens * rows), yDtype: 'bf16' })
  jsKernels.runSync('linear', rounded)
  t.strictSame(rounded.y, halvesOf((plain.y as Float32Array).map(bf16Value)))
})

t.test('a normalization', async t => {
  const shape = { rows: tokens, cols, groups: 1, inner: 1, centered: true, eps: 1e-5 }
  const [plain, rounded] = [
    { y: new Float32Array(x.length) },
    { y: new Uint16Array(x.length), yDtype: 'bf16' },
  ]
  for (const y of [plain, rounded] as Pick<KernelArgs['norm'], 'y' | 'yDtype'>[])
    jsKernels.runSync('norm', { ...shape, x, ...y })
  t.strictSame(rounded.y, halvesOf(plain.y.map(bf16Value)))
})

/** One head of queries and values of `cols` elements. */
const attention = (changes: Partial<KernelArgs['attention']> = {}): KernelArgs['attention'] => {
  const strides = [0, 0, cols] as const
  const shape = {
    batch: 1,
    heads: 1,
    kvHeads: 1,
    queries: tokens,
    keys: tokens,
    depth: cols,
    valueDepth: cols,
  }
  const inputs = { q: x, k: x, v: x, qStrides: strides, kStrides: strides, vStrides: strides }
  return { ...shape, scale: 0.2, ...inputs, yStrides: strides, y: new Float32Array(x.length), ...changes }
}

/** The same in blocks of keys and values. */
const paged = (changes: Partial<KernelArgs['pagedAttention']> = {}): KernelArgs['pagedAttention'] => ({
  ...{
    tokens,
    sequences: 1,
    heads: 1,
    kvHeads: 1,
    depth: cols,
    rotary: 0,
    blocks: 1,
    blockSize: 4,
    table: 1,
  },
  ...{ scale: 0.2, query: x, key: x, value: x },
  ...{ starts: Int32Array.of(0, tokens), past: Int32Array.of(0), block: Int32Array.of(0) },
  ...{ keyCache: new Float32Array(4 * cols), valueCache: new Float32Array(4 * cols) },
  ...{ y: new Float32Array(x.length), ...changes },
})

t.test('attention', async t => {
  const y = () => new Uint16Array(x.length)
  const [plain, rounded] = [attention(), attention({ y: y(), yDtype: 'bf16' })]
  for (const args of [plain, rounded]) jsKernels.runSync('attention', args)
  t.strictSame(rounded.y, halvesOf((plain.y as Float32Array).map(bf16Value)))
  const [floats, halves] = [paged(), paged({ y: y(), yDtype: 'bf16' })]
  for (const args of [floats, halves]) jsKernels.runSync('pagedAttention', args)
  t.strictSame(halves.y, halvesOf((floats.y as Float32Array).map(bf16Value)))
  const gaps = {
    yStrides: [0, 0, cols + 1] as const,
    y: new Uint16Array(x.length + 2),
    yDtype: 'bf16' as const,
  }
  const refused = { code: 'ERR_SHAPE', message: /yStrides leave gaps, which y in bf16 has not/ }
  t.throws(() => jsKernels.runSync('attention', attention(gaps)), refused)
  const onCpu = { code: 'ERR_UNSUPPORTED', message: /yDtype bf16 is for CUDA/ }
  t.throws(() => requireAddon().run('attention', attention({ y: y(), yDtype: 'bf16' })), onCpu)
  t.throws(() => requireAddon().run('pagedAttention', paged({ y: y(), yDtype: 'bf16' })), onCpu)
})

t.test('what is refused', async t => {
  const halves = { x: halvesOf(x), xDtype: 'bf16' } as const
  const refused = (changes: Partial<Linear>, error: { code: string; message?: RegExp }): void => {
    t.throws(() => jsKernels.runSync('linear', linear(changes)), error)
  }
  refused({ ...halves, compute: 'f32' }, { code: 'ERR_SHAPE', message: /xDtype bf16 is for products in it/ })
  refused({ ...halves, xDtype: 'f16' }, { code: 'ERR_SHAPE' })
  refused({ ...halves, weight: { ...weight, cols: 31 } }, { code: 'ERR_SHAPE', message: /of 32 · n columns/ })
  refused({ xDtype: 'bf16' }, { code: 'ERR_DTYPE', message: /x is a Float32Array/ })
  refused({ yDtype: 'bf16' }, { code: 'ERR_DTYPE', message: /y is a Float32Array/ })
  refused({ yDtype: 'i8' as never }, { code: 'ERR_ARGUMENT', message: /yDtype/ })
  const addon = requireAddon()
  const onCpu = { code: 'ERR_UNSUPPORTED', message: /Dtype bf16 is for CUDA/ }
  t.throws(() => addon.run('linear', linear(halves)), onCpu)
  t.throws(() => addon.run('linear', linear({ y: new Uint16Array(15), yDtype: 'bf16' })), onCpu)
})
