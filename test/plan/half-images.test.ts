// Images that convolutions hand on in 16 bits: which ones, where f32 stays beside them, and what keeps f32.
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { halveImages } from '#lib/plan/half-images.js'
import { Buffer, type Operand, type Step, type Storage } from '#lib/plan/program.js'

type Conv = Extract<Step, { op: 'conv' }>

const pixels = 35

const image = (channels = 16, storage: Storage = 'arena'): Buffer =>
  new Buffer('f32', 2 * channels * pixels, storage)

/** A convolution from `channels` to `filters`, its weight laid out. */
function conv(from: Buffer, to: Buffer, changes: Partial<Conv['args']> = {}): Conv {
  const window = { kernel: [3, 3], strides: [1, 1], dilations: [1, 1], padsBegin: [1, 1] }
  const images = { batch: 2, groups: 1, image: [5, 7], out: [5, 7] }
  const [rows, cols] = [to, from].map(({ count }) => Number(count) / 2 / pixels) as [number, number]
  const data = new Buffer('f32', 0, 'constant').read()
  const weight = { format: 'f32' as const, rows, cols: 9 * cols, data }
  const channelsLast = new Buffer('bf16', rows * 9 * cols, 'folded').read()
  const operands = { weight, channelsLast, x: from.read(), y: to.write() }
  return { op: 'conv', args: { ...images, ...window, ...operands, compute: 'bf16', ...changes } }
}

const negative = (x: Buffer): Step => ({
  op: 'unary',
  args: { fn: 'neg', dtype: 'f32', count: x.count, x: x.read(), y: image(16, 'output').write() },
})

interface Typed {
  xDtype?: string
  yDtype?: string
  yChannelsLast?: Operand
}

/** The types of x and y of each step, and of what is stored beside y; `-` where they are f32. */
const typesOf = (steps: readonly Step[]): string[] =>
  steps.map(({ args }) => {
    const { xDtype = '-', yDtype = '-', yChannelsLast } = args as Typed
    return `${xDtype} ${yDtype}${yChannelsLast ? ` and ${yChannelsLast.buffer.dtype}` : ''}`
  })

const halved = (...steps: Step[]): string[] => typesOf(atOnce(halveImages(steps)))
const input = (channels?: number): Buffer => image(channels, 'input')
const output = (channels?: number): Buffer => image(channels, 'output')

t.test('convolutions alone read it', async t => {
  const h = image()
  const steps = atOnce(halveImages([conv(input(), h), conv(h, output()), conv(h, output(32))])) as Conv[]
  t.strictSame(typesOf(steps), ['- bf16', 'bf16 -', 'bf16 -'])
  const [{ y }, ...readers] = steps.map(({ args }) => args) as [Conv['args'], ...Conv['args'][]]
  t.match(y, { access: 'write', count: 2 * 16 * pixels, buffer: { dtype: 'bf16', storage: 'arena' } })
  t.ok(readers.every(({ x }) => x.buffer === y.buffer && x.access === 'read'))
})

t.test('others read it, too', async t => {
  const h = image()
  const [first, next] = [conv(input(), h), conv(h, output())]
  t.strictSame(halved(first, negative(h), next), ['- - and bf16', '- -', 'bf16 -'])
  const added = conv(h, output(), { residual: h.read() })
  t.strictSame(halved(first, added), ['- - and bf16', 'bf16 -'], 'a residual is planes')
  const half = conv(h, output(), { compute: 'f16' })
  t.strictSame(halved(first, half, next), ['- - and bf16', '- -', 'bf16 -'], 'two types')
  const result = output()
  t.strictSame(halved(conv(input(), result), conv(result, output())), ['- - and bf16', 'bf16 -'], 'an output')
})

t.test('what keeps f32', async t => {
  const all = (count: number): string[] => Array<string>(count).fill('- -')
  const h = image()
  const [first, next] = [conv(input(), h), conv(h, output())]
  t.strictSame(halved(first, negative(h)), all(2), 'no convolution reads it')
  t.strictSame(halved(negative(h), next), all(2), 'no convolution writes it')
  t.strictSame(halved(conv(input(), h), first, next), all(3), 'two writers')
  const gathering = { channelsLast: undefined }
  t.strictSame(halved(conv(input(), h, gathering), next), all(2), 'it is written without the layout')
  t.strictSame(halved(first, conv(h, output(), gathering)), all(2), 'it is read without the layout')
  t.strictSame(halved(first, conv(h, output(), { x: h.read(pixels) })), all(2), 'a part of it')
  const kept = image(16, 'state')
  t.strictSame(halved(conv(input(), kept), conv(kept, output())), all(2), 'a state')
  const odd = image(20)
  t.strictSame(halved(conv(input(), odd), conv(odd, output())), all(2), 'channels that would be padded')
  const grouped = { groups: 4 }
  t.strictSame(halved(conv(input(), h, grouped), next), all(2), 'groups of four filters')
})
