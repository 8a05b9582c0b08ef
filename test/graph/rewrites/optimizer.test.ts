// Optimizers and clipping as graphs against PyTorch's trajectories, in double precision and in f32 on every backend.
import t, { type Test } from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, tensorType } from '#lib/graph/graph.js'
import { addClip } from '#lib/graph/rewrites/clip.js'
import { adamwInputs, addAdamW, addSgd, sgdInputs } from '#lib/graph/rewrites/optimizer.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { openKernels } from '#lib/kernels/open.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { goldenJson, goldenTensors, type Lookup, noGolden } from '../../fixtures/values/golden-bytes.js'
import { randomGenerator } from '../../fixtures/values/random.js'

interface AdamWSettings {
  lr?: number
  betas?: [number, number]
  eps?: number
  weight_decay?: number
  amsgrad?: boolean
}

interface AdamWCase {
  id: string
  file: string
  steps: number
  shapes: number[][]
  options: AdamWSettings
  groups: (AdamWSettings & { idx: number[] })[] | null
  lr_per_step: number[] | null
  skipped_steps: Record<string, number[]>
}

/** Runs one parameter of a case and compares its way. */
async function follow(t: Test, kase: AdamWCase, golden: Lookup, p: number, double: boolean) {
  const settings = { ...kase.options, ...kase.groups?.find(({ idx }) => idx.includes(p)) }
  const [init, grads] = [golden(`p${p}.init`), golden(`p${p}.grads`)]
  const graph = makeGraph({
    inputs: [{ name: 'g', type: tensorType('f32', init.shape) }],
    initializers: new Map([['p', Constant.from('f32', init.shape, init.data as Float32Array)]]),
  })
  const [beta1, beta2] = settings.betas ?? [0.9, 0.999]
  const { eps: epsilon = 1e-8, weight_decay: weightDecay = 0.01 } = settings
  const step = addAdamW(graph, { gradients: new Map([['p', 'g']]), beta1, beta2, epsilon, weightDecay })
  using plan = await Plan.create(step, jsKernels, { double })
  const expected = golden(`p${p}.trajectory_f64`).data as Float64Array
  const count = init.data.length
  let steps = 0
  for (let i = 0; i < kase.steps; i++) {
    if (!kase.skipped_steps[p]?.includes(i)) {
      const g = (grads.data as Float32Array).slice(i * count, (i + 1) * count)
      const rate = Float64Array.of(kase.lr_per_step?.[i] ?? settings.lr!)
      const feeds = { [adamwInputs.rate]: rate, [adamwInputs.step]: Float64Array.of(++steps) }
      await plan.run({ g: double ? Float64Array.from(g) : g, ...feeds })
    }
    const way = expected.subarray(i * count, (i + 1) * count)
    close(t, plan.state('p') as Float32Array, way, double ? 1e-12 : 1e-6, `${kase.id} p${p} step ${i}`)
  }
}

t.test('AdamW', { skip: noGolden }, async t => {
  const { cases } = goldenJson<{ cases: AdamWCase[] }>('optim/adamw.json')
  for (const kase of cases.filter(({ options }) => !options.amsgrad)) {
    const golden = goldenTensors(`optim/${kase.file}`)
    for (const p of kase.shapes.keys()) {
      await follow(t, kase, golden, p, true)
      await follow(t, kase, golden, p, false)
    }
  }
})

