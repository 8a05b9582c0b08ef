// Short trainings that PEFT and PyTorch made: mean squared error, clipping, AdamW. Losses, norms and every parameter.
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { doraParameters, insertDora } from '#lib/graph/rewrites/insert-dora.js'
import { Trainer } from '#lib/training/trainer.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { adapterOf } from '../fixtures/models/trainable.js'
import { goldenJson, goldenTensors, noGolden } from '../fixtures/values/golden-bytes.js'

interface TrainCase {
  id: string
  file: string
  dims: number[]
  activation: 'relu' | 'tanh'
  r: number
  lora_alpha: number
  use_rslora: boolean
  target_modules: string[]
  lr: number
  weight_decay: number
  clip: number
  steps: number
}

t.test('PEFT', { skip: noGolden }, async t => {
  const { cases } = goldenJson<{ cases: TrainCase[] }>('optim/dora_train.json')
  for (const kase of cases) {
    const golden = goldenTensors(`optim/${kase.file}`)
    const constant = (name: string): Constant => {
      const { shape, data } = golden(name)
      return Constant.from('f32', shape, data as Float32Array)
    }
    const layers = kase.dims.slice(1).map((_, i) => String(2 * i))
    const nodes = layers.flatMap((layer, i) => {
      const last = i === layers.length - 1
      const inputs = [i === 0 ? 'x' : `a${i - 1}`, `${layer}.weight`, `${layer}.bias`]
      const activation = kase.activation === 'relu' ? 'Relu' : 'Tanh'
      return [
        makeNode('Gemm', inputs, [last ? 'y' : `h${i}`], { attributes: { transB: int(1) } }),
        ...(last ? [] : [makeNode(activation, [`h${i}`], [`a${i}`])]),
      ]
    })
    const weights = layers.flatMap(layer => [`${layer}.weight`, `${layer}.bias`])
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', ['n', kase.dims[0]!]) }],
      outputs: [{ name: 'y' }],
      nodes,
      initializers: new Map(weights.map(name => [name, constant(`base.${name}`)])),
    })
    const scale = kase.lora_alpha / (kase.use_rslora ? Math.sqrt(kase.r) : kase.r)
    const targets = kase.target_modules.map(module => {
      const [a, b, magnitude] = doraParameters(module).map(name => constant(`init.${name}`))
      return { weight: `${module}.weight`, module, a: a!, b: b!, magnitude: magnitude!, scale }
    })
    const parameters = targets.flatMap(({ module }) => [...doraParameters(module)])
    const [x, target] = ['x', 'target'].map(name => golden(name))
    for (const backend of backends) {
      const adapter = adapterOf(insertDora(graph, targets), parameters)
      const trainer = new Trainer({ graph }, adapter, {
        loss: 'mse',
        optimizer: { type: 'adamw', learningRate: kase.lr, weightDecay: kase.weight_decay },
        maxNorm: kase.clip,
        epochs: kase.steps,
        backend,
      })
      const batch = {
        x: { shape: x!.shape, data: x!.data },
        target: { shape: target!.shape, data: target!.data },
      }
      const [losses, norms]: [number[], number[]] = [[], []]
      for await (const { loss, gradientNorm } of trainer.steps([batch])) {
        losses.push(loss)
        norms.push(gradientNorm)
      }
      close(t, losses, golden('losses_f64').data as Float64Array, 2e-6, `${kase.id} on ${backend}: losses`)
      close(t, norms, golden('grad_norms_f64').data as Float64Array, 2e-6, `${kase.id} on ${backend}: norms`)
      for (const name of parameters) {
        const expected = golden(`step${kase.steps}.${name}_f64`).data as Float64Array
        close(t, adapter.read(name), expected, 2e-6, `${kase.id} on ${backend}: ${name}`)
      }
    }
  }
})
