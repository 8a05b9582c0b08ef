// Adapters on real models: PEFT's on digits, random ones on transformers and convolutional nets; merged, in ONNX Runtime.
import path from 'node:path'
import { AdaptedModel, Adapter, createAdapter, Tensor } from 'dgx-spark'
import t from 'tap'
import { findModules } from '#lib/dora/model/find-modules.js'
import { weightRows } from '#lib/dora/model/module-weight.js'
import { type Dimension, type Graph, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../../fixtures/backends.js'
import { close, maxAbs } from '../../fixtures/close.js'
import { modelFile, noModels } from '../../fixtures/models/onnx-models.js'
import { randomFeeds, runOnnxRuntime } from '../../fixtures/onnx-runtime.js'
import { goldenTensors } from '../../fixtures/values/golden-bytes.js'

const load = async (...names: string[]): Promise<Graph> => canonicalise(await readOnnx(modelFile(...names)))
/** The graph for any number of samples. */
const openBatch = (graph: Graph): Graph => ({
  ...graph,
  values: new Map(),
  inputs: graph.inputs.map(({ name, type }) => {
    const shape = (type?.kind === 'tensor' ? type.shape! : []) as readonly Dimension[]
    return { name, type: tensorType('f32', ['N', ...shape.slice(1)]) }
  }),
  outputs: graph.outputs.map(({ name }) => ({ name })),
})
const data = process.env.DGX_SPARK_TEST_DATA ?? ''
const backend = backends.at(-1)!

for (const [run, file] of [
  ['dora_conv_mnist', 'burn_mnist.onnx'],
  ['dora_linear_mnist', 'mnist_original_pytorch.onnx'],
] as const) {
  t.test(run, { skip: noModels }, async t => {
    const graph = openBatch(await load('mnist', file))
    const adapter = await Adapter.load(graph, path.join(data, 'adapters', run, 'final'))
    const tensor = goldenTensors(`adapters/${run}/final_ref.safetensors`)
    using model = new AdaptedModel(graph, { backend })
    model.add('negatives', adapter)
    model.setActive('negatives')
    const [input] = graph.inputs
    const x = tensor('x')
    const sizes = input?.type?.kind === 'tensor' ? input.type.shape! : []
    const shape = [x.shape[0]!, ...sizes.slice(1).map(size => (typeof size === 'number' ? size : 28))]
    const outputs = await model.run({ [input!.name]: Tensor.from(x.data as Float32Array, { shape }) })
    const [y] = Object.values(outputs)
    close(t, y!.data as Float32Array, tensor('out').data as Float32Array, 1e-5, 'outputs')
    const { graph: merged } = await model.merge()
    for (const module of findModules(merged)) {
      const expected = tensor(`merged/${module.name}.weight`).data as Float32Array
      close(t, weightRows(merged, module), expected, 1e-6, module.name)
    }
  })
}

for (const [name, ...file] of [
  ['tinyphysics', 'tinyphysics.onnx'],
  ['dmonitoring', 'openpilot', 'dmonitoring_model.3902922.onnx'],
] as const) {
  t.test(`${name}: adapted, merged, and merged in ONNX Runtime agree`, { skip: noModels }, async t => {
    const graph = await load(...file)
    const adapter = await createAdapter(graph, { targetModules: '.*', rank: 3, init: false, seed: 5 })
    t.equal(adapter.modules.length, name === 'tinyphysics' ? 20 : 58)
    for (const parameter of adapter.parameters.filter(name => name.endsWith('lora_B'))) {
      adapter.write(
        parameter,
        adapter.read(parameter).map(value => value * 0.1),
      )
    }
    const feeds = randomFeeds(graph, 3, { b: 3 })
    const inputs = Object.fromEntries(
      [...feeds].map(([name, { shape, data, dtype }]) => [
        name,
        Tensor.from(data, { shape, dtype: dtype as 'f32' }),
      ]),
    )
    using model = new AdaptedModel(graph, { backend })
    model.add('random', adapter)
    const base = Object.values(await model.run(inputs))[0]!.data as Float32Array
    const adapted = Object.values(await model.run(inputs, { adapters: 'random' }))[0]!.data as Float32Array
    const { graph: merged } = await adapter.merge()
    using plain = new AdaptedModel(merged, { backend })
    const expected = Object.values(await plain.run(inputs))[0]!.data as Float32Array
    close(t, adapted, expected, 1e-5, 'merged')
    const [ort] = Object.values(await runOnnxRuntime(serializeOnnx(merged), feeds))
    close(t, adapted, ort!.data as Float32Array, 1e-5, 'ONNX Runtime')
    t.ok(
      maxAbs(adapted.map((value, i) => value - base[i]!)) > 1e-3 * maxAbs(base),
      'the adapter does something',
    )
  })
}
