// Activations that are stored in the 16 bits that every product rounds them to: which steps write them, and what keeps f32.
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import type { Compute } from '#lib/kernels/kernels.js'
import { halveActivations } from '#lib/plan/half-activations.js'
import { Buffer, type Operand, type Step, type Storage } from '#lib/plan/program.js'

const tokens = 20

const floats = (cols: number, storage: Storage = 'arena'): Buffer => new Buffer('f32', tokens * cols, storage)

interface Product {
  cols?: number
  compute?: Compute
  x?: Operand
  residual?: Operand
  y?: Operand
}

/** A product of rows of `cols` elements. */
function product(rows: Buffer, { cols = 64, ...others }: Product = {}): Step {
  const data = new Buffer('bf16', 32 * cols, 'constant')
  const weight = { format: 'bf16' as const, rows: 32, cols, data: data.read() }
  const operands = { x: rows.read(), y: floats(32, 'output').write(), ...others }
  return { op: 'linear', args: { weight, tokens, compute: 'bf16', ...operands } }
}

const norm = (y: Buffer, cols = 64): Step => ({
  op: 'norm',
  args: {
    ...{ rows: tokens, cols, groups: 1, inner: 1, centered: false, eps: 0 },
    ...{ x: floats(cols, 'input').read(), y: y.write() },
  },
})

const negative = (x: Buffer): Step => ({
  op: 'unary',
  args: { fn: 'neg', dtype: 'f32', count: x.count, x: x.read(), y: floats(64, 'output').write() },
})

interface Typed {
  xDtype?: string
  yDtype?: string
}

/** The types of x and y of each step, `-` where they are f32. */
const typesOf = (steps: readonly Step[]): string[] =>
  steps.map(({ args }) => `${(args as Typed).xDtype ?? '-'} ${(args as Typed).yDtype ?? '-'}`)

const halved = (...steps: Step[]): string[] => typesOf(atOnce(halveActivations(steps)))

t.test('all readers are products in one type', async t => {
  const h = floats(64)
  const steps = atOnce(halveActivations([norm(h), product(h), product(h)]))
  t.strictSame(typesOf(steps), ['- bf16', 'bf16 -', 'bf16 -'])
  const [y, ...xs] = steps.map(({ args }, i) => (args as { x: Operand; y: Operand })[i === 0 ? 'y' : 'x'])
  t.match(y, { access: 'write', count: tokens * 64, buffer: { dtype: 'bf16', storage: 'arena' } })
  t.ok(xs.every(x => x.buffer === y!.buffer && x.access === 'read'))
  const f16 = { compute: 'f16' as const }
  t.strictSame(halved(norm(h), product(h, f16)), ['- f16', 'f16 -'])
})

t.test('products write them, too', async t => {
  const [h, between] = [floats(64), floats(32)]
  const first = product(h, { y: between.write() })
  t.strictSame(halved(first, product(between, { cols: 32 })), ['- bf16', 'bf16 -'])
})

t.test('attention writes them, too', async t => {
  const strides = [0, 64, 64] as const
  const shape = { batch: 1, heads: 1, kvHeads: 1, queries: tokens, keys: tokens, depth: 64, valueDepth: 64 }
  const attention = (y: Buffer): Step => {
    const x = floats(64, 'input').read()
    const inputs = { q: x, k: x, v: x, qStrides: strides, kStrides: strides, vStrides: strides }
    return { op: 'attention', args: { ...shape, scale: 1, ...inputs, y: y.write(), yStrides: strides } }
  }
  const h = floats(64)
  t.strictSame(halved(attention(h), product(h), product(h)), ['- bf16', 'bf16 -', 'bf16 -'])
  t.strictSame(halved(attention(h), product(h), negative(h)), ['- -', '- -', '- -'])
})

t.test('what keeps f32', async t => {
  const all = (count: number): string[] => Array<string>(count).fill('- -')
  const h = floats(64)
  t.strictSame(halved(norm(h), product(h), negative(h)), all(3), 'another reader')
  t.strictSame(halved(norm(h), product(h), product(h, { compute: 'f16' })), all(3), 'two types')
  t.strictSame(halved(norm(h), product(h, { compute: 'f32' })), all(2), 'a product in f32')
  t.strictSame(halved(norm(h), product(h, { compute: 'nvfp4' })), all(2), 'a product in nvfp4')
  t.strictSame(halved(norm(h), norm(h), product(h)), all(3), 'two writers')
  t.strictSame(halved(norm(h), product(h), product(h, { x: h.read(64) })), all(3), 'a part of the rows')
  const other = floats(64)
  const x = h.read()
  t.strictSame(halved(norm(h), product(other, { x, residual: x })), all(2), 'rows that are added as well')
  const short = floats(48)
  t.strictSame(halved(norm(short, 48), product(short, { cols: 48 })), all(2), 'rows that would be padded')
  const output = floats(64, 'output')
  t.strictSame(halved(norm(output), product(output)), all(2), 'an output')
  t.strictSame(halved(negative(floats(64)), product(floats(64))), all(2), 'a writer in f32 alone')
})
