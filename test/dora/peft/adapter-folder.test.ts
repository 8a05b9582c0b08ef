// Adapter folders of PEFT: reading, writing, and the layers in them.
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import {
  DoRALinear,
  readPeftAdapter,
  readSafetensors,
  SparkError,
  Tensor,
  tensorFromRecord,
  writePeftAdapter,
  writeSafetensors,
} from 'dgx-spark'
import t, { type Test } from 'tap'
import { backends } from '../../fixtures/backends.js'
import { maxAbs, within } from '../../fixtures/close.js'
import { goldenJson, noGolden } from '../../fixtures/values/golden-bytes.js'
import { randomGenerator } from '../../fixtures/values/random.js'

const root = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'peft', 'adapters')
const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-peft-'))
t.teardown(() => rmSync(scratch, { recursive: true }))

interface AdapterCase {
  id: string
  base_dtype: string
  adapters: Record<string, string>
  resolved: Record<
    string,
    Record<string, { r: number; lora_alpha: number; scaling: number; use_dora: boolean }>
  >
}

const readCase = (id: string) => goldenJson<AdapterCase>(`peft/adapters/${id}/case.json`)
const caseNames = (): string[] =>
  readdirSync(root).filter(name => existsSync(path.join(root, name, 'case.json')))

async function tensorsOf(...segments: string[]): Promise<(name: string) => Tensor | undefined> {
  const { tensors } = await readSafetensors(path.join(root, ...segments))
  return name => {
    const record = tensors.get(name)
    return record && tensorFromRecord(name, record)
  }
}

/** The layer of one module of a case, with PEFT's input and output. */
async function checkModule(t: Test, id: string, module: string, backend: 'js' | 'cpu'): Promise<void> {
  const golden = readCase(id)
  const base = await tensorsOf(id, 'base_model.safetensors')
  const io = await tensorsOf(id, 'io.safetensors')
  const linear = { weight: base(`${module}.weight`)!, bias: base(`${module}.bias`) }
  const layer = await DoRALinear.load(path.join(root, id, 'adapter'), linear, { module, backend })
  const settings = golden.resolved[module]!.default!
  t.equal(layer.rank, settings.r)
  t.equal(layer.alpha, settings.lora_alpha)
  t.equal(layer.scale, Math.fround(settings.scaling))
  const expected = io(`layer_out.default.${module}`)!
  const y = await layer.forward(io(`layer_in.default.${module}`)!)
  t.strictSame(y.shape, expected.shape)
  const values = expected.toFloat32()
  // PEFT's own output is rounded in the base's dtype several times on the way; f32 to 1e-6 of the largest.
  const tolerance = { float32: 2e-6, bfloat16: 2e-2, float16: 3e-3 }[golden.base_dtype]!
  within(t, y.toFloat32(), values, () => tolerance * maxAbs(values), `${module} output`)

  const merged = await tensorsOf(id, 'merged_model.default.safetensors')
  const wanted = merged(`${module}.weight`)!.toFloat32()
  const weight = (await layer.mergedWeight()).toFloat32()
  const limit = golden.base_dtype === 'float32' ? 1e-6 : tolerance
  within(t, weight, wanted, () => limit * maxAbs(wanted), `${module} merged weight`)
}

t.test('linear layers of adapters compute what PEFT computes', { skip: noGolden }, async t => {
  let modules = 0
  for (const id of caseNames()) {
    const golden = readCase(id)
    for (const [module, { default: settings }] of Object.entries(golden.resolved)) {
      if (!settings?.use_dora || id === 'conv_embedding') continue
      modules++
      for (const backend of backends) {
        await t.test(`${id} ${module} ${backend}`, t => checkModule(t, id, module, backend))
      }
    }
  }
  t.ok(modules >= 20, `${modules} modules`)
})

