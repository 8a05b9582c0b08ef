// What a linear layer does to its sums, and products of numbers rounded to bf16.
import t from 'tap'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { holdWeight } from '#lib/kernels/hold-weight.js'
import { activations, erf } from '#lib/kernels/js/activations.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Activation, KernelArgs, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { kernelFormats } from '#lib/weights/formats.js'
import { close, identical, within } from '../fixtures/close.js'
import { matrix, sum, weightValues } from '../fixtures/models/dora-layer.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { bf16Value } from '../fixtures/values/golden-values.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

t.test('erf', async t => {
  // Abramowitz and Stegun, table 7.1
  const known = { 0: 0, 0.5: 0.5204998778, 1: 0.8427007929, 2: 0.995322265, 3.5: 0.9999992569, 7: 1 }
  for (const [x, value] of Object.entries(known)) {
    t.ok(Math.abs(erf(Number(x)) - value) < 1e-10, `erf(${x}) = ${erf(Number(x))}`)
    t.equal(erf(-Number(x)), -erf(Number(x)))
  }
  t.ok(Math.abs(erf(3 - 1e-12) - erf(3)) < 1e-14, 'both formulas meet')
  t.ok(Number.isNaN(erf(Number.NaN)))
})

t.test('activations', async t => {
  const values = Float32Array.of(-80, -9.5, -3, -1, -0.125, -1e-8, 0, 1e-8, 0.3, 1, 2.75, 9.5, 80)
  const weight: Weight = { format: 'f32', rows: 1, cols: 1, data: Float32Array.of(1) }
  for (const activation of Object.keys(activations) as Activation[]) {
    const y = new Float32Array(values.length)
    const args = { weight, tokens: values.length, x: values, activation, y }
    addon.run('linear', args)
    const expected = Float64Array.from(values, activations[activation])
    // The tail of gelu is a difference from 1, so its error is relative to x.
    within(t, y, expected, at => 1e-6 * Math.abs(expected[at]) + 1e-7 * Math.abs(values[at]), activation)
    jsKernels.runSync('linear', args)
    within(t, y, expected, at => 1e-7 * Math.abs(expected[at]), `${activation} in TypeScript`)
  }
  const nan = new Float32Array(1)
  addon.run('linear', { weight, tokens: 1, x: Float32Array.of(Number.NaN), activation: 'relu', y: nan })
  t.ok(Number.isNaN(nan[0]), 'relu of NaN')
  const wrong = { weight, tokens: 1, x: values, y: nan, activation: 'swish' as 'silu' }
  for (const run of [addon.run, jsKernels.runSync]) {
    t.throws(() => run('linear', wrong), { code: 'ERR_ARGUMENT' })
    t.throws(() => run('linear', { ...wrong, activation: 'none', compute: 'f8' as 'f32' }), {
      code: 'ERR_ARGUMENT',
    })
  }
})

t.test('row scale, gate, bias, activation and residual, in this order', async t => {
  for (const [T, O, I] of [
    [1, 1, 1],
    [3, 37, 16],
    [17, 65, 304],
  ] as const) {
    const random = randomGenerator(T)
    const weight = randomWeight(random, 'bf16', O, I)
    const x = uniform(random, T * I, -0.1, 0.1)
    const [rowScale, bias] = [uniform(random, O, 0.5, 2), uniform(random, O)]
    const [residual, gate] = [uniform(random, T * O), uniform(random, T * O)]
    const all = { weight, tokens: T, x, rowScale, bias, residual, gate, activation: 'silu' as const }
    const leavings = [[], ['rowScale'], ['bias'], ['residual'], ['gate'], ['rowScale', 'bias', 'activation']]
    for (const left of leavings) {
      const args: KernelArgs['linear'] = { ...all, y: new Float32Array(T * O) }
      for (const name of left) delete args[name as 'bias']
      const expected = { ...args, y: new Float32Array(T * O) }
      addon.run('linear', args)
      jsKernels.runSync('linear', expected)
      close(t, args.y!, expected.y!, 1e-6, `${[T, O, I]} without ${left.join(', ') || 'nothing'}`)
    }
    const y = new Float32Array(T * O)
    addon.run('linear', { ...all, y })
    for (const name of ['residual', 'gate'] as const) {
      const inPlace = all[name].slice()
      addon.run('linear', { ...all, [name]: inPlace, y: inPlace })
      identical(t, inPlace, y, `y in place of the ${name}`)
    }
  }
})

// bf16: a machine without such instructions computes in f32.
const bf16 = /amx|bf16/.test(addon.cpuIsa())
const rounded = (values: ArrayLike<number>) =>
  Float64Array.from(values, value => {
    const bits = new Uint32Array(Float32Array.of(value).buffer)[0]
    return bf16Value((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16)
  })

for (const dtype of kernelFormats) {
  t.test(`${dtype} times bf16`, async t => {
    for (const [T, O, I] of [
      [1, 1, 1],
      [5, 33, 48],
      [19, 70, 531],
      [70, 97, 272],
    ] as const) {
      if (dtype === 'nvfp4' && I % 16) continue
      const random = randomGenerator(T + O)
      const weight = randomWeight(random, dtype, O, I)
      const packed = await holdWeight(openCpuKernels(), weight)
      const x = uniform(random, T * I)
      const run = (weight: Weight, x: Float32Array) => {
        const y = new Float32Array((x.length / I) * O).fill(Number.NaN)
        addon.run('linear', { weight, tokens: x.length / I, x, compute: 'bf16', y })
        return y
      }
      const y = run(weight, x)
      const [a, b] = bf16 ? [rounded(x), rounded(weightValues(weight))] : [x, weightValues(weight)]
      const expected = matrix(T, O, (t, o) => sum(I, i => a[t * I + i] * b[o * I + i]))
      close(t, y, expected, 2e-6, `${[T, O, I]}`)
      identical(t, run(packed, x), y, 'packed')
      for (const row of [0, T - 1]) {
        const one = run(packed, x.subarray(row * I, (row + 1) * I))
        identical(t, one, y.subarray(row * O, (row + 1) * O), `row ${row} alone`)
      }
      for (const threads of [1, 3]) {
        addon.setThreads(threads)
        identical(t, run(weight, x), y, `${threads} threads`)
      }
    }
  })
}
