// Adapter folders that we write, in PEFT itself: where a Python with PEFT is found (DGX_SPARK_PYTHON, or python3).
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import {
  AdaptedModel,
  Adapter,
  type AdapterOptions,
  createAdapter,
  readSafetensors,
  Tensor,
  tensorFromRecord,
  writeSafetensors,
} from 'dgx-spark'
import t from 'tap'
import { maxAbs, within } from '../../fixtures/close.js'
import { adaptableGraph, inputsOf } from '../../fixtures/models/adaptable-graph.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const python = process.env.DGX_SPARK_PYTHON ?? 'python3'
const found = spawnSync(python, ['-c', 'import peft, safetensors'], { stdio: 'ignore' }).status === 0
const script = path.resolve('test/fixtures/peft/load_adapter.py')
const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-peft-loads-'))
t.teardown(() => rmSync(scratch, { recursive: true }))

/** The modules of the graph whose adapters mean the same in PEFT: all but the grouped convolution and the tied weight. */
const layers = {
  emb: { kind: 'embedding', input: 'ids', output: 'embedded' },
  c2: { kind: 'conv', stride: 2, input: 'image', output: 'seen' },
  fc1: { kind: 'linear', input: 'x', output: 'first' },
  'h.0.fc2': { kind: 'linear', input: 'tokens', output: 'second' },
  'h.1.fc3': { kind: 'linear', input: 'x', output: 'third' },
} as const
const graph = adaptableGraph()
const feeds = inputsOf(3)

/** The base's tensors as PyTorch lays them out: matrices of linear layers are [out, in]. */
function baseTensors(): Map<string, Tensor> {
  const names = new Map([
    ['onnx::MatMul_7', 'h.0.fc2.weight'],
    ['onnx::Gemm_9', 'h.1.fc3.weight'],
  ])
  const entries = [...graph.initializers].map(([name, { shape, data }]): [string, Tensor] => {
    const values = data as Float32Array
    const renamed = names.get(name)
    if (!renamed) return [name, Tensor.from(values, { shape })]
    const [ins = 0, outs = 0] = shape
    const turned = values.map((_, i) => values[(i % ins) * outs + Math.floor(i / ins)]!)
    return [renamed, Tensor.from(turned, { shape: [outs, ins] })]
  })
  return new Map(entries)
}

async function tensorsIn(file: string): Promise<(name: string) => Tensor> {
  const { tensors } = await readSafetensors(file)
  return name => tensorFromRecord(name, tensors.get(name)!)
}

const cases: Readonly<Record<string, Partial<AdapterOptions> & { dtype: 'f32' | 'bf16' | 'f16' }>> = {
  plain: { dtype: 'f32', rank: 4, alpha: 6 },
  'rank-stabilised, ranks and scales of their own': {
    dtype: 'f32',
    rank: 3,
    alpha: 5,
    rslora: true,
    rankPattern: { fc1: 2, 'h.0.fc2': 5 },
    alphaPattern: { 'h.1.fc3': 9 },
  },
  LoRA: { dtype: 'f32', method: 'lora', rank: 4, alpha: 6 },
  'rank-stabilised LoRA': { dtype: 'f16', method: 'lora', rslora: true, rank: 4, alpha: 6 },
  'stored in bf16': { dtype: 'bf16', rank: 4, alpha: 6 },
  'stored in f16': { dtype: 'f16', rank: 4, alpha: 6 },
}

for (const [index, [title, { dtype, ...options }]] of Object.entries(cases).entries()) {
  t.test(title, { skip: !found && 'no Python with PEFT: set DGX_SPARK_PYTHON' }, async t => {
    const folder = path.join(scratch, String(index))
    mkdirSync(folder)
    const written = await createAdapter(graph, {
      ...options,
      targetModules: Object.keys(layers),
      init: false,
      seed: 5,
    })
    const random = randomGenerator(6)
    for (const name of written.parameters.filter(name => name.endsWith('magnitude_vector'))) {
      const factors = uniform(random, written.read(name).length, 0.5, 1.5)
      written.write(
        name,
        written.read(name).map((length, i) => length * factors[i]!),
      )
    }
    await written.save(path.join(folder, 'adapter'), { dtype })
    const inputs = Object.entries(layers).map(([name, { input }]) => {
      const { shape, data } = feeds[input]!
      return [name, { dtype: input === 'ids' ? 'I64' : 'F32', shape, data }] as const
    })
    await writeSafetensors(path.join(folder, 'base.safetensors'), baseTensors())
    await writeSafetensors(path.join(folder, 'inputs.safetensors'), inputs)
    writeFileSync(path.join(folder, 'layers.json'), JSON.stringify(layers))
    execFileSync(python, [script, folder], { stdio: ['ignore', 'inherit', 'inherit'] })

    const adapter = await Adapter.load(graph, path.join(folder, 'adapter'))
    using model = new AdaptedModel(graph)
    model.add('ours', adapter)
    const ours = await model.run(feeds, { adapters: 'ours' })
    const theirs = await tensorsIn(path.join(folder, 'outputs.safetensors'))
    for (const [name, { output }] of Object.entries(layers)) {
      const expected = theirs(name)
      t.strictSame(ours[output]!.shape, expected.shape, name)
      const values = expected.toFloat32()
      within(t, ours[output]!.data as Float32Array, values, () => 3e-6 * maxAbs(values), name)
    }
    const merged = await tensorsIn(path.join(folder, 'merged.safetensors'))
    const { graph: plain } = await adapter.merge()
    for (const name of ['emb', 'c2', 'fc1']) {
      const expected = merged(name).toFloat32()
      const weight = plain.initializers.get(`${name}.weight`)!.data as Float32Array
      within(t, weight, expected, () => 3e-6 * maxAbs(expected), `${name} merged`)
    }
  })
}