t.test('adapters are written back byte for byte', { skip: noGolden }, async t => {
  for (const id of caseNames()) {
    for (const folder of Object.values(readCase(id).adapters)) {
      const source = path.join(root, id, folder)
      const target = path.join(scratch, id, folder)
      await writePeftAdapter(target, await readPeftAdapter(source))
      for (const name of ['adapter_config.json', 'adapter_model.safetensors']) {
        const same = readFileSync(path.join(target, name)).equals(readFileSync(path.join(source, name)))
        t.ok(same, `${id}/${folder}/${name}`)
      }
    }
  }
})

t.test('a saved layer has the keys that PEFT writes, and loads again', { skip: noGolden }, async t => {
  const id = 'mlp_sequential_dora'
  const source = path.join(root, id, 'adapter')
  const base = await tensorsOf(id, 'base_model.safetensors')
  const linear = { weight: base('2.weight')!, bias: base('2.bias') }
  const layer = await DoRALinear.load(source, linear, { module: '2' })
  const [first, second] = [path.join(scratch, 'first'), path.join(scratch, 'second')]
  await layer.save(first, { module: '2', baseModel: 'base' })
  const again = await DoRALinear.load(first, linear, { seed: 5 })
  await again.save(second, { module: '2', baseModel: 'base' })
  for (const name of ['adapter_config.json', 'adapter_model.safetensors']) {
    t.ok(readFileSync(path.join(first, name)).equals(readFileSync(path.join(second, name))), name)
  }
  t.strictSame(readdirSync(first).sort(), ['adapter_config.json', 'adapter_model.safetensors'])
  const keys = (folder: string) =>
    Object.keys(JSON.parse(readFileSync(path.join(folder, 'adapter_config.json'), 'utf8')))
  t.strictSame(keys(first), keys(source))
  const { tensors, metadata } = await readSafetensors(path.join(first, 'adapter_model.safetensors'))
  t.strictSame([...metadata], [['format', 'pt']])
  const original = (await readSafetensors(path.join(source, 'adapter_model.safetensors'))).tensors
  const names = ['lora_A.weight', 'lora_B.weight', 'lora_magnitude_vector']
  t.strictSame(
    [...tensors],
    names.map(name => [`base_model.model.2.${name}`, original.get(`base_model.model.2.${name}`)]),
  )
  const config = JSON.parse(readFileSync(path.join(first, 'adapter_config.json'), 'utf8'))
  t.match(config, {
    r: 4,
    lora_alpha: 8,
    use_dora: true,
    target_modules: ['2'],
    base_model_name_or_path: 'base',
  })
})

