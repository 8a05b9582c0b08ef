import t, { type Test } from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { AdamwTensor } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { close } from '../../fixtures/close.js'
import { goldenJson, noGolden } from '../../fixtures/values/golden-bytes.js'
import { goldenFloats } from '../../fixtures/values/golden-values.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

interface Options {
  lr: number
  betas: [number, number]
  eps: number
  weight_decay: number
  amsgrad: boolean
}

interface Case {
  id: string
  file: string
  steps: number
  shapes: number[][]
  options: Partial<Options>
  defaults: Options
  groups: (Partial<Options> & { idx: number[] })[] | null
  lr_per_step: number[] | null
  skipped_steps: Record<string, number[]>
}

/** The trajectory of parameter `index` of a case. */
function checkParameter(t: Test, golden: Case, index: number): void {
  const tensor = goldenFloats(`optim/${golden.file}`)
  const values = (name: string) => Float32Array.from(tensor(`p${index}.${name}`).values)
  const group = golden.groups?.find(({ idx }) => idx.includes(index))
  const options = { ...golden.defaults, ...golden.options, ...group }
  const param = values('init')
  const [grads, count] = [values('grads'), param.length]
  const [m, v] = [new Float32Array(count), new Float32Array(count)]
  const trajectory: number[] = []
  let step = 0
  for (let at = 0; at < golden.steps; at++) {
    if (!golden.skipped_steps[index]?.includes(at)) {
      step += 1
      addon.run('adamw', {
        step,
        lr: golden.lr_per_step?.[at] ?? options.lr,
        beta1: options.betas[0],
        beta2: options.betas[1],
        eps: options.eps,
        weightDecay: options.weight_decay,
        tensors: [{ count, grad: grads.subarray(at * count, (at + 1) * count), param, m, v }],
      })
    }
    trajectory.push(...param)
  }
  const expected = (name: string) => tensor(`p${index}.${name}`).values
  close(t, trajectory, expected('trajectory_f64'), 1e-6, `p${index}`)
  close(t, m, expected('exp_avg_f64'), 1e-6, `p${index} first moment`)
  close(t, v, expected('exp_avg_sq_f64'), 1e-6, `p${index} second moment`)
}

t.test('torch.optim.AdamW', { skip: noGolden }, t => {
  for (const golden of goldenJson<{ cases: Case[] }>('optim/adamw.json').cases) {
    if (golden.options.amsgrad) continue // the kernel has no such variant
    t.test(golden.id, t => {
      for (let index = 0; index < golden.shapes.length; index++) checkParameter(t, golden, index)
      t.end()
    })
  }
  t.end()
})

t.test('the first step moves each parameter by lr, whatever its gradient', t => {
  const grad = Float32Array.of(1e-3, -5, 40)
  const args = { step: 1, lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 0, weightDecay: 0.5 }
  const param = Float32Array.of(1, 2, -3)
  addon.run('adamw', {
    ...args,
    tensors: [{ count: 3, grad, param, m: new Float32Array(3), v: new Float32Array(3) }],
  })
  close(t, param, [0.995 - 0.01, 1.99 + 0.01, -2.985 - 0.01], 1e-6, 'decayed, then moved')
  t.end()
})

const settings = { step: 7, lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0.01 }

function tensorsOf(counts: readonly number[]): AdamwTensor[] {
  const random = randomGenerator(3)
  return counts.map(count => ({
    count,
    grad: uniform(random, count),
    param: uniform(random, count),
    m: uniform(random, count),
    v: uniform(random, count, 0, 1),
  }))
}

/** The bytes of what a step has written. */
const bytesOf = (tensors: readonly AdamwTensor[]): Buffer =>
  Buffer.concat(tensors.flatMap(({ param, m, v }) => [param, m, v].map(({ buffer }) => Buffer.from(buffer))))

/** Sizes around the elements that a thread takes at a time, none at all among them. */
const counts = [50_001, 0, 1, 16_384, 16_383, 0, 40_000, 7]

t.test('does not depend on the threads', t => {
  const step = (threads: number) => {
    addon.setThreads(threads)
    const tensors = tensorsOf(counts)
    addon.run('adamw', { ...settings, tensors })
    return bytesOf(tensors)
  }
  t.ok(step(3).equals(step(1)))
  t.end()
})

t.test('a step of many tensors has the bits of a step of each', t => {
  addon.setThreads(3)
  for (const kernels of [addon.run, jsKernels.runSync]) {
    const [together, alone] = [tensorsOf(counts), tensorsOf(counts)]
    kernels('adamw', { ...settings, tensors: together })
    for (const tensor of alone) kernels('adamw', { ...settings, tensors: [tensor] })
    t.ok(bytesOf(together).equals(bytesOf(alone)))
    t.notOk(bytesOf(together).equals(bytesOf(tensorsOf(counts))), 'updated')
  }
  t.end()
})

t.test('tensors that do not fit are refused', t => {
  for (const run of [addon.run, jsKernels.runSync]) {
    const step = (tensors: unknown) => () => run('adamw', { ...settings, tensors } as never)
    t.throws(step(tensorsOf(Array(65).fill(1))), { code: 'ERR_ARGUMENT', message: /tensors .*at most 64/ })
    t.throws(step(undefined), { code: 'ERR_ARGUMENT', message: /^tensors must be an array/ })
    const [first, second] = tensorsOf([3, 3])
    t.throws(step([first, { ...second, count: 4 }]), { code: 'ERR_SHAPE', message: /grad has 3 elements/ })
    t.throws(step([first, { ...second, count: -1 }]), { code: 'ERR_ARGUMENT', message: /count/ })
    t.throws(step([first, { ...second, v: undefined }]), { code: 'ERR_ARGUMENT', message: /v must be/ })
  }
  t.end()
})
