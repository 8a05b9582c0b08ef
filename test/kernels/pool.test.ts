// Pooling: TypeScript against loops over windows, the CPU against TypeScript.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Windows } from '#lib/kernels/layer-args.js'
import { requireAddon } from '#lib/native.js'
import { close } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

const cases: Readonly<Record<string, Windows>> = {
  'one axis': {
    planes: 3,
    image: [9],
    kernel: [3],
    out: [5],
    strides: [2],
    dilations: [1],
    padsBegin: [1],
    padsEnd: [1],
  },
  'two axes, dilated': {
    planes: 5,
    image: [11, 7],
    kernel: [3, 2],
    out: [5, 6],
    strides: [2, 1],
    dilations: [2, 3],
    padsBegin: [2, 1],
    padsEnd: [1, 1],
  },
  'three axes, a last window that hangs over': {
    ...{
      planes: 2,
      image: [4, 5, 3],
      kernel: [2, 3, 2],
      out: [2, 3, 2],
      strides: [2, 2, 2],
      dilations: [1, 1, 1],
    },
    padsBegin: [0, 1, 0],
    padsEnd: [0, 1, 0],
  },
  'many planes': {
    planes: 257,
    image: [13, 13],
    kernel: [3, 3],
    out: [7, 7],
    strides: [2, 2],
    dilations: [1, 1],
    padsBegin: [1, 1],
    padsEnd: [1, 1],
  },
  'wide lines': {
    planes: 2,
    image: [9, 75],
    kernel: [2, 2],
    out: [5, 38],
    strides: [2, 2],
    dilations: [1, 1],
    padsBegin: [0, 0],
    padsEnd: [1, 1],
  },
  'windows that share all but one column': {
    planes: 3,
    image: [21, 37],
    kernel: [4, 5],
    out: [21, 37],
    strides: [1, 1],
    dilations: [1, 1],
    padsBegin: [2, 2],
    padsEnd: [1, 2],
  },
  'a stride of 3, windows apart': {
    planes: 2,
    image: [10, 52],
    kernel: [2, 2],
    out: [3, 17],
    strides: [4, 3],
    dilations: [1, 2],
    padsBegin: [1, 1],
    padsEnd: [0, 1],
  },
  'three columns side by side': {
    planes: 5,
    image: [14, 35],
    kernel: [3, 3],
    out: [14, 35],
    strides: [1, 1],
    dilations: [1, 1],
    padsBegin: [1, 1],
    padsEnd: [1, 1],
  },
  'three columns of which two are outside': {
    planes: 2,
    image: [3, 5],
    kernel: [1, 3],
    out: [3, 7],
    strides: [1, 1],
    dilations: [1, 1],
    padsBegin: [0, 2],
    padsEnd: [0, 2],
  },
  'windows wider than the image': {
    planes: 2,
    image: [3, 5],
    kernel: [1, 25],
    out: [3, 5],
    strides: [1, 1],
    dilations: [1, 1],
    padsBegin: [0, 12],
    padsEnd: [0, 12],
  },
  'planes that a window goes through': {
    planes: 2,
    image: [9, 1, 300],
    kernel: [5, 1, 1],
    out: [9, 1, 300],
    strides: [1, 1, 1],
    dilations: [1, 1, 1],
    padsBegin: [2, 0, 0],
    padsEnd: [2, 0, 0],
  },
  'no planes': {
    planes: 0,
    image: [4],
    kernel: [2],
    out: [3],
    strides: [1],
    dilations: [1],
    padsBegin: [0],
    padsEnd: [0],
  },
}

/** A window along one axis, as its formula is written. */
function expected(windows: Windows, x: Float32Array, fn: 'max' | 'average', countPad: boolean): number[] {
  const [[size], [kernel], [out], [stride], [dilation], [begin], [end]] = [
    windows.image,
    windows.kernel,
    windows.out,
    windows.strides,
    windows.dilations,
    windows.padsBegin,
    windows.padsEnd,
  ] as [number[], number[], number[], number[], number[], number[], number[]]
  return Array.from({ length: windows.planes * out! }, (_, at) => {
    const [plane, q] = [Math.floor(at / out!), at % out!]
    const places = Array.from({ length: kernel! }, (_, k) => q * stride! + k * dilation! - begin!)
    const inside = places.filter(p => p >= 0 && p < size!).map(p => x[plane * size! + p]!)
    const counted = countPad ? places.filter(p => p >= -begin! && p < size! + end!).length : inside.length
    return fn === 'max' ? Math.max(...inside) : inside.reduce((sum, value) => sum + value, 0) / counted
  })
}

