// conv-integer.ts: convolutions of quantized integers among the cases of `dgx-spark verify`.
import { numel } from '../../core/shape.js'
import { roundUp } from '../../core/size.js'
import { byteChannelUnit } from '../../kernels/conv-args.js'
import type { ByteArray } from '../../kernels/integer-args.js'
import type { ConvShape, KernelArgs } from '../../kernels/kernels.js'
import { bytesOf, zeros } from './bytes.js'
import { type VerifyCase, values, verifyCase } from './values.js'

/** Filters [O, C/G, taps] in rows, as they are or with the channels of each tap side by side. */
function filterRows(rows: number, cols: number, taps: number, channelsLast: boolean): Int8Array {
  const codes = bytesOf('i8', rows * cols, 91)
  const pitch = roundUp(cols / taps, byteChannelUnit)
  const stride = roundUp(channelsLast ? taps * pitch : cols, 64)
  const w = new Int8Array(rows * stride)
  for (const [at, code] of codes.entries()) {
    const [o, c, k] = [Math.floor(at / cols), Math.floor((at % cols) / taps), at % taps]
    w[o * stride + (channelsLast ? k * pitch + c : at % cols)] = code
  }
  return w
}

/** Sums, and what they come to in bytes, by the filters as they are and as only a GPU reads them. */
function shapeCases(name: string, shape: ConvShape, channels: number, rows: number): VerifyCase[] {
  const taps = numel(shape.kernel)
  const cols = (channels / shape.groups) * taps
  const [inputs, outputs] = [channels * numel(shape.image), rows * numel(shape.out)]
  const plain = { channelsLast: undefined, w: filterRows(rows, cols, taps, false) }
  const last = { channelsLast: true, w: filterRows(rows, cols, taps, true) }
  return (['u8', 'i8'] as const).flatMap(type => {
    const [bias, wZero] = [values(rows, 92).map(value => 5000 * value), zeros('i8', rows, 93)]
    const common = { ...shape, rows, cols, xSigned: type === 'i8', xZero: zeros(type, 1, 94), wZero }
    const x = bytesOf(type, shape.batch * inputs, 95)
    const scale = values(rows, 96).map(value => (2 + value) / (1000 * Math.sqrt(cols)))
    const sums = (): KernelArgs['convInteger'] => ({
      ...common,
      ...plain,
      x,
      y: new Int32Array(shape.batch * outputs),
    })
    const toBytes = (): KernelArgs['convInteger'] => {
      const y = bytesOf(type, shape.batch * outputs, 97)
      return { ...sums(), bias: Int32Array.from(bias), scale, yDtype: type, yZero: zeros(type, 1, 98), y }
    }
    const label = `${type} ${name}`
    return [
      verifyCase('convInteger', label, ['y'], 0, sums),
      verifyCase('convInteger', `${label} to bytes`, ['y'], 0, toBytes),
      verifyCase('convInteger', `${label}, channels last`, ['y'], 0, () => ({ ...sums(), ...last }), plain),
      verifyCase(
        'convInteger',
        `${label} to bytes, channels last`,
        ['y'],
        0,
        () => ({ ...toBytes(), ...last }),
        plain,
      ),
    ]
  })
}

/** Images with their channels last; outputs have one position, where those of planes lie the same way. */
function imageCases(): VerifyCase[] {
  const [batch, channels, rows, pixels] = [21, 32, 80, 35]
  const [cols, taps] = [channels * 9, 9]
  const window = { image: [5, 7], kernel: [3, 3], out: [1, 1], strides: [1, 1], dilations: [1, 1] }
  const shape = { ...window, batch, groups: 1, padsBegin: [1, 0], rows, cols, channelsLast: true }
  const w = filterRows(rows, cols, taps, true)
  return (['u8', 'i8'] as const).flatMap(type => {
    const xZero = zeros(type, 1, 94)
    const [x, xOutside] = [batch * pixels * channels, byteChannelUnit].map(n => bytesOf(type, n, 95)) as [
      ByteArray,
      ByteArray,
    ]
    xOutside.fill(xZero[0]!)
    const planes = x.map((_, at) => {
      const [n, c, p] = [
        Math.floor(at / (channels * pixels)),
        Math.floor(at / pixels) % channels,
        at % pixels,
      ]
      return x[(n * pixels + p) * channels + c]!
    })
    const scale = values(rows, 96).map(value => (2 + value) / (1000 * Math.sqrt(cols)))
    const result = { scale, yDtype: type, yZero: zeros(type, 1, 98) }
    const output = () => bytesOf(type, batch * rows, 97)
    const alone = (): KernelArgs['convInteger'] => {
      const signs = { xSigned: type === 'i8', xZero, wZero: zeros('i8', rows, 93) }
      return { ...shape, ...signs, ...result, w, x, xOutside, yChannelsLast: output() }
    }
    const beside = () => ({ ...alone(), y: output() })
    const plain = { channelsLast: undefined, w: filterRows(rows, cols, taps, false), x: planes }
    const reference = { ...plain, xOutside: undefined, yChannelsLast: undefined, y: output() }
    return [
      verifyCase('convInteger', `${type} image`, ['yChannelsLast'], 0, alone, reference),
      verifyCase('convInteger', `${type} image beside planes`, ['y', 'yChannelsLast'], 0, beside, reference),
    ]
  })
}

/** Convolutions along two axes, in groups, of one channel each, and in as many tiles as a GPU takes those of 128 for. */
export function convIntegerCases(): VerifyCase[] {
  const one = [1, 1]
  const plane = {
    image: [9, 11],
    kernel: [3, 2],
    strides: [2, 1],
    dilations: [1, 3],
    padsBegin: [1, 2],
    out: [5, 12],
  }
  const many = {
    image: [98, 98],
    kernel: one,
    strides: one,
    dilations: one,
    padsBegin: [0, 0],
    out: [98, 98],
  }
  return [
    ...shapeCases('2-D', { ...plane, batch: 2, groups: 1 }, 21, 35),
    ...shapeCases('2 groups', { ...plane, batch: 1, groups: 2 }, 40, 18),
    ...shapeCases('depthwise', { ...plane, batch: 1, groups: 7 }, 7, 14),
    ...shapeCases('in many tiles', { ...many, batch: 2, groups: 1 }, 16, 130).filter(of => of.referenceArgs),
    ...imageCases(),
  ]
}
