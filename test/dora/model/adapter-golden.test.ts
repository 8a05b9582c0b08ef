// Adapters of PEFT on whole models: outputs of layers, merged weights, several adapters, and files written again.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type SafetensorsTensor, Tensor, tensorFromRecord } from 'dgx-spark'
import t, { type Test } from 'tap'
import { AdaptedModel } from '#lib/dora/model/adapted-model.js'
import { Adapter } from '#lib/dora/model/adapter.js'
import { findModules } from '#lib/dora/model/find-modules.js'
import { weightRows } from '#lib/dora/model/module-weight.js'
import type { Graph } from '#lib/graph/graph.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import {
  fileTensors,
  type LinearForm,
  layersOf,
  mergedTags,
  peftRoot,
} from '../../fixtures/models/peft-models.js'
import { goldenJson, noGolden } from '../../fixtures/values/golden-bytes.js'

interface AdapterCase {
  base_dtype: 'float32' | 'float16' | 'bfloat16'
  adapters: Record<string, string>
  resolved: Record<string, Record<string, { r: number; lora_alpha: number; scaling: number }>>
}

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-adapters-'))
t.teardown(() => rmSync(scratch, { recursive: true }))
const cases = noGolden
  ? []
  : readdirSync(peftRoot).filter(name => existsSync(path.join(peftRoot, name, 'case.json')))

async function checkCase(t: Test, id: string, form: LinearForm): Promise<void> {
  const backend = backends[0]!
  const golden = goldenJson<AdapterCase>(`peft/adapters/${id}/case.json`)
  const tolerance = { float32: 1e-6, float16: 1.5e-3, bfloat16: 1.2e-2 }[golden.base_dtype]
  const base = layersOf(await fileTensors(id, 'base_model.safetensors'), form)
  using model = new AdaptedModel(base, { backend })
  for (const [name, folder] of Object.entries(golden.adapters)) {
    const adapter = await Adapter.load(base, path.join(peftRoot, id, folder))
    for (const module of adapter.modules) {
      const settings = golden.resolved[module.name]![name]!
      t.equal(module.rank, settings.r)
      t.equal(module.scale, Math.fround(settings.scaling))
    }
    model.add(name, adapter)
  }
  for (const tag of mergedTags(id)) {
    const expected = await fileTensors(id, `merged_model.${tag}.safetensors`)
    const { graph, unmerge } = await model.merge(tag.split('+'))
    for (const module of findModules(graph)) {
      const weight = tensorFromRecord(module.name, expected.get(`${module.name}.weight`)!).toFloat32()
      const rows = weightRows(graph, module)
      const merged = module.kind === 'embedding' ? graph.initializers.get(module.weight)!.data : rows
      close(t, merged as Float32Array, weight, tolerance, `${tag}: ${module.name} merged`)
    }
    for (const [name, record] of expected) {
      const bias = graph.initializers.get(name)
      if (!name.endsWith('.bias') || !bias || golden.base_dtype !== 'float32') continue
      close(t, bias.data as Float32Array, record.data as Float32Array, 0, name)
    }
    t.equal(unmerge(), base)
  }
}

async function checkOutputs(t: Test, id: string, form: LinearForm): Promise<void> {
  const golden = goldenJson<AdapterCase>(`peft/adapters/${id}/case.json`)
  const io = await fileTensors(id, 'io.safetensors')
  const base = layersOf(await fileTensors(id, 'base_model.safetensors'), form)
  const tags = new Set([...io.keys()].flatMap(name => /^layer_in\.([^.]*)\./.exec(name)?.slice(1) ?? []))
  for (const backend of backends) {
    using model = new AdaptedModel(base, { backend })
    for (const [name, folder] of Object.entries(golden.adapters)) {
      model.add(name, await Adapter.load(base, path.join(peftRoot, id, folder)))
    }
    for (const tag of tags) {
      const outputs = await model.run(layerInputs(base, io, `layer_in.${tag}`), { adapters: tag.split('+') })
      for (const [name, record] of io) {
        const module = name.startsWith(`layer_out.${tag}.`)
          ? name.slice(`layer_out.${tag}.`.length)
          : undefined
        if (module === undefined) continue
        const y = outputs[`out.${module}`]!.data as Float32Array
        close(t, y, record.data as Float32Array, 2e-6, `${backend} ${tag} ${module}`)
      }
    }
  }
}

/** What PEFT gave to each layer; zeros for layers that have no adapter. */
function layerInputs(base: Graph, io: ReadonlyMap<string, SafetensorsTensor>, prefix: string) {
  const entries = base.inputs.map(({ name, type }) => {
    const record = io.get(name.replace('in', prefix))
    const sizes = type?.kind === 'tensor' ? type.shape! : []
    const isMatrix = sizes.length === 2 && sizes[1] !== 'T'
    if (!record) {
      const shape = sizes.map(size => (typeof size === 'number' ? size : 1))
      return [
        name,
        Tensor.zeros(shape, type?.kind === 'tensor' && type.dtype === 'i64' ? 'i64' : 'f32'),
      ] as const
    }
    const shape = isMatrix ? [record.data.length / record.shape.at(-1)!, record.shape.at(-1)!] : record.shape
    return [name, Tensor.from(record.data, { shape, dtype: record.dtype.toLowerCase() as 'f32' })] as const
  })
  return Object.fromEntries(entries)
}

for (const form of ['gemm', 'matmul'] as const) {
  for (const id of cases) {
    t.test(`${id}, ${form}: merged`, async t => checkCase(t, id, form))
    const is16Bit = /16/.test(id)
    if (!is16Bit) t.test(`${id}, ${form}: outputs`, async t => checkOutputs(t, id, form))
  }
}

t.test('what is written is what PEFT wrote', { skip: noGolden }, async t => {
  for (const id of cases) {
    const base = layersOf(await fileTensors(id, 'base_model.safetensors'), 'gemm')
    const { adapters } = goldenJson<AdapterCase>(`peft/adapters/${id}/case.json`)
    for (const [name, folder] of Object.entries(adapters)) {
      const from = path.join(peftRoot, id, folder)
      const adapter = await Adapter.load(base, from)
      const to = path.join(scratch, id, name)
      await adapter.save(to)
      const [written, original] = [to, from].map(at =>
        readFileSync(path.join(at, 'adapter_config.json'), 'utf8'),
      )
      t.strictSame(JSON.parse(written!), JSON.parse(original!), id)
      const again = await Adapter.load(base, to)
      t.strictSame([...again.extra.keys()].sort(), [...adapter.extra.keys()].sort())
      for (const parameter of adapter.parameters) {
        close(t, again.read(parameter), adapter.read(parameter), 0, `${id} ${parameter}`)
      }
    }
  }
})