for (const [name, windows] of Object.entries(cases)) {
  t.test(name, t => {
    const random = randomGenerator(3)
    const [image, out] = [windows.planes * numel(windows.image), windows.planes * numel(windows.out)]
    const [x, dy] = [uniform(random, image), uniform(random, out)]
    for (const fn of ['max', 'average'] as const) {
      for (const countPad of [false, true]) {
        const args = { fn, dtype: 'f32' as const, countPad, ...windows }
        const [y, dx] = [
          [0, 1].map(() => new Float32Array(out)),
          [0, 1].map(() => new Float32Array(image).fill(9)),
        ]
        jsKernels.runSync('pool', { ...args, x, y: y[0]! })
        addon.run('pool', { ...args, x, y: y[1] })
        jsKernels.runSync('poolBackward', { ...args, x, dy, dx: dx[0]! })
        // The gradient of a mean reads no x.
        addon.run('poolBackward', { ...args, ...(fn === 'max' && { x }), dy, dx: dx[1] })
        close(t, y[1]!, y[0]!, 1e-6, `${fn}${countPad ? ' with pads' : ''}`)
        close(t, dx[1]!, dx[0]!, 1e-6, `gradient of ${fn}${countPad ? ' with pads' : ''}`)
        if (windows.image.length === 1) close(t, y[0]!, expected(windows, x, fn, countPad), 1e-6, 'formula')
      }
    }
    t.end()
  })
}

t.test('ties go to the first, NaN wins', t => {
  const windows = {
    ...cases['one axis']!,
    planes: 1,
    image: [4],
    out: [3],
    kernel: [2],
    strides: [1],
    padsBegin: [0],
    padsEnd: [0],
  }
  const args = { fn: 'max' as const, dtype: 'f32' as const, countPad: false, ...windows }
  const x = Float32Array.of(2, 2, 1, Number.NaN)
  for (const run of [jsKernels.runSync, addon.run] as const) {
    const [y, dx] = [new Float32Array(3), new Float32Array(4)]
    run('pool', { ...args, x, y })
    run('poolBackward', { ...args, x, dy: Float32Array.of(1, 10, 100), dx })
    t.same([...y], [2, 2, Number.NaN])
    t.same([...dx], [1, 10, 0, 100])
  }
  t.end()
})

t.test('NaN wins in every place of a window', t => {
  const args = { fn: 'max' as const, dtype: 'f32' as const, countPad: false, ...cases['wide lines']! }
  const x = uniform(randomGenerator(4), 2 * 9 * 75)
  for (let i = 0; i < x.length; i += 13) x[i] = Number.NaN
  const [y, expected] = [new Float32Array(2 * 5 * 38), new Float32Array(2 * 5 * 38)]
  addon.run('pool', { ...args, x, y })
  jsKernels.runSync('pool', { ...args, x, y: expected })
  t.ok(y.some(Number.isNaN) && !y.every(Number.isNaN))
  t.strictSame(y, expected)
  t.end()
})

t.test('wrong windows are refused', t => {
  const [x, y] = [new Float32Array(27), new Float32Array(15)]
  const args = { fn: 'max', dtype: 'f32', countPad: false, ...cases['one axis'], x, y }
  const wrong = [
    { planes: 4 },
    { out: [6] },
    { kernel: [0] },
    { strides: [0] },
    { padsBegin: [-1] },
    { image: [] },
    { image: [1, 1, 1, 27] },
  ]
  for (const change of wrong) {
    for (const run of [jsKernels.runSync, addon.run] as const) {
      t.throws(
        () => run('pool', { ...args, ...change } as never),
        { code: /ERR_(SHAPE|ARGUMENT)/ },
        JSON.stringify(change),
      )
    }
  }
  t.end()
})
