// Losses against the numbers of the training code they come from: values and gradients, in double precision and f32.
import t, { type Test } from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Graph, makeGraph, tensorType } from '#lib/graph/graph.js'
import { addLoss, type Loss, type PathValues } from '#lib/graph/rewrites/losses.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { openKernels } from '#lib/kernels/open.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { goldenJson, goldenTensors, type Lookup, noGolden } from '../../fixtures/values/golden-bytes.js'

interface LossCase {
  id: string
  file: string
  loss: string
  eps?: number
  temperature?: number
  weights?: Record<string, number>
  parts?: string[]
  pred_keys?: string[]
  target_keys?: string[]
  features?: number[] | null
  special: string[]
}

/** A loss of values that are all inputs. */
interface Problem {
  readonly loss: Loss
  /** Inputs by name: the tensor of the file. */
  readonly inputs: Readonly<Record<string, string>>
  /** Golden gradient of an input by name. */
  readonly gradients: Readonly<Record<string, string>>
  readonly value: string
}

const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())

function hypotheses(kase: LossCase): Problem {
  const type = kase.loss === 'laplacian_nll' ? 'laplacian-nll' : 'gaussian-nll'
  return {
    loss: { type, mean: 'mean', std: 'std', epsilon: kase.eps! },
    inputs: { mean: 'pred_mean', std: 'pred_std', target: 'target' },
    gradients: { mean: 'grad_pred_mean', std: 'grad_pred_std', target: 'grad_target' },
    value: 'loss',
  }
}

function feature(kase: LossCase): Problem {
  return {
    loss: {
      type: 'feature-distillation',
      output: 'student',
      target: 'teacher',
      temperature: kase.temperature ?? 4,
    },
    inputs: { student: 'student', teacher: 'teacher' },
    gradients: { student: 'grad' },
    value: 'loss',
  }
}

/** Keys whose gradient is not 0. */
const used: Record<string, string[]> = {
  path: ['path_mean', 'path_std'],
  prob: ['path_prob'],
  lane: ['lane_lines'],
  edge: ['road_edges'],
}

function pathOf(kase: LossCase): Problem {
  const { weights = {}, parts = [] } = kase
  const named = (side: string, keys: readonly string[] = []): PathValues =>
    Object.fromEntries(keys.map(key => [camel(key), `${side}.${key}`]))
  const combined = kase.loss === 'combined'
  const options = combined
    ? { pathWeight: weights.path_weight ?? 1 }
    : Object.fromEntries(Object.entries(weights).map(([name, weight]) => [camel(name), weight]))
  const path = {
    type: 'path-distillation',
    outputs: named('pred', kase.pred_keys),
    targets: named('target', kase.target_keys),
    ...options,
  } as const
  const { feature_weight: weight = 0.1, feature_temperature: temperature = 4 } = weights
  const features = {
    type: 'feature-distillation',
    output: 'student',
    target: 'teacher',
    temperature,
    weight,
  } as const
  const keys = parts.flatMap(part => (part === 'feature' ? [] : used[part]!))
  const both = ['pred', 'target'].flatMap(side => {
    return (side === 'pred' ? kase.pred_keys! : kase.target_keys!).map(key => [
      `${side}.${key}`,
      `${side}.${key}`,
    ])
  })
  return {
    loss: combined ? [path, features] : path,
    inputs: {
      ...Object.fromEntries(both),
      ...(combined ? { student: 'student_features', teacher: 'teacher_features' } : {}),
    },
    gradients: {
      ...Object.fromEntries(keys.map(key => [`pred.${key}`, `grad.${key}`])),
      ...(combined ? { student: 'grad.student_features' } : {}),
    },
    value: 'loss.total',
  }
}

async function compare(t: Test, kase: LossCase, problem: Problem, golden: Lookup): Promise<void> {
  const inputs = Object.entries(problem.inputs)
  const graph: Graph = makeGraph({
    inputs: inputs.map(([name, tensor]) => ({ name, type: tensorType('f32', golden(tensor).shape) })),
  })
  const withLoss = addLoss(graph, problem.loss)
  const wrt = Object.keys(problem.gradients)
  const passes =
    wrt.length > 0
      ? differentiate(withLoss.graph, { loss: withLoss.loss, wrt })
      : { ...withLoss, gradients: new Map<string, string>() }
  const outputs = [withLoss.loss, ...passes.gradients.values()].map(name => ({ name }))
  for (const backend of ['double', ...backends]) {
    const double = backend === 'double'
    const kernels = double ? jsKernels : await openKernels({ backend: backend as 'js' })
    using plan = await Plan.create({ ...passes.graph, outputs }, kernels, { double })
    const feeds = inputs.map(([name, tensor]) => {
      const data = golden(tensor).data as Float32Array
      return [name, double ? Float64Array.from(data) : data]
    })
    const results = await plan.run(Object.fromEntries(feeds))
    // Weights and limits are f32 in double precision, too: 6e-8 of each. Elements near a limit make large losses in f32.
    const tolerance = double ? 1e-7 : 4e-6
    const label = `${kase.id} on ${backend}`
    const value = wrt.length === 0 ? 0 : Number((golden(`${problem.value}_f64`).data as Float64Array)[0])
    close(t, [Number(results[withLoss.loss]![0])], [value], tolerance, `${label}: loss`)
    for (const [name, tensor] of Object.entries(problem.gradients)) {
      const gradient = results[passes.gradients.get(name)!] as Float64Array
      const expected = golden(`${tensor}_f64`).data as Float64Array
      if (expected.every(element => Math.abs(element) < 1e-12)) {
        t.ok(
          gradient.every(element => Math.abs(element) < 1e-7),
          `${label}: gradient of ${name} is 0`,
        )
      } else {
        close(t, gradient, expected, tolerance, `${label}: gradient of ${name}`)
      }
    }
  }
}

