// Poolings of compact images, whose channels come last: the bits of the same poolings of planes.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { isSmallImage } from '#lib/kernels/compact.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Windows } from '#lib/kernels/layer-args.js'
import { requireAddon } from '#lib/native.js'
import { identical } from '../fixtures/close.js'
import { transposedImages } from '../fixtures/conv.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

interface Case {
  batch: number
  channels: number
  image: readonly number[]
  kernel: readonly number[]
  strides?: readonly number[]
  dilations?: readonly number[]
  /** In front of the image and behind it. */
  pads?: readonly [readonly number[], readonly number[]]
}

/** Around a block of channels and a vector of them, one to three axes, windows that hang over, and one of nothing but padding. */
const cases: Case[] = [
  {
    batch: 1,
    channels: 3,
    image: [7, 7],
    kernel: [3, 3],
    pads: [
      [1, 1],
      [1, 1],
    ],
  },
  {
    batch: 3,
    channels: 129,
    image: [7, 5],
    kernel: [3, 2],
    strides: [2, 1],
    pads: [
      [1, 0],
      [1, 1],
    ],
  },
  {
    batch: 2,
    channels: 128,
    image: [8, 8],
    kernel: [3, 3],
    strides: [2, 2],
    pads: [
      [0, 0],
      [1, 1],
    ],
  },
  { batch: 2, channels: 300, image: [8, 8], kernel: [2, 2], strides: [2, 2] },
  { batch: 2, channels: 160, image: [16, 16], kernel: [3, 3], strides: [2, 2] },
  { batch: 1, channels: 45, image: [13, 5], kernel: [2, 3] },
  { batch: 1, channels: 17, image: [4, 9], kernel: [2, 3], dilations: [2, 3] },
  { batch: 2, channels: 7, image: [40], kernel: [4], strides: [3], pads: [[2], [1]] },
  {
    batch: 2,
    channels: 5,
    image: [3, 4, 5],
    kernel: [2, 3, 2],
    pads: [
      [1, 1, 0],
      [0, 1, 1],
    ],
  },
  {
    batch: 2,
    channels: 33,
    image: [6, 6],
    kernel: [2, 2],
    pads: [
      [2, 2],
      [2, 3],
    ],
  },
  {
    batch: 1,
    channels: 24,
    image: [1, 64],
    kernel: [1, 5],
    pads: [
      [0, 2],
      [0, 2],
    ],
  },
  { batch: 2, channels: 9, image: [9, 9], kernel: [2, 2] },
  {
    batch: 2,
    channels: 19,
    image: [8, 8],
    kernel: [5, 5],
    pads: [
      [2, 2],
      [2, 2],
    ],
  },
  {
    batch: 1,
    channels: 33,
    image: [8, 8],
    kernel: [5, 5],
    strides: [2, 2],
    pads: [
      [2, 2],
      [2, 2],
    ],
  },
  {
    batch: 1,
    channels: 18,
    image: [2, 32],
    kernel: [2, 4],
    strides: [1, 2],
    pads: [
      [0, 1],
      [0, 1],
    ],
  },
  {
    batch: 2,
    channels: 5,
    image: [1, 64],
    kernel: [1, 7],
    strides: [1, 2],
    pads: [
      [0, 3],
      [0, 3],
    ],
  },
  {
    batch: 1,
    channels: 12,
    image: [2, 32],
    kernel: [1, 6],
    pads: [
      [0, 2],
      [0, 2],
    ],
  },
  {
    batch: 2,
    channels: 9,
    image: [1, 64],
    kernel: [1, 2],
    strides: [1, 2],
    pads: [
      [0, 1],
      [0, 1],
    ],
  },
  {
    batch: 2,
    channels: 9,
    image: [1, 63],
    kernel: [1, 3],
    strides: [1, 2],
    pads: [
      [0, 1],
      [0, 1],
    ],
  },
  { batch: 0, channels: 9, image: [5, 5], kernel: [2, 2] },
]

function windowsOf({ batch, channels, image, kernel, strides, dilations, pads }: Case): Windows {
  const ones = image.map(() => 1)
  const [padsBegin, padsEnd] = pads ?? [image.map(() => 0), image.map(() => 0)]
  const steps = { strides: strides ?? ones, dilations: dilations ?? ones }
  const out = image.map((size, i) => {
    const reach = (kernel[i]! - 1) * steps.dilations[i]! + 1
    return Math.floor((size + padsBegin[i]! + padsEnd[i]! - reach) / steps.strides[i]!) + 1
  })
  return { planes: batch * channels, image, kernel, out, ...steps, padsBegin, padsEnd }
}

/** Random numbers, with zeros of both signs beside each other, and one NaN. */
function values(count: number): Float32Array {
  const x = uniform(randomGenerator(count), count).map((value, i) => (i % 3 === 0 ? value : i % 2 ? -0 : 0))
  if (count > 0) x[count >> 1] = Number.NaN
  return x
}

const runs = { cpu: addon.run, js: jsKernels.runSync.bind(jsKernels) }

t.test('the bits of planes', t => {
  for (const at of cases) {
    const windows = windowsOf(at)
    const { batch, channels } = at
    const [pixels, positions] = [numel(windows.image), numel(windows.out)]
    const x = values(windows.planes * pixels)
    const few = isSmallImage(pixels, channels)
    const last = few ? transposedImages(x, batch, channels, pixels) : x
    for (const [fn, countPad] of [
      ['max', false],
      ['average', false],
      ['average', true],
    ] as const) {
      const args = { fn, dtype: 'f32' as const, countPad, ...windows }
      for (const [name, run] of Object.entries(runs)) {
        const expected = new Float32Array(windows.planes * positions)
        run('pool', { ...args, x, y: expected })
        for (const threads of [1, 2]) {
          addon.setThreads(threads)
          const y = expected.slice().fill(9)
          run('pool', { ...args, compactChannels: channels, x: last, y })
          const planes = few ? transposedImages(y, batch, positions, channels) : y
          identical(
            t,
            planes,
            expected,
            `${JSON.stringify(at)} ${fn} ${countPad}, ${name}, ${threads} threads`,
          )
        }
      }
    }
  }
  t.end()
})

t.test('what cannot be compact is refused', t => {
  const windows = windowsOf(cases[3]!)
  const [x, y] = [new Float32Array(2 * 300 * 64), new Float32Array(2 * 300 * 16)]
  const args = {
    fn: 'max' as const,
    dtype: 'f32' as const,
    countPad: false,
    ...windows,
    compactChannels: 300,
    x,
    y,
  }
  const wrong = [
    { compactChannels: 7 },
    { compactChannels: 0 },
    { indices: new BigInt64Array(y.length) },
    { dtype: 'u8', x: new Uint8Array(x.length), y: new Uint8Array(y.length) },
  ]
  for (const change of wrong)
    for (const run of Object.values(runs))
      t.throws(
        () => run('pool', { ...args, ...change } as never),
        { code: 'ERR_SHAPE', message: /compactChannels/ },
        Object.keys(change).join(),
      )
  t.end()
})
