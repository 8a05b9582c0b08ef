// The first training step of PEFT's runs, from the base ONNX model: outputs, loss, gradients, and parameters after it.
import t from 'tap'
import { openKernels } from '#lib/kernels/open.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../fixtures/backends.js'
import { close, within } from '../../fixtures/close.js'
import { adamwFeeds, parametersOf, peftName, peftRun, trainingStep } from '../../fixtures/models/mnist.js'
import { goldenTensors, noGolden } from '../../fixtures/values/golden-bytes.js'

for (const backend of backends) {
  for (const name of ['dora_linear_mnist', 'dora_conv_mnist']) {
    t.test(`${name} on ${backend}`, { skip: noGolden }, async t => {
      const run = peftRun(name)
      const [before, after] = ['step0', 'after_step1'].map(file =>
        goldenTensors(`adapters/${name}/${file}.safetensors`),
      )
      const { graph, gradients } = await trainingStep(run)
      const input = graph.inputs[0]!.name
      const x = before!('x')
      const kernels = await openKernels({ backend })
      using plan = await Plan.create(graph, kernels, { shapes: { [input]: x.shape } })
      const labels = Int32Array.from(before!('y').data as unknown as BigInt64Array, Number)
      const results = await plan.run({ [input]: x.data as Float32Array, labels, ...adamwFeeds(1) })
      const golden = (tensor: string) => before!(tensor).data as Float32Array
      const result = (value: string) => results[value] as Float32Array
      close(t, result(graph.outputs[0]!.name), golden('out'), 2e-6, 'outputs')
      close(t, result('loss'), golden('loss'), 1e-6, 'loss')
      for (const parameter of parametersOf(run)) {
        const expected = golden(`grad/${peftName(parameter)}`)
        close(t, result(gradients.get(parameter)!), expected, 2e-5, `gradient of ${parameter}`)
        // A first step of AdamW is rate · g / (|g| + 1e-8): only gradients near 1e-8 pass their error on.
        const limit = (i: number): number => 1e-6 + 1e-3 * Math.min(1, 1e-8 / Math.abs(expected[i]!))
        const next = plan.state(parameter) as Float32Array
        within(
          t,
          next,
          after!(peftName(parameter)).data as Float32Array,
          limit,
          `${parameter} after the step`,
        )
      }
    })
  }
}
