// Activations that are rounded to NVFP4 once for all products that read them: who rounds, and who keeps doing it alone. Results
// of whole plans keep their bits.
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { Buffer, type Operand, type Step, type Storage } from '#lib/plan/program.js'
import { roundOnce } from '#lib/plan/rounded-activations.js'

const tokens = 20

const floats = (cols: number, storage: Storage = 'arena'): Buffer => new Buffer('f32', tokens * cols, storage)

interface Product {
  cols?: number
  compute?: 'nvfp4' | 'bf16'
  x?: Operand
  y?: Operand
  residual?: Operand
  gate?: Operand
  xScale?: number
}

/** A product of rows of `cols` elements. */
function product(rows: Buffer, { cols = 64, ...others }: Product = {}): Step {
  const [data, scales] = [32 * cols, 2 * cols].map(count => new Buffer('u8', count, 'constant').read())
  const weight = { ...{ format: 'nvfp4' as const, rows: 32, cols, tensorScale: 1 }, data, blockScale: scales }
  const operands = { x: rows.read(), y: floats(32, 'output').write(), ...others }
  return { op: 'linear', args: { weight, tokens, compute: 'nvfp4', ...operands } } as Step
}

const norm = (y: Buffer, changes: object = {}): Step => ({
  op: 'norm',
  args: {
    ...{ rows: tokens, cols: 64, groups: 1, inner: 1, centered: false, eps: 0 },
    ...{ x: floats(64, 'input').read(), y: y.write(), ...changes },
  },
})

const negative = (x: Buffer, y = floats(64, 'output')): Step => ({
  op: 'unary',
  args: { fn: 'neg', dtype: 'f32', count: x.count, x: x.read(), y: y.write() },
})

interface Rows {
  x?: Operand
  y?: Operand
  xDtype?: string
  xRounded?: Operand
  yRounded?: Operand
  xScale?: number
  yScale?: number
  yHalf?: Operand
  halfDtype?: string
}

const rowsOf = ({ args }: Step): Rows => args as Rows

interface Weighted {
  weight: object
}

/** What each step does with rounded rows: `takes` or `gives` them, and whether a normalization stores y in f32 as well. */
const rolesOf = (steps: readonly Step[]): string[] =>
  steps.map(step => {
    const { y, xDtype, xRounded, yRounded, yHalf } = rowsOf(step)
    if (yHalf) return 'gives 16 bits'
    if (xDtype) return `takes ${xDtype}`
    if (yRounded) return y ? 'gives both' : 'gives'
    return xRounded ? 'gives' : '-'
  })

const rolesAfter = (...steps: Step[]): string[] => rolesOf(atOnce(roundOnce(steps)))

const [gives, takes] = ['gives', 'takes nvfp4']

t.test('a normalization rounds for the products behind it', async t => {
  const h = floats(64)
  const steps = atOnce(roundOnce([norm(h), product(h), product(h), product(h)]))
  t.strictSame(rolesOf(steps), [gives, takes, takes, takes])
  const [{ yRounded }, ...products] = steps.map(rowsOf) as [Rows, ...Rows[]]
  t.match(yRounded, { access: 'write', count: tokens * 64, buffer: { dtype: 'bf16', storage: 'arena' } })
  t.ok(products.every(({ x }) => x!.buffer === yRounded!.buffer && x!.access === 'read'))
  t.strictSame(rolesAfter(norm(h), product(h)), [gives, takes], 'for one product, too')
})

t.test('a normalization that others read, too, stores 16 bits beside y', async t => {
  const [h, f32] = [floats(64), floats(64, 'output')]
  const bf16 = { compute: 'bf16' as const }
  const steps = atOnce(roundOnce([norm(h), product(h, bf16), product(h, bf16), negative(h)]))
  const [{ y, yHalf, halfDtype }, ...products] = steps.slice(0, 3).map(rowsOf) as [Rows, ...Rows[]]
  t.match({ y, halfDtype }, { y: { buffer: h }, halfDtype: 'bf16' })
  t.match(yHalf, { access: 'write', count: tokens * 64, buffer: { dtype: 'bf16', storage: 'arena' } })
  t.ok(products.every(({ x, xDtype }) => x!.buffer === yHalf!.buffer && xDtype === 'bf16'))
  t.strictSame(rolesAfter(norm(f32), product(f32, bf16)), ['gives 16 bits', 'takes bf16'], 'an output')
  t.strictSame(rolesAfter(negative(f32, h), product(h, bf16), product(h, bf16)), ['-', '-', '-'], 'no norm')
  const short = floats(48)
  const narrow = { ...bf16, cols: 48 }
  t.strictSame(rolesAfter(norm(short, { cols: 48 }), product(short, narrow)), ['-', '-'], 'padded rows')
})