t.test('SGD with momentum', async t => {
  const random = randomGenerator(4)
  const start = Float32Array.from({ length: 5 }, () => random() - 0.5)
  const slopes = Array.from({ length: 4 }, () => Float64Array.from({ length: 5 }, () => random() - 0.5))
  for (const options of [
    {},
    { momentum: 0.9 },
    { momentum: 0.8, weightDecay: 0.1 },
    { momentum: 0.5, nesterov: true },
    { weightDecay: 0.2 },
  ]) {
    const { nesterov = false, ...numbers } = options as Record<string, never>
    // The constants of the graph are f32.
    const [momentum, weightDecay] = [numbers.momentum ?? 0, numbers.weightDecay ?? 0].map(Math.fround) as [
      number,
      number,
    ]
    const graph = makeGraph({
      inputs: [{ name: 'g', type: tensorType('f32', [5]) }],
      initializers: new Map([['p', Constant.from('f32', [5], start)]]),
    })
    using plan = await Plan.create(
      addSgd(graph, { gradients: new Map([['p', 'g']]), ...options }),
      jsKernels,
      {
        double: true,
      },
    )
    const p = Float64Array.from(start)
    const v = new Float64Array(5)
    for (const [i, slope] of slopes.entries()) {
      const rate = 0.1 / (i + 1)
      await plan.run({ g: slope, [sgdInputs.rate]: Float64Array.of(rate) })
      for (let j = 0; j < 5; j++) {
        const g = slope[j]! + weightDecay * p[j]!
        v[j] = momentum * v[j]! + g
        p[j]! -= rate * (nesterov ? g + momentum * v[j]! : v[j]!)
      }
      close(t, plan.state('p') as Float64Array, p, 1e-15, `${JSON.stringify(options)}, step ${i}`)
    }
  }
  t.throws(() => addSgd(makeGraph({}), { gradients: new Map(), nesterov: true }), { code: 'ERR_ARGUMENT' })
  t.throws(() => addSgd(makeGraph({}), { gradients: new Map([['p', 'g']]) }), {
    message: /'p' is no initializer/,
  })
})

interface ClipCase {
  id: string
  max_norm: number
  norm_type: number | string
  shapes: number[][]
  total_norm_f64: number | string
  by_value: boolean
}

t.test('clipping by norm', { skip: noGolden }, async t => {
  const { cases } = goldenJson<{ cases: ClipCase[] }>('optim/grad_clip.json')
  const golden = goldenTensors('optim/grad_clip.safetensors')
  for (const { id, max_norm, shapes, total_norm_f64: norm } of cases.filter(
    ({ by_value, norm_type }) => !by_value && norm_type === 2,
  )) {
    const names = shapes.map((_, i) => `g${i}`)
    const graph = makeGraph({
      inputs: names.map((name, i) => ({ name, type: tensorType('f32', shapes[i]!) })),
      initializers: new Map(
        names.map((name, i) => {
          const zeros = new Float32Array(shapes[i]!.reduce((count, size) => count * size, 1))
          return [`${name}/parameter`, Constant.from('f32', shapes[i]!, zeros)]
        }),
      ),
    })
    const gradients = new Map(names.map(name => [`${name}/parameter`, name]))
    const clipped = addClip(graph, gradients, max_norm)
    const outputs = [clipped.norm, ...clipped.gradients.values()].map(name => ({ name }))
    for (const backend of ['double', ...backends]) {
      const double = backend === 'double'
      const kernels = double ? jsKernels : await openKernels({ backend: backend as 'js' })
      using plan = await Plan.create({ ...clipped.graph, outputs }, kernels, { double })
      const slope = (name: string) => golden(`${id}.${name}`).data as Float32Array
      const results = await plan.run(
        Object.fromEntries(names.map(name => [name, double ? Float64Array.from(slope(name)) : slope(name)])),
      )
      const total = Number(results[clipped.norm]![0])
      if (typeof norm === 'string') {
        t.notOk(Number.isFinite(total), `${id} on ${backend}: ${total}`)
        continue
      }
      close(t, [total], [norm], double ? 1e-12 : 1e-6, `${id} on ${backend}: norm`)
      if (id === 'tiny' && !double) continue
      for (const [i, name] of names.entries()) {
        const expected = golden(`${id}.clipped${i}_f64`).data as Float64Array
        const result = results[clipped.gradients.get(`${name}/parameter`)!] as Float32Array
        // The constants of the graph, such as max_norm, are f32 in double precision, too.
        close(t, result, expected, double ? 1e-7 : 1e-6, `${id} on ${backend}: ${name}`)
      }
    }
  }
})
