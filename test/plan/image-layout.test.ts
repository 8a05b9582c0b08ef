// Images that convolutions hand on with their channels last, in 16 bits and bytes: which ones, where planes stay beside them, and what
// keeps planes.
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { keepChannelsLast } from '#lib/plan/image-layout.js'
import { Buffer, type Operand, type Step, type Storage } from '#lib/plan/program.js'

type Conv = Extract<Step, { op: 'conv' }>
type BytesConv = Extract<Step, { op: 'convInteger' }>
type Planes = 'f32' | 'u8' | 'i8'

const pixels = 35

const image = (dtype: Planes, channels: number, storage: Storage = 'arena'): Buffer =>
  new Buffer(dtype, 2 * channels * pixels, storage)

const window = { kernel: [3, 3], strides: [1, 1], dilations: [1, 1], padsBegin: [1, 1] }
const images = { batch: 2, groups: 1, image: [5, 7], out: [5, 7] }

const channelsOf = (...buffers: Buffer[]): number[] => buffers.map(({ count }) => Number(count) / 2 / pixels)

/** A convolution in bf16 from `from` to `to`, its weight laid out. */
function conv(from: Buffer, to: Buffer, changes: Partial<Conv['args']> = {}): Conv {
  const [rows, channels] = channelsOf(to, from) as [number, number]
  const data = new Buffer('f32', 0, 'constant').read()
  const weight = { format: 'f32' as const, rows, cols: 9 * channels, data }
  const channelsLast = new Buffer('bf16', rows * 9 * channels, 'folded').read()
  const operands = { weight, channelsLast, x: from.read(), y: to.write() }
  return { op: 'conv', args: { ...images, ...window, ...operands, compute: 'bf16', ...changes } }
}

/** The same of bytes, which it ends in. */
function bytesConv(from: Buffer, to: Buffer, changes: Partial<BytesConv['args']> = {}): BytesConv {
  const [rows, channels] = channelsOf(to, from) as [number, number]
  const sizes = { ...images, ...window, rows, cols: 9 * channels, channelsLast: true }
  const w = new Buffer('i8', rows * 9 * channels, 'folded').read()
  const scale = new Buffer('f32', rows, 'folded').read()
  const types = { xSigned: from.dtype === 'i8', yDtype: to.dtype as 'u8' | 'i8' }
  return {
    op: 'convInteger',
    args: { ...sizes, ...types, w, scale, x: from.read(), y: to.write(), ...changes },
  }
}

function negative(x: Buffer): Step {
  const y = image('f32', 16, 'output').write()
  return { op: 'unary', args: { fn: 'neg', dtype: 'f32', count: x.count, x: x.read(), y } }
}

interface Typed {
  xDtype?: string
  xOutside?: Operand
  y?: Operand
  yDtype?: string
  yChannelsLast?: Operand
}

/** Whether a step reads and writes images with their channels last (C), planes (P), or both. */
const layoutsOf = (steps: readonly Step[]): string[] =>
  steps.map(({ args }) => {
    const { xDtype, xOutside, y, yDtype = 'f32', yChannelsLast } = args as Typed
    const isLast = yChannelsLast || yDtype === 'bf16'
    const isPlanes = y && yDtype !== 'bf16'
    return `${xDtype || xOutside ? 'C' : 'P'} ${isPlanes ? 'P' : ''}${isLast ? 'C' : ''}`
  })

const laidOut = (...steps: Step[]): string[] => layoutsOf(atOnce(keepChannelsLast(steps, [])))

