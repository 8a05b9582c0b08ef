// Attention: masks, causal, grouped heads, layouts, sizes across the blocks, gradients.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { HeadStrides, KernelArgs } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { attentionCases } from '../fixtures/attention.js'
import { close, identical } from '../fixtures/close.js'
import { agree, finiteDifferences } from '../fixtures/kernel-pair.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))
const f32 = (count: number) => new Float32Array(count)
const random = randomGenerator(61)

t.test('every option agrees with TypeScript', t => {
  for (const { name, dy, ...inputs } of attentionCases()) {
    const { batch, heads, queries } = inputs
    const y = f32(dy.length)
    agree(t, 'attention', { ...inputs, y }, ['y'], 3e-6, `${name} alone`)
    const logSum = f32(batch * heads * queries)
    jsKernels.runSync('attention', { ...inputs, y, logSum })
    const finite = logSum.map(value => (value === Number.NEGATIVE_INFINITY ? -77 : value))
    const saved = { ...inputs, y: y.slice(), logSum: logSum.slice() }
    addon.run('attention', saved)
    close(t, saved.y, y, 3e-6, `${name}: y`)
    const savedSum = saved.logSum.map(value => (value === Number.NEGATIVE_INFINITY ? -77 : value))
    close(t, savedSum, finite, 1e-6, `${name}: logSum`)
    const gradients = { dq: f32(inputs.q.length), dk: f32(inputs.k.length), dv: f32(inputs.v.length) }
    agree(t, 'attentionBackward', { ...saved, dy, ...gradients }, ['dq', 'dk', 'dv'], 1e-5, name)
  }
  t.end()
})

t.test('a processor multiplies in f32 whatever a GPU would do', t => {
  const { dy, ...inputs } = attentionCases()[0]!
  const y = f32(dy.length)
  addon.run('attention', { ...inputs, y })
  for (const compute of ['f32', 'bf16', 'f16'] as const) {
    const again = f32(dy.length)
    addon.run('attention', { ...inputs, compute, y: again })
    identical(t, again, y, compute)
  }
  for (const run of [addon.run, jsKernels.runSync]) {
    t.throws(() => run('attention', { ...inputs, y, compute: 'nvfp4' as 'f16' }), { code: 'ERR_UNSUPPORTED' })
  }
  t.end()
})

t.test('gradients by finite differences', t => {
  const strides: HeadStrides = [12, 6, 2]
  const sizes = { batch: 2, heads: 2, kvHeads: 2, queries: 3, keys: 3, depth: 2, valueDepth: 2 }
  const options = { scale: 0.7, softcap: 1.3, causal: true, causalOffset: 1 }
  const layout = { qStrides: strides, kStrides: strides, vStrides: strides, yStrides: strides }
  const [q, k, v, dy] = [1, 2, 3, 4].map(seed => f32(24).map((_, i) => Math.sin(seed * 7 + i * 1.7)))
  const forward = (q: Float32Array, k: Float32Array, v: Float32Array) => {
    const args = { ...sizes, ...options, ...layout, q, k, v, y: f32(24), logSum: f32(12) }
    jsKernels.runSync('attention', args)
    return args
  }
  const gradients = { dq: f32(24), dk: f32(24), dv: f32(24) }
  jsKernels.runSync('attentionBackward', { ...forward(q, k, v), dy, ...gradients })
  close(
    t,
    gradients.dq,
    finiteDifferences(q => forward(q, k, v).y, q, dy),
    5e-3,
    'dq',
  )
  close(
    t,
    gradients.dk,
    finiteDifferences(k => forward(q, k, v).y, k, dy),
    5e-3,
    'dk',
  )
  close(
    t,
    gradients.dv,
    finiteDifferences(v => forward(q, k, v).y, v, dy),
    5e-3,
    'dv',
  )
  t.end()
})

t.test('rows between the heads of an output stay as they are', t => {
  const strides: HeadStrides = [0, 0, 5]
  const args = {
    batch: 1,
    heads: 1,
    kvHeads: 1,
    queries: 2,
    keys: 1,
    depth: 1,
    valueDepth: 2,
    scale: 1,
    q: f32(6),
    k: f32(1),
    v: Float32Array.of(3, 4),
    qStrides: strides,
    kStrides: strides,
    vStrides: strides,
    yStrides: strides,
    y: f32(7).fill(9),
  }
  addon.run('attention', args)
  t.same([...args.y], [3, 4, 9, 9, 9, 3, 4])
  t.end()
})

