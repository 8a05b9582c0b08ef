// The TypeScript kernels against the CPU's, and against small sums done by hand.
import t from 'tap'
import { verifyKernels } from '#lib/diagnostics/verify.js'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { loadAddon } from '#lib/native.js'
import { kernelFormats } from '#lib/weights/formats.js'
import { close } from '../fixtures/close.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const noAddon = loadAddon().addon ? false : 'the addon does not load'

t.test('every operation gives what the CPU gives', { skip: noAddon }, async t => {
  const results = await verifyKernels(jsKernels, openCpuKernels())
  t.ok(results.length > 15)
  for (const { op, variant, status, reason, error } of results) {
    t.equal(status, 'passed', `${op} ${variant}: ${reason ?? error}`)
  }
})

t.test('every weight format, one operation each', { skip: noAddon }, async t => {
  const random = randomGenerator(11)
  const [rows, cols, tokens, rank, scale] = [7, 32, 3, 2, 0.75]
  for (const dtype of kernelFormats) {
    const weight = randomWeight(random, dtype, rows, cols)
    const a = uniform(random, rank * cols)
    const b = uniform(random, rows * rank)
    const gain = uniform(random, rows, 0.5, 2)
    const x = uniform(random, tokens * cols)
    const [merged, wanted] = [new Float32Array(rows * cols), new Float32Array(rows * cols)]
    const [y, expected] = [new Float32Array(tokens * rows), new Float32Array(tokens * rows)]
    const cpu = openCpuKernels()
    jsKernels.runSync('doraMerge', { weight, rank, scale, a, b, gain, merged })
    cpu.runSync('doraMerge', { weight, rank, scale, a, b, gain, merged: wanted })
    close(t, merged, wanted, 2e-7, `${dtype} merged`)
    await jsKernels.run('linear', { weight, tokens, x, y })
    await cpu.run('linear', { weight, tokens, x, y: expected })
    close(t, y, expected, 1e-6, `${dtype} linear`)
  }
})

t.test('unmerging in place', async t => {
  const [rows, cols, rank, scale] = [2, 3, 1, 2]
  const merged = new Float32Array([3, 6, 9, 8, 8, 8])
  const low = { rank, scale, a: new Float32Array([1, 1, 1]), b: new Float32Array([0, 1]) }
  jsKernels.runSync('doraUnmerge', {
    ...low,
    rows,
    cols,
    merged,
    gain: new Float32Array([3, 2]),
    restored: merged,
  })
  t.strictSame(merged, new Float32Array([1, 2, 3, 2, 2, 2]))
})

t.test('softmax cross entropy of large logits is finite', async t => {
  const loss = new Float32Array(1)
  const dlogits = new Float32Array(4)
  const logits = new Float32Array([1e30, -1e30, 3, 3])
  const labels = new Int32Array([0, 1])
  jsKernels.runSync('softmaxCrossEntropy', { tokens: 2, classes: 2, logits, labels, loss, dlogits })
  t.equal(loss[0], Math.fround(Math.log(2) / 2))
  t.strictSame(dlogits, new Float32Array([0, 0, 0.25, -0.25]))
})

t.test('one step of AdamW', async t => {
  const param = new Float32Array([1, -2])
  const [m, v] = [new Float32Array(2), new Float32Array(2)]
  const grad = new Float32Array([0.5, -0.25])
  const settings = { step: 1, lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0.01 }
  jsKernels.runSync('adamw', { ...settings, tensors: [{ count: 2, grad, param, m, v }] })
  // The first step moves by lr · sign(grad), and the decay by lr · 0.01 of the parameter.
  close(t, param, [1 - 0.1 - 0.001, -2 + 0.1 + 0.002], 1e-7, 'parameters')
})

t.test('operands that do not fit are refused', async t => {
  const weight = randomWeight(randomGenerator(1), 'f32', 3, 4)
  const x = new Float32Array(8)
  const y = new Float32Array(6)
  const linear = (changes: object) => () =>
    jsKernels.runSync('linear', { weight, tokens: 2, x, y, ...changes } as never)
  t.doesNotThrow(linear({}))
  t.throws(linear({ tokens: 3 }), { code: 'ERR_SHAPE', message: 'x has 8 elements but 12 are needed' })
  t.throws(linear({ tokens: -1 }), { code: 'ERR_ARGUMENT', message: /tokens/ })
  t.throws(linear({ y: undefined }), { code: 'ERR_ARGUMENT', message: /y must be a typed array/ })
  t.throws(linear({ bias: new Float32Array(2) }), { code: 'ERR_SHAPE', message: /bias/ })
  t.throws(linear({ weight: { ...weight, rows: 4 } }), { code: 'ERR_SHAPE', message: /weight.data/ })
  t.throws(linear({ weight: { ...weight, format: 'f8_e5m2' } }), {
    code: 'ERR_ARGUMENT',
    message: /weight.format/,
  })
  const codes = { ...weight, format: 'f8_e4m3', data: new Uint8Array(12) }
  t.throws(linear({ weight: codes }), { code: 'ERR_ARGUMENT', message: /rowScale/ })
  t.throws(linear({ weight: { ...codes, data: weight.data } }), { code: 'ERR_DTYPE', message: /weight.data/ })
  t.throws(linear({ weight: { ...weight, format: 'nvfp4' } }), {
    code: 'ERR_SHAPE',
    message: /multiple of 16/,
  })
  const labels = new Int32Array([2])
  const loss = new Float32Array(1)
  const entropy = { tokens: 1, classes: 2, logits: x, labels, loss }
  t.throws(() => jsKernels.runSync('softmaxCrossEntropy', entropy), {
    message: 'labels[0] is 2; there are 2 classes',
  })
  t.throws(() => jsKernels.runSync('sort' as 'linear', {} as never), { code: 'ERR_UNSUPPORTED' })
  await t.rejects(jsKernels.run('linear', { weight, tokens: 3, x, y }), { code: 'ERR_SHAPE' })
})
