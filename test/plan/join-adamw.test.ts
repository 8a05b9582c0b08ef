// Steps of AdamW that are joined: which ones, what keeps them apart, and that no result changes.
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, tensorType } from '#lib/graph/graph.js'
import { adamwInputs, addAdamW } from '#lib/graph/rewrites/optimizer.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { joinAdamw } from '#lib/plan/join-adamw.js'
import { Plan } from '#lib/plan/plan.js'
import { Buffer, type Step } from '#lib/plan/program.js'
import { backends } from '../fixtures/backends.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

type AdamwStep = Extract<Step, { op: 'adamw' }>

const [rate, step] = [new Buffer('f64', 1, 'input'), new Buffer('f64', 1, 'input')]
const settings = { beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0.01 }
const state = (): Buffer => new Buffer('f32', 4, 'state')
const gradient = (): Buffer => new Buffer('f32', 4, 'arena')

function update(param = state(), changes: Partial<AdamwStep['args']> = {}, grad = gradient()): AdamwStep {
  const tensors = [
    { count: 4, grad: grad.read(), param: param.update(), m: state().update(), v: state().update() },
  ]
  return { op: 'adamw', args: { ...settings, lr: rate.read(), step: step.read(), tensors, ...changes } }
}

const negated = (x: Buffer, y: Buffer): Step => ({
  op: 'unary',
  args: { fn: 'neg', dtype: 'f32', count: 4, x: x.read(), y: y.write() },
})

/** The steps after joining: of AdamW, their numbers of tensors. */
const joined = (...steps: Step[]): (number | string)[] =>
  atOnce(joinAdamw(steps)).map(step => (step.op === 'adamw' ? step.args.tensors.length : step.op))

t.test('steps with the same settings', async t => {
  const steps = [update(), update(), update()]
  const [all, ...others] = atOnce(joinAdamw(steps))
  t.same(others, [])
  const { tensors, ...rest } = (all as AdamwStep).args
  t.strictSame(
    tensors,
    steps.flatMap(({ args }) => args.tensors),
    'in their order',
  )
  t.match(rest, settings)
  t.strictSame(joined(), [])
  t.strictSame(joined(...Array.from({ length: 130 }, () => update())), [64, 64, 2])
})

t.test('settings that differ', async t => {
  const otherRate = new Buffer('f64', 1, 'input').read()
  for (const changes of [{ weightDecay: 0 }, { beta1: 0.8 }, { lr: 0.1 }, { lr: otherRate }])
    t.strictSame(joined(update(), update(state(), changes), update(state(), changes)), [1, 2])
})

t.test('what depends on an update keeps its place', async t => {
  const [param, grad, other] = [state(), gradient(), gradient()]
  t.strictSame(joined(update(param), update(param)), [1, 1], 'a parameter that is updated twice')
  t.strictSame(joined(update(param), negated(param, other), update()), [1, 'unary', 1], 'it is read')
  t.strictSame(joined(update(param), negated(other, param), update()), [1, 'unary', 1], 'it is written')
  const reused = joined(update(state(), {}, grad), negated(other, grad), update())
  t.strictSame(reused, [1, 'unary', 1], 'memory of its gradient is written')
  t.strictSame(joined(update(param), negated(grad, other), update()), ['unary', 2], 'nothing of it is used')
  t.strictSame(joined(update(state(), {}, grad), negated(grad, other), update()), ['unary', 2])
})

const counts = Array.from({ length: 70 }, (_, i) => (i * 37) % 50)
const parameters = counts.map((count, i) => [`p${i}`, count] as const)

/** AdamW of parameters whose gradients are inputs. */
function adamwGraph() {
  const random = randomGenerator(5)
  const values = (count: number) => Constant.from('f32', [count], uniform(random, count))
  const graph = makeGraph({
    inputs: parameters.map(([name, count]) => ({ name: `${name}/grad`, type: tensorType('f32', [count]) })),
    initializers: new Map(parameters.map(([name, count]) => [name, values(count)])),
  })
  return addAdamW(graph, { gradients: new Map(parameters.map(([name]) => [name, `${name}/grad`])) })
}

for (const backend of backends) {
  t.test(`more parameters than a step takes on ${backend}`, async t => {
    const graph = adamwGraph()
    const steps = compile(graph, { backend }).steps.map(
      ({ args }) => (args as AdamwStep['args']).tensors.length,
    )
    t.strictSame(steps, [64, 6])
    const kernels = await openKernels({ backend })
    using plan = await Plan.create(graph, kernels)
    const random = randomGenerator(6)
    const gradients = parameters.map(([name, count]) => [`${name}/grad`, uniform(random, count)] as const)
    const numbers = { [adamwInputs.rate]: Float64Array.of(0.01), [adamwInputs.step]: Float64Array.of(1) }
    await plan.run({ ...Object.fromEntries(gradients), ...numbers })
    for (const [i, [name, count]] of parameters.entries()) {
      const param = Float32Array.from(graph.initializers.get(name)!.data as Float32Array)
      const [m, v] = [new Float32Array(count), new Float32Array(count)]
      const tensors = [{ count, grad: gradients[i]![1], param, m, v }]
      kernels.runSync('adamw', { ...settings, lr: 0.01, step: 1, tensors })
      for (const [key, expected] of Object.entries({ [name]: param, [`${name}/m`]: m, [`${name}/v`]: v }))
        t.strictSame(plan.state(key), expected, `${key} has the bits of a step of its own`)
    }
  })
}