t.test('variants of an adapter', { skip: noGolden }, async t => {
  interface Variant {
    dir: string
    expect: string
  }
  const { variants } = goldenJson<{ variants: Variant[] }>('peft/adapters/_reader_variants/variants.json')
  const codes: Record<string, [code: string, message: RegExp]> = {
    missing_magnitude: ['ERR_FORMAT', /lora_magnitude_vector' is missing/],
    missing_lora_B: ['ERR_FORMAT', /lora_B.weight' is missing/],
    unexpected_tensor: ['ERR_FORMAT', /unexpected tensor 'nonexistent'/],
    rank_mismatch: ['ERR_SHAPE', /the rank is 4/],
    reject_megatron_config: ['ERR_UNSUPPORTED', /megatron_config/],
    reject_use_qalora: ['ERR_UNSUPPORTED', /use_qalora/],
    reject_target_parameters: ['ERR_UNSUPPORTED', /target_parameters/],
    reject_trainable_token_indices: ['ERR_UNSUPPORTED', /trainable_token_indices/],
    reject_peft_type: ['ERR_UNSUPPORTED', /LOHA/],
  }
  const original = await readPeftAdapter(path.join(root, 'mlp_sequential_dora', 'adapter'))
  for (const { dir, expect } of variants) {
    const folder = path.join(root, '_reader_variants', dir)
    if (expect === 'must be an error') {
      const [code, message] = codes[dir] ?? t.bailout(`no expectation for ${dir}`)!
      await t.rejects(readPeftAdapter(folder), { code, message }, dir)
      continue
    }
    const { modules } = await readPeftAdapter(folder)
    const unit = { f16_tensors: 2 ** -11, bf16_tensors: 2 ** -8 }[dir] ?? 0
    for (const [name, module] of original.modules) {
      for (const field of ['a', 'b', 'magnitude'] as const) {
        const expected = module[field]!.toFloat32()
        const actual = modules.get(name)![field]!.toFloat32()
        within(t, actual, expected, i => unit * Math.abs(expected[i]!) + 2 ** -25, `${dir} ${name} ${field}`)
      }
    }
  }
})

t.test('other kinds of modules', { skip: noGolden }, async t => {
  const conv = path.join(root, 'conv_embedding', 'adapter')
  const { modules } = await readPeftAdapter(conv)
  t.strictSame(Array.from(modules, ([name, { kind }]) => [name, kind]).sort(), [
    ['conv1d', 'conv'],
    ['conv2d', 'conv'],
    ['emb', 'embedding'],
    ['lin', 'linear'],
  ])
  const linear = { weight: Tensor.zeros([7, 9]) }
  await t.rejects(DoRALinear.load(conv, linear, { module: 'conv2d' }), { code: 'ERR_UNSUPPORTED' })
  await t.rejects(DoRALinear.load(conv, linear), {
    code: 'ERR_ARGUMENT',
    message: /conv1d, conv2d, emb, lin/,
  })
  await t.rejects(DoRALinear.load(conv, linear, { module: 'x' }), { code: 'ERR_ARGUMENT', message: /no 'x'/ })
  await t.rejects(DoRALinear.load(conv, linear, { module: 'lin' }), { code: 'ERR_SHAPE' })
  const lora = path.join(root, 'mlp_sequential_lora', 'adapter')
  await t.rejects(DoRALinear.load(lora, linear, { module: '0' }), {
    code: 'ERR_UNSUPPORTED',
    message: /LoRA/,
  })
})

/** A small adapter folder; `config` replaces keys of its config. */
async function smallAdapter(name: string, config: object = {}, module = 'é.fc'): Promise<string> {
  const folder = path.join(scratch, name)
  const layer = await DoRALinear.fromLinear({ weight: Tensor.from([[1, 2, 3]]) }, { rank: 2, backend: 'js' })
  await layer.save(folder, { module })
  const file = path.join(folder, 'adapter_config.json')
  writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), ...config }))
  return folder
}

t.test('configs', async t => {
  const folder = path.join(scratch, 'text')
  const layer = await DoRALinear.fromLinear(
    { weight: Tensor.from([[1, 2, 3]]) },
    { rank: 2, dropout: 0.25, backend: 'js' },
  )
  await layer.save(folder, { module: 'é.fc' })
  const text = readFileSync(path.join(folder, 'adapter_config.json'), 'utf8')
  t.match(text, /"\\u00e9.fc"/, 'other letters are escaped, as in Python')
  t.match(text, /"lora_dropout": 0.25,/)
  const loaded = await DoRALinear.load(folder, { weight: Tensor.from([[1, 2, 3]]) }, { backend: 'js' })
  t.equal(loaded.dropout, 0.25)

  const patterns = { rank_pattern: { 'f.': 2 }, r: 64, alpha_pattern: { 'x|fc': 6 }, use_rslora: true }
  const patterned = await DoRALinear.load(
    await smallAdapter('patterns', patterns),
    { weight: Tensor.from([[1, 2, 3]]) },
    { backend: 'js' },
  )
  t.equal(patterned.rank, 2)
  t.equal(patterned.scale, Math.fround(6 / Math.sqrt(2)))

  const refused: [object, string, RegExp][] = [
    [{ r: 0 }, 'ERR_FORMAT', /r must be an integer >= 1, got 0/],
    [{ r: '4' }, 'ERR_FORMAT', /r must be/],
    [{ lora_alpha: [] }, 'ERR_FORMAT', /lora_alpha/],
    [{ lora_dropout: 2 }, 'ERR_FORMAT', /lora_dropout/],
    [{ bias: 'some' }, 'ERR_FORMAT', /bias/],
    [{ target_modules: [1] }, 'ERR_FORMAT', /target_modules/],
    [{ target_modules: ['c'] }, 'ERR_FORMAT', /not a module in target_modules/],
    [{ target_modules: '(' }, 'ERR_FORMAT', /target_modules: Invalid regular expression/],
    [{ modules_to_save: 'x' }, 'ERR_FORMAT', /modules_to_save/],
    [{ use_dora: 1 }, 'ERR_FORMAT', /use_dora/],
    [{ use_dora: false }, 'ERR_FORMAT', /needs use_dora/],
    [{ rank_pattern: { fc: 0 } }, 'ERR_FORMAT', /rank_pattern/],
    [{ rank_pattern: { fc: 3 } }, 'ERR_SHAPE', /the rank is 3/],
    [{ alpha_pattern: 5 }, 'ERR_FORMAT', /alpha_pattern/],
    [{ lora_bias: true }, 'ERR_UNSUPPORTED', /lora_bias/],
    [{ init_lora_weights: 'pissa_niter_4' }, 'ERR_UNSUPPORTED', /init_lora_weights/],
  ]
  for (const [i, [config, code, message]] of refused.entries()) {
    await t.rejects(readPeftAdapter(await smallAdapter(`refused${i}`, config)), { code, message })
  }
  await t.resolves(readPeftAdapter(await smallAdapter('gaussian', { init_lora_weights: 'gaussian' })))
})