t.test('golden numbers', { skip: noGolden }, async t => {
  for (const kase of goldenJson<{ cases: LossCase[] }>('losses/cases.json').cases) {
    const problem = /nll/.test(kase.loss)
      ? hypotheses(kase)
      : /feature/.test(kase.loss)
        ? feature(kase)
        : pathOf(kase)
    await compare(t, kase, problem, goldenTensors(`losses/${kase.file}`))
  }
})

t.test('losses of pairs by their definitions', async t => {
  const [output, target] = [Float64Array.of(0.5, -1, 2, 0.25, 0, 1), Float64Array.of(0, 1, 2, -1, 0.5, 0.75)]
  const graph = makeGraph({
    inputs: [{ name: 'y', type: tensorType('f32', [2, 3]) }],
    outputs: [{ name: 'y' }],
  })
  const softmax = (row: number[]): number[] => {
    const powers = row.map(Math.exp)
    return powers.map(power => power / powers.reduce((a, b) => a + b))
  }
  const rows = (values: Float64Array): number[][] => [[...values.slice(0, 3)], [...values.slice(3)]]
  const mean = (values: number[]): number => values.reduce((a, b) => a + b) / values.length
  const divergences = rows(target).map((row, i) => {
    const [p, q] = [softmax(row), softmax(rows(output)[i]!)]
    return p.reduce((sum, share, c) => sum + share * Math.log(share / q[c]!), 0)
  })
  const expected = {
    mse: mean([...output].map((value, i) => (value - target[i]!) ** 2)),
    l1: mean([...output].map((value, i) => Math.abs(value - target[i]!))),
    kl: mean(divergences),
  }
  for (const [type, value] of Object.entries(expected)) {
    const { graph: withLoss, loss } = addLoss(graph, type as 'mse')
    using plan = await Plan.create(withLoss, jsKernels, { double: true, shapes: { target: [2, 3] } })
    const results = await plan.run({ y: output, target })
    close(t, [Number(results[loss]![0])], [value], 1e-14, type)
  }
  const labels = Int32Array.of(2, 0)
  const likelihood = -mean(rows(output).map((row, i) => Math.log(softmax(row)[labels[i]!]!)))
  const { graph: withLoss, loss } = addLoss(graph, { type: 'cross-entropy', target: 'labels' })
  using plan = await Plan.create(withLoss, jsKernels, { double: true, shapes: { labels: [2] } })
  const results = await plan.run({ y: output, labels })
  close(t, [Number(results[loss]![0])], [likelihood], 1e-14, 'cross-entropy')
})

t.test('classes of sequences, weights, targets from the graph', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'y', type: tensorType('f32', ['n', 2, 3]) }],
    outputs: [{ name: 'y' }],
    initializers: new Map([['wanted', Constant.f32([1, 2, 3, 4, 5, 6], [1, 2, 3])]]),
  })
  const terms = [{ type: 'cross-entropy' }, { type: 'mse', target: 'wanted', weight: 3 }] as const
  const { graph: withLoss, loss } = addLoss(graph, terms)
  t.same(
    withLoss.inputs.map(({ name }) => name),
    ['y', 'target'],
  )
  using plan = await Plan.create(withLoss, jsKernels, {
    double: true,
    shapes: { y: [1, 2, 3], target: [1, 2] },
  })
  const results = await plan.run({ y: Float64Array.of(1, 2, 3, 4, 5, 5), target: Int32Array.of(0, 1) })
  const entropy = [Math.log(1 + Math.E + Math.E ** 2), Math.log(2 + Math.exp(-1))]
  close(t, [Number(results[loss]![0])], [(entropy[0]! + entropy[1]!) / 2 + 3 / 6], 1e-14, 'sum')
})