t.test('a product rounds its results where the next one has a scale for all rows', async t => {
  const [x, wide, narrow] = [floats(64, 'input'), floats(64), floats(32)]
  const gate = floats(64)
  const scaled = { xScale: 2 ** -8 }
  const wideProduct = (y: Buffer, changes: Product = {}): Step => {
    const step = product(x, { ...changes, y: y.write() })
    return {
      ...step,
      args: { ...step.args, weight: { ...(step.args as Weighted).weight, rows: 64 } },
    } as Step
  }
  const steps = atOnce(roundOnce([wideProduct(wide, { gate: gate.read() }), product(wide, scaled)]))
  t.strictSame(rolesOf(steps), [gives, takes])
  const [giving, taking] = steps.map(rowsOf) as [Rows, Rows]
  t.match(giving, { yScale: 2 ** -8, y: undefined, yRounded: { access: 'write', count: tokens * 64 } })
  t.match(taking, { xScale: undefined, x: { buffer: giving.yRounded!.buffer, access: 'read' } })
  const chain = [
    wideProduct(wide, scaled),
    wideProduct(gate, { ...scaled, x: wide.read() }),
    product(gate, scaled),
  ]
  t.strictSame(rolesAfter(...chain), [gives, takes, takes], 'and the next one, too')
  t.ok(rowsOf(atOnce(roundOnce(chain))[1]!).yRounded, 'which takes some and gives some')
  const all = (count: number): string[] => Array<string>(count).fill('-')
  t.strictSame(rolesAfter(wideProduct(wide), product(wide)), all(2), 'each row with a scale of its own')
  const attention = {
    op: 'pagedAttention',
    args: { heads: 2, depth: 32, query: x.read(), y: wide.write() },
  } as unknown as Step
  t.strictSame(rolesAfter(attention, product(wide, scaled)), [gives, takes], 'and attention over blocks')
  t.strictSame(rolesAfter(attention, product(wide)), all(2), 'which else writes f32')
  const inF32 = wideProduct(wide, { compute: 'bf16' })
  t.strictSame(rolesAfter(inF32, product(wide, scaled)), all(2), 'a product in other numbers')
  t.strictSame(rolesAfter(product(x, { y: narrow.write() }), product(wide, scaled)), all(2), 'other rows')
  const read = rolesAfter(wideProduct(wide), product(wide, scaled), negative(wide))
  t.strictSame(read, ['gives both', takes, '-'], 'results that others read')
  const mixed = atOnce(roundOnce([norm(wide), product(wide, scaled), product(wide)]))
  t.strictSame(
    rolesOf(mixed),
    ['gives both', takes, '-'],
    'a normalization, for those that have the same scale',
  )
  t.equal(rowsOf(mixed[0]!).yScale, 2 ** -8)
})

t.test('y in f32 is stored where others read it', async t => {
  const h = floats(64)
  t.strictSame(rolesAfter(norm(h), product(h), negative(h)), ['gives both', takes, '-'])
  const x = floats(64)
  const step = product(x, { x: h.read(), residual: h.read() })
  t.strictSame(rolesAfter(norm(h), step), ['gives both', takes], 'rows that are added as well')
  const output = floats(64, 'output')
  t.strictSame(rolesAfter(norm(output), product(output)), ['gives both', takes], 'an output')
  t.strictSame(rolesAfter(norm(h), product(h), product(h, { compute: 'bf16' })), ['gives both', takes, '-'])
})

t.test('where no normalization can, the first product rounds for the others', async t => {
  const h = floats(64)
  const products = [product(h), product(h), product(h)]
  const roles = [gives, takes, takes]
  const steps = atOnce(roundOnce(products))
  t.strictSame(rolesOf(steps), roles)
  t.equal(rowsOf(steps[1]!).x!.buffer, rowsOf(steps[0]!).xRounded!.buffer)
  t.equal(rowsOf(steps[0]!).x!.buffer, h)
  t.strictSame(rolesAfter(negative(floats(64), h), ...products), ['-', ...roles], 'elementwise operations')
  t.strictSame(rolesAfter(norm(h, { groups: 2 }), ...products), ['-', ...roles], 'groups')
  t.strictSame(rolesAfter(norm(h, { cols: 128, rows: 10 }), ...products), ['-', ...roles], 'other rows')
  t.strictSame(rolesAfter(norm(h), norm(h), ...products), ['-', '-', ...roles], 'two writers')
})

t.test('who rounds alone', async t => {
  const h = floats(64)
  t.strictSame(rolesAfter(product(h)), ['-'], 'one product')
  const short = floats(48)
  const all = (count: number): string[] => Array<string>(count).fill('-')
  t.strictSame(
    rolesAfter(product(short, { cols: 48 }), product(short, { cols: 48 })),
    all(2),
    'rows that are no multiple of 64',
  )
  t.strictSame(rolesAfter(product(h), norm(h), product(h)), all(3), 'rows that change in between')
  t.strictSame(rolesAfter(product(h), product(h, { x: h.read(64) })), all(2), 'a part of the rows')
  t.strictSame(rolesAfter(product(h), product(h, { compute: 'bf16' })), all(2), 'a product in bf16')
  const wide = floats(128)
  t.strictSame(rolesAfter(product(wide), product(wide, { cols: 128 })), all(2), 'rows of other lengths')
})
