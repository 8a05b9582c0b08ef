// Weights of convolutions that CUDA reads channels last: which ones, where their elements are, and what keeps its layout.
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs } from '#lib/kernels/kernels.js'
import { layChannelsLast } from '#lib/plan/channels-last.js'
import { Buffer, Operand, type Step } from '#lib/plan/program.js'
import { bf16Value } from '../fixtures/values/golden-values.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

type Conv = Extract<Step, { op: 'conv' }>
type Array = Float32Array | Uint16Array

const random = randomGenerator(5)
const [rows, channels, taps] = [64, 17, 9]
const cols = channels * taps
const floats = uniform(random, rows * cols).map(bf16Value)

const constant = (count = rows * cols): Buffer => new Buffer('f32', count, 'constant', () => floats)

const conv = (weight: Buffer, changes: Partial<Conv['args']> = {}): Conv => {
  const window = { kernel: [3, 3], strides: [1, 1], dilations: [1, 1], padsBegin: [1, 1] }
  const images = { batch: 2, groups: 1, image: [5, 7], out: [5, 7] }
  const [x, y] = [new Buffer('f32', 2 * channels * 35, 'input'), new Buffer('f32', 2 * rows * 35, 'output')]
  const operands = { weight: { format: 'f32' as const, rows, cols, data: weight.read() }, x: x.read() }
  return {
    op: 'conv',
    args: { ...images, ...window, ...operands, y: y.write(), compute: 'bf16', ...changes },
  }
}

function laidOut(...steps: Step[]): { setup: Step[]; convs: Conv[] } {
  const setup: Step[] = []
  return { setup, convs: atOnce(layChannelsLast(steps, setup)) as Conv[] }
}

const isLaidOut = (...steps: Step[]): boolean[] =>
  laidOut(...steps).convs.map(({ args }) => args.channelsLast !== undefined)

/** What the steps of a setup leave in a buffer. */
function run(setup: readonly Step[], result: Buffer): Array {
  const arrays = new Map<Buffer, Array>()
  const arrayOf = ({ buffer }: Operand): Array => {
    const fresh = () =>
      buffer.dtype === 'f32' ? new Float32Array(+buffer.count) : new Uint16Array(+buffer.count)
    const array = arrays.get(buffer) ?? (buffer.elements() as Array | undefined) ?? fresh().fill(7)
    arrays.set(buffer, array)
    return array
  }
  for (const { op, args } of setup) {
    const bind = (arg: unknown): unknown => {
      if (arg instanceof Operand) return arrayOf(arg)
      if (arg === null || typeof arg !== 'object' || Array.isArray(arg)) return arg
      return Object.fromEntries(Object.entries(arg).map(([name, value]) => [name, bind(value)]))
    }
    const bound = Object.entries(args).map(([name, arg]) => [name, bind(arg)])
    jsKernels.runSync(op, Object.fromEntries(bound) as KernelArgs[typeof op])
  }
  return arrays.get(result)!
}

t.test('channels of a tap are neighbours, with zeros behind them and behind the taps', async t => {
  const { setup, convs } = laidOut(conv(constant()))
  const { channelsLast, weight } = convs[0]!.args
  t.match(channelsLast, { access: 'read', buffer: { dtype: 'bf16', storage: 'folded' } })
  t.match(weight, { rows, cols, data: { count: 0 } }, 'the elements are not kept')
  const [pitch, depth] = [24, 224]
  const expected = new Uint16Array(rows * depth)
  const bits = new Uint32Array(floats.buffer)
  for (let o = 0; o < rows; o++)
    for (let c = 0; c < channels; c++)
      for (let tap = 0; tap < taps; tap++)
        expected[o * depth + tap * pitch + c] = bits[o * cols + c * taps + tap]! >>> 16
  t.strictSame(run(setup, channelsLast!.buffer), expected)
})

const wide = (changes: Partial<Conv['args']> = {}, [filters, depth] = [128, 64]): Conv => {
  const count = filters! * depth! * 9
  const data = new Buffer('f32', count, 'constant', () => uniform(randomGenerator(7), count))
  const weight = { format: 'f32' as const, rows: filters!, cols: depth! * 9, data: data.read() }
  return conv(data, { weight, image: [16, 16], out: [16, 16], ...changes })
}

t.test('wide convolutions of 3 x 3 have their weight in tiles of 2 x 2', async t => {
  const { setup, convs } = laidOut(wide())
  const { channelsLast, inTiles } = convs[0]!.args
  t.equal(inTiles, true)
  const weight = uniform(randomGenerator(7), 128 * 64 * 9)
  const g = [
    [1, 0, 0],
    [0.5, 0.5, 0.5],
    [0.5, -0.5, 0.5],
    [0, 0, 1],
  ]
  const numbers = run(setup, channelsLast!.buffer) as Uint16Array
  let largest = 0
  for (const [at, bits] of numbers.entries()) {
    const [pair, line] = [Math.floor(at / 32) % 64, Math.floor(at / 32 / 64)]
    const [spot, o] = [line % 16, 2 * pair + (Math.floor(at / 4) % 2)]
    const c = Math.floor(line / 16) * 16 + (Math.floor(at / 8) % 4) * 4 + (at % 4)
    let sum = 0
    for (let tap = 0; tap < 9; tap++)
      sum += g[spot >> 2]![Math.floor(tap / 3)]! * g[spot & 3]![tap % 3]! * weight[(o * 64 + c) * 9 + tap]!
    const number = new Float32Array(Uint32Array.of(bits << 16).buffer)[0]!
    largest = Math.max(largest, Math.abs(number - sum) / Math.max(Math.abs(sum), 1e-3))
  }
  t.ok(largest < 2 ** -8, `differs by ${largest}`)
})

