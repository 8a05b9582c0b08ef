// Adapters in the layouts of other programs compute what the same numbers in PEFT's layout compute.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Adapter, createAdapter, Tensor, writeSafetensors } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { transpose } from '#lib/core/transpose.js'
import { identical } from '../../fixtures/close.js'
import { adaptableGraph } from '../../fixtures/models/adaptable-graph.js'

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-foreign-'))
t.teardown(() => rmSync(scratch, { recursive: true }))
const graph = adaptableGraph()

t.test('NVlabs, kohya, torchtune, MLX', async t => {
  const targetModules = ['fc1', 'fc2']
  const ours = await createAdapter(graph, { targetModules, rank: 3, alpha: 6, init: false })
  const values = (name: string) => {
    const [a, b, m] = ['A', 'B', 'magnitude_vector'].map(part => ours.read(`${name}.lora_${part}`))
    const [rows, cols] = [m!.length, a!.length / 3]
    const f32 = (data: Float32Array, ...shape: number[]) => Tensor.from(data, { shape })
    const [down, up] = [f32(a!, 3, cols), f32(b!, rows, 3)]
    const mlx = [f32(transpose(a!, 3, cols), cols, 3), f32(transpose(b!, rows, 3), 3, rows)]
    return { down, up, mlx, m: f32(m!, rows), column: f32(m!, rows, 1) }
  }
  const alpha = Tensor.from(Float32Array.of(6), { shape: [] })
  const files: Record<string, (name: string) => Record<string, Tensor>> = {
    nvlabs: name => {
      const { down, up, column } = values(name)
      const key = `base_model.model.${name}`
      return {
        [`${key}.lora_A.weight`]: down,
        [`${key}.lora_B.weight`]: up,
        [`${key}.weight_m_wdecomp.weight`]: column,
      }
    },
    kohya: name => {
      const { down, up, column } = values(name)
      const key = `lora_unet_${name.replaceAll('.', '_')}`
      return {
        [`${key}.lora_down.weight`]: down,
        [`${key}.lora_up.weight`]: up,
        [`${key}.dora_scale`]: column,
        [`${key}.alpha`]: alpha,
      }
    },
    torchtune: name => {
      const { down, up, m } = values(name)
      return { [`${name}.lora_a.weight`]: down, [`${name}.lora_b.weight`]: up, [`${name}.magnitude`]: m }
    },
    mlx: name => {
      const { mlx, m } = values(name)
      return { [`${name}.lora_a`]: mlx[0]!, [`${name}.lora_b`]: mlx[1]!, [`${name}.m`]: m }
    },
  }
  for (const [program, tensorsOf] of Object.entries(files)) {
    const file = path.join(scratch, `${program}.safetensors`)
    await writeSafetensors(file, { ...tensorsOf('fc1'), ...tensorsOf('h.0.fc2') })
    const options = program === 'kohya' ? {} : program === 'mlx' ? { scale: 2 } : { alpha: 6 }
    const adapter = await Adapter.import(graph, file, options)
    t.strictSame(
      adapter.modules.map(({ name, scale }) => [name, scale]),
      [
        ['fc1', 2],
        ['h.0.fc2', 2],
      ],
      program,
    )
    for (const name of ours.parameters)
      identical(t, adapter.read(name), ours.read(name), `${program} ${name}`)
    await adapter.save(path.join(scratch, program))
    const again = await Adapter.load(graph, path.join(scratch, program))
    t.strictSame(
      again.modules.map(({ scale }) => scale),
      [2, 2],
    )
  }
})

t.test('kohya: a convolution', async t => {
  const ours = await createAdapter(graph, { targetModules: ['c2'], rank: 2, alpha: 3, init: false })
  const [a, b, m] = ours.parameters.map(name => ours.read(name))
  const file = path.join(scratch, 'conv.safetensors')
  await writeSafetensors(file, {
    'lora_unet_c2.lora_down.weight': Tensor.from(a!, { shape: [2, 3, 3, 2] }),
    'lora_unet_c2.lora_up.weight': Tensor.from(b!, { shape: [5, 2, 1, 1] }),
    'lora_unet_c2.dora_scale': Tensor.from(m!, { shape: [5, 1, 1, 1] }),
    'lora_unet_c2.alpha': Tensor.from([3]),
  })
  const adapter = await Adapter.import(graph, file)
  for (const name of ours.parameters) identical(t, adapter.read(name), ours.read(name), name)
  t.strictSame(
    adapter.modules.map(({ kind, scale }) => [kind, scale]),
    [['conv', 1.5]],
  )
  await adapter.save(path.join(scratch, 'conv'))
  t.equal((await Adapter.load(graph, path.join(scratch, 'conv'))).modules.length, 1)
})

t.test('what is none', async t => {
  const file = path.join(scratch, 'none.safetensors')
  const one = Tensor.from([1])
  await writeSafetensors(file, { 'fc1.lora_a.weight': one })
  await t.rejects(Adapter.import(graph, file), { code: 'ERR_FORMAT', message: /no DoRA magnitudes/ })
  await writeSafetensors(file, { 'fc1.lora_a.weight': one, 'fc1.magnitude': one })
  await t.rejects(Adapter.import(graph, file), { code: 'ERR_FORMAT', message: /'fc1' has no b/ })
  await writeSafetensors(file, { 'fc9.magnitude': one })
  await t.rejects(Adapter.import(graph, file), {
    code: 'ERR_FORMAT',
    message: /the model has no layer 'fc9'/,
  })
})

t.test('adapters of other methods are rejected', async t => {
  const file = path.join(scratch, 'other.safetensors')
  const some = (...shape: number[]) =>
    Tensor.from(
      Array.from({ length: numel(shape) }, (_, i) => i),
      { shape },
    )
  const refused = async (tensors: Record<string, Tensor>, code: string, message: RegExp) => {
    await writeSafetensors(file, tensors)
    await t.rejects(Adapter.import(graph, file), { code, message })
  }
  const kohya = (key: string, magnitude: Tensor) => ({
    [`${key}.lora_down.weight`]: some(2, 5),
    [`${key}.lora_up.weight`]: some(5, 2),
    [`${key}.dora_scale`]: magnitude,
  })
  // `tied` is [5, 5]: the shape alone tells whether the lengths are those of rows or of columns.
  await refused(
    kohya('lora_unet_tied', some(1, 5)),
    'ERR_SHAPE',
    /'lora_unet_tied' is \[1, 5\].*per input feature/,
  )
  await refused(
    { ...kohya('lora_unet_tied', some(5, 1)), ...kohya('lora_te_tied', some(5, 1)) },
    'ERR_FORMAT',
    /'lora_(te|unet)_tied' is the second adapter for 'tied'/,
  )
  const mlx = (name: string, a: Tensor, b: Tensor, m: Tensor) => ({
    [`${name}.lora_a`]: a,
    [`${name}.lora_b`]: b,
    [`${name}.m`]: m,
  })
  await refused(
    mlx('tied', some(5), some(2, 5), some(5)),
    'ERR_SHAPE',
    /A and B of 'tied' are \[5\] and \[2, 5\]/,
  )
  const table = mlx('emb', some(11, 2), some(2, 6), some(6))
  await refused(table, 'ERR_SHAPE', /'emb' is \[6\], but the embedding layer.*per row of an embedding/)
})