/** The tests that convolutions of both kinds pass. */
function testKind<Args extends object>(
  dtype: Planes,
  make: (from: Buffer, to: Buffer, changes?: Partial<Args>) => Step,
  gathering: Partial<Args>,
): void {
  const middle = (channels = 16): Buffer => image(dtype, channels)
  const input = (): Buffer => image(dtype, 16, 'input')
  const output = (channels = 16): Buffer => image(dtype, channels, 'output')

  t.test(`convolutions alone read it, ${dtype}`, async t => {
    const h = middle()
    t.strictSame(laidOut(make(input(), h), make(h, output()), make(h, output(32))), ['P C', 'C P', 'C P'])
  })

  t.test(`others read it, too, ${dtype}`, async t => {
    const h = middle()
    const [first, next] = [make(input(), h), make(h, output())]
    t.strictSame(laidOut(first, negative(h), next), ['P PC', 'P P', 'C P'])
    const result = output()
    t.strictSame(laidOut(make(input(), result), make(result, output())), ['P PC', 'C P'], 'an output')
  })

  t.test(`what keeps planes, ${dtype}`, async t => {
    const all = (count: number): string[] => Array<string>(count).fill('P P')
    const h = middle()
    const [first, next] = [make(input(), h), make(h, output())]
    t.strictSame(laidOut(first, negative(h)), all(2), 'no convolution reads it')
    t.strictSame(laidOut(negative(h), next), all(2), 'no convolution writes it')
    t.strictSame(laidOut(make(input(), h), first, next), all(3), 'two writers')
    t.strictSame(laidOut(make(input(), h, gathering), next), all(2), 'it is written without the layout')
    t.strictSame(laidOut(first, make(h, output(), gathering)), all(2), 'it is read without the layout')
    const part = { x: h.read(pixels) } as unknown as Partial<Args>
    t.strictSame(laidOut(first, make(h, output(), part)), all(2), 'a part of it')
    const kept = image(dtype, 16, 'state')
    t.strictSame(laidOut(make(input(), kept), make(kept, output())), all(2), 'a state')
    const odd = middle(20)
    t.strictSame(laidOut(make(input(), odd), make(odd, output())), all(2), 'channels that would be padded')
    const grouped = { groups: 4 } as unknown as Partial<Args>
    t.strictSame(laidOut(make(input(), h, grouped), next), all(2), 'groups of four filters')
  })
}

testKind<Conv['args']>('f32', conv, { channelsLast: undefined })
testKind<BytesConv['args']>('u8', bytesConv, { channelsLast: false })
testKind<BytesConv['args']>('i8', bytesConv, { channelsLast: undefined })

t.test('16 bits are the type of products', async t => {
  const h = image('f32', 16)
  const [first, next] = [conv(image('f32', 16, 'input'), h), conv(h, image('f32', 16, 'output'))]
  const steps = atOnce(keepChannelsLast([first, next], [])) as Conv[]
  const [{ y, yDtype }, { x, xDtype }] = steps.map(({ args }) => args) as [Conv['args'], Conv['args']]
  t.match(y, { access: 'write', count: 2 * 16 * pixels, buffer: { dtype: 'bf16', storage: 'arena' } })
  t.equal(x.buffer, y.buffer)
  t.strictSame([yDtype, xDtype, x.access], ['bf16', 'bf16', 'read'])
  const added = conv(h, image('f32', 16, 'output'), { residual: h.read() })
  t.strictSame(laidOut(first, added), ['P PC', 'C P'], 'a residual is planes')
  const half = conv(h, image('f32', 16, 'output'), { compute: 'f16' })
  t.strictSame(laidOut(first, half, next), ['P PC', 'P P', 'C P'], 'two types')
})

t.test('bytes have zero points outside of the image', async t => {
  const h = image('u8', 32)
  const first = bytesConv(image('u8', 16, 'input'), h)
  const zero = new Buffer('i32', 1, 'folded').read()
  const next = (changes: Partial<BytesConv['args']>) => bytesConv(h, image('i8', 16, 'output'), changes)
  const setup: Step[] = []
  const steps = atOnce(keepChannelsLast([first, next({ xZero: zero }), next({})], setup)) as BytesConv[]
  const [writer, reader, plain] = steps.map(({ args }) => args) as [BytesConv['args'], ...BytesConv['args'][]]
  t.equal(writer.y, undefined)
  t.match(writer.yChannelsLast, { access: 'write', buffer: { dtype: 'u8', storage: 'arena' } })
  t.ok([reader, plain].every(args => args?.x.buffer === writer.yChannelsLast?.buffer))
  const made = setup.map(({ op, args }) => [op, (args as { src: Operand }).src.buffer.elements()])
  t.strictSame(
    made.map(([op]) => op),
    ['cast', 'copyStrided', 'cast', 'copyStrided'],
  )
  t.strictSame(made[2]?.[1], new Int32Array(1), 'zero where there is no zero point')
  for (const args of [reader, plain])
    t.match(args?.xOutside, { count: 16, buffer: { dtype: 'u8', storage: 'folded' } })
  const computed = new Buffer('i32', 1, 'arena').read()
  t.strictSame(laidOut(first, next({ xZero: computed })), ['P P', 'P P'], 'one that each run computes')
  const sums = bytesConv(h, image('u8', 16), { scale: undefined, yDtype: undefined })
  t.strictSame(laidOut(first, sums), ['P C', 'C P'], 'sums are planes')
  t.strictSame(laidOut(bytesConv(image('u8', 16, 'input'), image('u8', 24)), next({})), ['P P', 'P P'])
})
