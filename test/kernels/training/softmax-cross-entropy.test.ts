import t from 'tap'
import { requireAddon } from '#lib/native.js'
import { close, within } from '../../fixtures/close.js'
import { matrix, sum } from '../../fixtures/models/dora-layer.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

function run(tokens: number, classes: number, logits: Float32Array, labels: Int32Array) {
  const loss = new Float32Array(1).fill(Number.NaN)
  const dlogits = new Float32Array(logits.length).fill(Number.NaN)
  addon.run('softmaxCrossEntropy', { tokens, classes, logits, labels, loss, dlogits })
  return { loss, dlogits }
}

t.test('loss and gradient against the formula in double precision', t => {
  for (const [T, C, scale] of [
    [1, 1, 1],
    [3, 10, 5],
    [129, 37, 1],
    [5, 1003, 90], // exp overflows where the largest logit is not taken away first
  ] as const) {
    const random = randomGenerator(C)
    const logits = uniform(random, T * C, -scale, scale)
    const labels = Int32Array.from({ length: T }, () => Math.floor(random() * C))
    const row = (t: number) => logits.subarray(t * C, (t + 1) * C)
    const logSum = matrix(1, T, (_, t) => {
      const largest = Math.max(...row(t))
      return largest + Math.log(sum(C, c => Math.exp(row(t)[c] - largest)))
    })
    const expected = sum(T, t => logSum[t] - row(t)[labels[t]]) / T
    const gradient = matrix(T, C, (t, c) => (Math.exp(row(t)[c] - logSum[t]) - +(c === labels[t])) / T)
    const { loss, dlogits } = run(T, C, logits, labels)
    within(t, loss, [expected], () => 1e-6 * Math.max(1, expected), `loss of ${[T, C]}`)
    within(t, dlogits, gradient, () => 1e-6 / T, `gradient of ${[T, C]}`)
    const alone = new Float32Array(1)
    addon.run('softmaxCrossEntropy', { tokens: T, classes: C, logits, labels, loss: alone })
    t.same(alone, loss, 'the loss alone')
  }
  t.end()
})

t.test('equal logits', t => {
  const { loss, dlogits } = run(2, 4, new Float32Array(8).fill(1e30), Int32Array.of(3, 0))
  close(t, loss, [Math.log(4)], 1e-6, 'loss is log(classes)')
  t.same([...dlogits], [0.125, 0.125, 0.125, -0.375, -0.375, 0.125, 0.125, 0.125])
  t.end()
})

t.test('does not depend on the threads', t => {
  const random = randomGenerator(4)
  const logits = uniform(random, 997 * 33, -4, 4)
  const labels = Int32Array.from({ length: 997 }, () => Math.floor(random() * 33))
  addon.setThreads(1)
  const one = run(997, 33, logits, labels)
  addon.setThreads(3)
  t.same(run(997, 33, logits, labels), one)
  t.end()
})

t.test('a label outside of the classes is refused', t => {
  for (const label of [-1, 3]) {
    t.throws(() => run(1, 3, new Float32Array(3), Int32Array.of(label)), { code: 'ERR_ARGUMENT' })
  }
  t.end()
})