t.test('patterns that take RegExp years', async t => {
  const [pattern, module] = ['(a+)+b', 'a'.repeat(45)]
  const ranks = { rank_pattern: { [pattern]: 3 }, alpha_pattern: { [pattern]: 3 } }
  await t.resolves(readPeftAdapter(await smallAdapter('slow-ranks', ranks, module)))
  const targets = await smallAdapter('slow-targets', { target_modules: pattern }, module)
  await t.rejects(readPeftAdapter(targets), { message: /is not a module in target_modules/ })
  const costly = await smallAdapter('costly', { target_modules: '(é).*\\1' })
  await t.rejects(readPeftAdapter(costly), { code: 'ERR_FORMAT', message: /a reference back to a group/ })
})

t.test('folders that are no adapters', async t => {
  await t.rejects(readPeftAdapter(path.join(scratch, 'absent')), { code: 'ERR_IO' })
  const folder = await smallAdapter('broken')
  const tensors = path.join(folder, 'adapter_model.safetensors')
  await writeSafetensors(tensors, {})
  await t.rejects(readPeftAdapter(folder), { code: 'ERR_FORMAT', message: /contains no adapter/ })
  await writeSafetensors(tensors, { 'lora_A.weight': Tensor.from([1]) })
  await t.rejects(readPeftAdapter(folder), { code: 'ERR_FORMAT', message: /does not begin with/ })
  rmSync(tensors)
  await t.rejects(readPeftAdapter(folder), { code: 'ERR_IO' })
  writeFileSync(path.join(folder, 'adapter_model.bin'), '')
  await t.rejects(readPeftAdapter(folder), { code: 'ERR_UNSUPPORTED', message: /pickle/ })
})

t.test('random damage is a SparkError or an adapter, nothing else', async t => {
  const source = await smallAdapter('valid')
  const folder = path.join(scratch, 'damaged')
  const random = randomGenerator(7)
  for (let round = 0; round < 400; round++) {
    cpSync(source, folder, { recursive: true })
    const file = path.join(folder, round % 2 ? 'adapter_config.json' : 'adapter_model.safetensors')
    const bytes = readFileSync(file)
    for (let edits = 0; edits < 3; edits++)
      bytes[Math.floor(random() * bytes.length)] = 32 + Math.floor(random() * 95)
    writeFileSync(file, bytes)
    const error = await readPeftAdapter(folder).then(
      () => null,
      error => error,
    )
    if (error && !(error instanceof SparkError)) t.fail(`round ${round}: ${error.stack}`)
  }
  t.pass('400 damaged adapters')
})
