// PEFT's 200 training steps on photo-negative digits by our trainer, from the same base model, adapter and batches.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import type { Graph } from '#lib/graph/graph.js'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { Plan } from '#lib/plan/plan.js'
import type { Batch } from '#lib/training/dataset.js'
import { Trainer } from '#lib/training/trainer.js'
import { backends } from '../../fixtures/backends.js'
import { adapted, digits, type PeftRun, parametersOf, peftRun } from '../../fixtures/models/mnist.js'
import { adapterOf } from '../../fixtures/models/trainable.js'
import { noGolden } from '../../fixtures/values/golden-bytes.js'

const pixels = 28 * 28

/** The inputs of one batch: the chosen rows, side by side. */
function batchOf({ images, labels }: ReturnType<typeof digits>, indices: readonly number[]) {
  const x = new Float32Array(indices.length * pixels)
  indices.forEach((index, row) => {
    x.set(images.subarray(index * pixels, (index + 1) * pixels), row * pixels)
  })
  return { x, labels: Int32Array.from(indices, index => labels[index]!) }
}

/** Share of the test digits that the model names right. */
async function accuracy(graph: Graph): Promise<number> {
  const { images, labels } = digits('t10k')
  const [input, output] = [graph.inputs[0]!.name, graph.outputs[0]!.name]
  const batch = 500
  using plan = await Plan.create(graph, openCpuKernels(), { shapes: { [input]: shapeOf(graph, batch) } })
  let right = 0
  for (let start = 0; start < labels.length; start += batch) {
    const x = images.subarray(start * pixels, (start + batch) * pixels)
    const scores = (await plan.run({ [input]: x }))[output] as Float32Array
    for (let row = 0; row < batch; row++) {
      const row10 = scores.subarray(row * 10, row * 10 + 10)
      if (row10.indexOf(Math.max(...row10)) === labels[start + row]) right++
    }
  }
  return right / labels.length
}

function shapeOf(graph: Graph, batch: number): number[] {
  const type = graph.inputs[0]!.type
  return type?.kind === 'tensor' && type.shape?.length === 4 ? [batch, 1, 28, 28] : [batch, pixels]
}

async function train(run: PeftRun): Promise<{ losses: number[]; trained: Graph }> {
  const model = await adapted(run)
  const adapter = adapterOf(model, parametersOf(run))
  const data = digits('train10k')
  const input = model.inputs[0]!.name
  function* batches(): Generator<Batch> {
    for (const indices of run.batch_indices) {
      const { x, labels } = batchOf(data, indices)
      yield {
        [input]: { shape: shapeOf(model, indices.length), data: x },
        target: { shape: [indices.length], data: labels },
      }
    }
  }
  const trainer = new Trainer({ graph: model }, adapter, { loss: 'cross-entropy', backend: 'cpu' })
  const losses: number[] = []
  for await (const { loss } of trainer.steps(batches)) losses.push(loss)
  const initializers = new Map(model.initializers)
  for (const name of adapter.parameters) {
    initializers.set(name, Constant.from('f32', initializers.get(name)!.shape, adapter.read(name)))
  }
  return { losses, trained: { ...model, initializers } }
}

const skip = noGolden || (backends.includes('cpu') ? false : 'no native addon')

for (const name of ['dora_linear_mnist', 'dora_conv_mnist']) {
  t.test(name, { skip }, async t => {
    const run = peftRun(name)
    t.ok(
      Math.abs((await accuracy(await adapted(run))) - run.acc_base_on_inverted) < 0.0011,
      'accuracy before',
    )
    const { losses, trained } = await train(run)
    const error = (step: number): number => Math.abs(losses[step]! / run.losses[step]! - 1)
    const worst = Math.max(...losses.slice(0, 20).map((_, step) => error(step)))
    t.ok(worst < 1e-4, `the first 20 losses differ by at most ${worst.toExponential(1)}`)
    t.equal(losses.length, run.steps)
    // Rounding grows from 1e-7 to 1e-2 of a single batch's loss in 100 steps; the mean of many batches stays.
    const end = (list: readonly number[]): number => list.slice(-20).reduce((sum, loss) => sum + loss, 0) / 20
    const [ours, theirs] = [end(losses), end(run.losses)]
    t.ok(Math.abs(ours / theirs - 1) < 0.02, `the last 20 losses have the mean ${ours}, PEFT's ${theirs}`)
    const reached = await accuracy(trained)
    t.ok(
      Math.abs(reached - run.acc_dora_on_inverted) < 0.005,
      `accuracy ${reached}, PEFT's ${run.acc_dora_on_inverted}`,
    )
  })
}