t.test('a result depends on neither the other queries nor the threads', t => {
  const found = attentionCases().find(({ queries }) => queries === 130)
  if (!found) throw new Error('no such case')
  const { name: _, dy, ...inputs } = found
  const run = (threads: number, changes: Partial<KernelArgs['attention']> = {}) => {
    addon.setThreads(threads)
    const args = { ...inputs, ...changes, y: f32(dy.length), logSum: f32(260) }
    addon.run('attention', args)
    return args
  }
  const one = run(1)
  const backward = (threads: number) => {
    addon.setThreads(threads)
    const gradients = { dq: f32(inputs.q.length), dk: f32(inputs.k.length), dv: f32(inputs.v.length) }
    addon.run('attentionBackward', { ...one, dy, ...gradients })
    return Object.values(gradients)
  }
  const gradients = backward(1)
  for (const threads of [2, 5]) {
    identical(t, run(threads).y, one.y, `y, ${threads} threads`)
    backward(threads).forEach((gradient, i) => {
      identical(t, gradient, gradients[i], `gradient ${i}, ${threads} threads`)
    })
  }
  const row = 77 * inputs.qStrides[2]
  const { causalOffset = 0, mask = f32(0) } = inputs
  const alone = { queries: 1, heads: 1, kvHeads: 1, causalOffset: causalOffset + 77 }
  const maskRow = mask.subarray(77 * inputs.keys)
  const single = run(1, { ...alone, q: inputs.q.subarray(row), mask: maskRow })
  const at = 77 * inputs.yStrides[2]
  identical(t, single.y.subarray(0, 40), one.y.subarray(at, at + 40), 'a query alone')
  t.end()
})

t.test('what does not fit is refused', t => {
  const { name: _, dy, ...inputs } = attentionCases()[1]
  const args = { ...inputs, y: f32(dy.length) }
  for (const run of [addon.run, jsKernels.runSync]) {
    const refused = (changes: Partial<KernelArgs['attention']>, code: string) => {
      t.throws(() => run('attention', { ...args, ...changes }), { code }, JSON.stringify(changes))
    }
    refused({ heads: 4 }, 'ERR_SHAPE')
    refused({ queries: 6 }, 'ERR_SHAPE')
    refused({ qStrides: [1, 2] as unknown as HeadStrides }, 'ERR_ARGUMENT')
    refused({ kStrides: [0, 0, -1] }, 'ERR_ARGUMENT')
    refused({ vStrides: [2 ** 53 - 1, 2 ** 53 - 1, 1] }, 'ERR_SHAPE')
  }
  t.end()
})

t.test('rotary embeddings', t => {
  const [batch, tokens, heads] = [2, 5, 3]
  for (const depth of [8, 45])
    for (const rotary of [0, 6, 8])
      for (const interleaved of [false, true])
        for (const headsFirst of [false, true]) {
          const [count, angles] = [batch * tokens * heads * depth, (batch * tokens * rotary) / 2]
          const inputs = {
            x: uniform(random, count),
            cos: uniform(random, angles),
            sin: uniform(random, angles),
          }
          const args = {
            batch,
            tokens,
            heads,
            depth,
            rotary,
            interleaved,
            headsFirst,
            ...inputs,
            y: f32(count),
          }
          const { x, y } = agree(
            t,
            'rotary',
            args,
            ['y'],
            0,
            `${depth} ${rotary} ${interleaved} ${headsFirst}`,
          )
          if (rotary === 0) identical(t, y, x, 'nothing is rotated')
        }
  const quarter = { batch: 1, tokens: 1, heads: 2, depth: 4, cos: f32(2), sin: f32(2).fill(1) }
  const x = Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8)
  const turned = (changes: object): number[] => {
    const y = f32(8)
    addon.run('rotary', { ...quarter, rotary: 4, x, y, ...changes })
    return [...y]
  }
  t.strictSame(turned({}), [-3, -4, 1, 2, -7, -8, 5, 6])
  t.strictSame(turned({ interleaved: true }), [-2, 1, -4, 3, -6, 5, -8, 7])
  t.strictSame(turned({ rotary: 2 }), [-2, 1, 3, 4, -6, 5, 7, 8])
  for (const rotary of [3, 6]) {
    const args = { ...quarter, rotary, x, y: f32(8) }
    const error = { message: /rotary must be even and at most depth/ }
    t.throws(() => addon.run('rotary', args), error)
    t.throws(() => jsKernels.runSync('rotary', args), error)
  }
  t.end()
})