t.test('which convolutions have no tiles', async t => {
  const isTiled = (step: Conv): boolean => laidOut(step).convs[0]!.args.inTiles === true
  t.equal(isTiled(wide()), true)
  t.equal(isTiled(wide({ compute: 'f16' })), false, 'a tile of large elements would overflow')
  t.equal(isTiled(wide({ batch: 0 })), true, 'the number of images does not matter')
  t.equal(isTiled(wide({ strides: [2, 2] })), false, 'strides')
  t.equal(isTiled(wide({ dilations: [2, 1] })), false, 'dilations')
  t.equal(isTiled(wide({ groups: 2 })), false, 'groups')
  t.equal(isTiled(wide({ kernel: [1, 9] })), false, 'another kernel')
  t.equal(isTiled(wide({ kernel: [3, 3, 1] })), false, 'three axes')
  t.equal(isTiled(wide({ out: [9, 16] })), false, 'blocks that are half empty')
  t.equal(isTiled(wide({}, [72, 64])), false, 'filters that are no multiple of 16')
  t.equal(isTiled(wide({}, [80, 64])), false, 'a block of 16 filters')
  t.equal(isTiled(wide({}, [128, 48])), false, 'few channels')
})

t.test('a weight is laid out once in each type for each number of taps', async t => {
  const weight = constant()
  const line = { kernel: [9], strides: [1], dilations: [1], padsBegin: [4], image: [35], out: [35] }
  const convs = [conv(weight), conv(weight), conv(weight, { compute: 'f16' }), conv(weight, line)]
  const { setup, convs: laid } = laidOut(...convs)
  const buffers = laid.map(({ args }) => args.channelsLast!.buffer)
  t.equal(buffers[1], buffers[0])
  t.equal(buffers[3], buffers[0], 'nine taps in a line')
  t.equal(new Set(buffers).size, 2)
  t.equal(setup.length, 6, 'zeros, a cast and a copy of each')
  const half = {
    format: 'bf16' as const,
    rows,
    cols,
    data: new Buffer('bf16', rows * cols, 'constant').read(),
  }
  t.equal(laidOut(conv(weight, { weight: half })).setup.length, 2, 'bf16 is not rounded')
})

t.test(
  'a convolution reads an image that another one writes in 16 bits, however few its products are',
  async t => {
    const point = { kernel: [1, 1], padsBegin: [0, 0] }
    const weight = { format: 'f32' as const, rows: 16, cols: rows, data: constant(16 * rows).read() }
    const second = (from: Conv, changes: Partial<Conv['args']> = {}): Conv =>
      conv(constant(), { ...point, weight, x: from.args.y.buffer.read(), ...changes })
    const first = conv(constant())
    t.strictSame(isLaidOut(first, second(first)), [true, true])
    t.strictSame(isLaidOut(second(first), first), [false, true], 'of which it is not the first')
    t.strictSame(isLaidOut(first, second(first, { compute: 'f16' })), [true, false], 'another type')
    t.strictSame(
      isLaidOut(first, second(first, { x: first.args.y.buffer.read(35) })),
      [true, false],
      'a part',
    )
    const odd = { format: 'f32' as const, rows: 68, cols, data: constant(68 * cols).read() }
    const ragged = conv(constant(), { weight: odd, y: new Buffer('f32', 2 * 68 * 35, 'arena').write() })
    const next = { ...weight, cols: 68, data: constant(16 * 68).read() }
    t.strictSame(isLaidOut(ragged, second(ragged, { weight: next })), [true, false], 'padded channels')
  },
)

t.test('what keeps its layout', async t => {
  t.strictSame(isLaidOut(conv(constant(), { compute: 'f32' })), [false], 'f32')
  t.strictSame(isLaidOut(conv(constant(), { compute: undefined })), [false], 'no compute')
  t.strictSame(isLaidOut(conv(constant(), { strides: [2, 2] })), [false], 'few products of an element')
  t.strictSame(isLaidOut(conv(constant(), { groups: 2 })), [false], 'few filters of a group')
  const thin = { format: 'f32' as const, rows: 612, cols: 135, data: constant(612 * 135).read() }
  t.strictSame(isLaidOut(conv(constant(), { weight: thin })), [false], '15 channels')
  const i8 = { format: 'i8' as const, rowScale: constant(rows).read() }
  const bytes = { ...i8, rows, cols, data: new Buffer('i8', rows * cols, 'constant').read() }
  t.strictSame(isLaidOut(conv(constant(), { weight: bytes })), [false], 'a shorter format')
  t.strictSame(isLaidOut(conv(new Buffer('f32', rows * cols, 'state'))), [false], 'a weight that changes')
  const weight = constant()
  const negative: Step = {
    op: 'unary',
    args: { fn: 'neg', dtype: 'f32', count: rows * cols, x: weight.read(), y: constant().write() },
  }
  t.strictSame(isLaidOut(conv(weight), negative), [false, false], 'another reader')
})
