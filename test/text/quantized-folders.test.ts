// Folders with quantized matrices: the numbers of every layout, and refusal of what is broken or not known.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type SafetensorsTensor, writeSafetensors } from 'dgx-spark'
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import { loadFolderWeights } from '#lib/text/files/folder-weights.js'
import type { LoadedWeights } from '#lib/text/files/loaded-weights.js'
import { within } from '../fixtures/close.js'
import { dataPath, noLanguageData } from '../fixtures/text/golden-data.js'
import * as packed from '../fixtures/text/packed-matrices.js'
import * as layouts from '../fixtures/text/quantized-matrices.js'

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-quantized-'))
t.teardown(() => rmSync(scratch, { recursive: true }))
let folders = 0

const norm: SafetensorsTensor = { dtype: 'F32', shape: [3], data: Float32Array.of(1, 2, 3) }

async function load(
  tensors: ReadonlyMap<string, SafetensorsTensor>,
  settings?: object,
): Promise<LoadedWeights> {
  const folder = mkdtempSync(path.join(scratch, `${folders++}`))
  await writeSafetensors(
    path.join(folder, 'model.safetensors'),
    new Map([['model.norm.weight', norm], ...tensors]),
  )
  const config = { model_type: 'llama', ...(settings && { quantization_config: settings }) }
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(config))
  return loadFolderWeights(folder, new Pacer())
}

/** Every layout in small and odd sizes. */
const matrices: Readonly<Record<string, layouts.StoredMatrix>> = {
  'fp8 by blocks': layouts.fp8Blocks(5, 11, 4),
  'fp8 by blocks of 128': layouts.fp8Blocks(130, 257, 128),
  'fp8 by blocks of 128 in rows of whole blocks': layouts.fp8Blocks(130, 256, 128),
  'fp8 by blocks of 128 in rows of 32': layouts.fp8Blocks(3, 160, 128),
  'fp8 by rows': layouts.fp8Rows(3, 7),
  'fp8 of one scale': layouts.fp8Matrix(3, 5),
  'int8 by rows': layouts.int8Rows(3, 5),
  'NVFP4 of ModelOpt': layouts.nvfp4(3, 48, 'modelopt'),
  'NVFP4 of compressed-tensors': layouts.nvfp4(5, 16, 'compressed-tensors'),
  'MXFP4 of compressed-tensors': layouts.mxfp4(3, 64),
  'MXFP4 of experts': layouts.mxfp4Experts(2, 3, 96),
  'GPTQ of 4 bits': packed.gptq(24, 64, { bits: 4, group: 32 }),
  'GPTQ of 2 bits': packed.gptq(16, 48, { bits: 2, group: 16, version: 2 }),
  'GPTQ of 3 bits': packed.gptq(32, 96, { bits: 3, group: 32 }),
  'GPTQ of 8 bits': packed.gptq(4, 128, { bits: 8, group: 128 }),
  'GPTQ in an order of activations': packed.gptq(8, 40, { bits: 4, group: 16, order: true }),
  'GPTQ in an order of whole groups': packed.gptq(40, 128, { bits: 4, group: 32, order: true }),
  'GPTQ of 3 bits in an order': packed.gptq(32, 96, { bits: 3, group: 32, order: true }),
  'GPTQ of 8 bits in an order': packed.gptq(4, 256, { bits: 8, group: 128, order: true }),
  'GPTQ of groups of 64': packed.gptq(8, 192, { bits: 4, group: 64 }),
  'AWQ of groups of 128': packed.awq(8, 256, 128),
  AWQ: packed.awq(16, 96, 32),
  'integers of compressed-tensors': packed.compressed(3, 64, { bits: 4, groups: 2 }),
  'integers of 8 bits of compressed-tensors': packed.compressed(5, 30, { bits: 8, groups: 1 }),
  'integers of compressed-tensors with zero points': packed.compressed(13, 33, {
    bits: 4,
    groups: 3,
    zeros: true,
  }),
  'integers of compressed-tensors in an order': packed.compressed(3, 64, { bits: 4, groups: 4, order: true }),
}

/** The formats in which they stay, where it is not f32. */
const formats: Readonly<Record<string, string>> = {
  'fp8 by blocks of 128 in rows of whole blocks': 'f8_128',
  'fp8 by blocks of 128 in rows of 32': 'f8_32',
  'fp8 by rows': 'f8_e4m3',
  'fp8 of one scale': 'f8_e4m3',
  'int8 by rows': 'i8',
  'NVFP4 of ModelOpt': 'nvfp4',
  'NVFP4 of compressed-tensors': 'nvfp4',
  'MXFP4 of compressed-tensors': 'mxfp4',
  'MXFP4 of experts': 'mxfp4',
  'GPTQ of 4 bits': 'u4_32',
  'GPTQ of 3 bits': 'u4_32',
  'GPTQ of 8 bits': 'u8_128',
  'GPTQ of 2 bits': 'u4_16',
  'GPTQ in an order of whole groups': 'u4_32',
  'GPTQ of 3 bits in an order': 'u4_32',
  'GPTQ of 8 bits in an order': 'u8_128',
  'integers of compressed-tensors in an order': 'u4_16',
  'GPTQ of groups of 64': 'u4_32',
  'AWQ of groups of 128': 'u4_128',
  AWQ: 'u4_32',
  'integers of compressed-tensors': 'q4_0',
}

/** A tensor whose file is a hole there, unless it is a vector. */
const hole = (tensor: SafetensorsTensor): SafetensorsTensor =>
  tensor.shape.length > 1 ? ({ ...tensor, data: tensor.data.slice().fill(0 as never) } as never) : tensor

for (const [about, { tensors, settings, name, shape, values }] of Object.entries(matrices)) {
  t.test(about, async t => {
    const weights = await load(tensors, settings)
    t.strictSame([...weights.names].sort(), ['model.norm.weight', name].sort(), 'parts are hidden')
    t.strictSame(weights.shape(name), shape)
    const constant = weights.constant(name)
    t.strictSame([constant.dtype, constant.shape], ['f32', shape])
    // The formula takes products of f32, of which each rounds to 2^-24.
    within(t, constant.data as Float32Array, values, i => Math.abs(values[i]!) * 2 ** -22, about)
    const { shared } = constant.weight!
    t.equal(shared.format, formats[about] ?? 'f32')
    t.strictSame([shared.rows, shared.cols], [shape.slice(0, -1).reduce((a, b) => a * b), shape.at(-1)])
    const lacking = await load(new Map([...tensors].map(([part, tensor]) => [part, hole(tensor)])), settings)
    t.strictSame(lacking.shape(name), shape, 'a node of a cluster may lack the elements')
  })
}

t.test('a matrix that a model reads by its columns', async t => {
  const { tensors, settings, name, values } = layouts.fp8Rows(3, 7)
  const constant = (await load(tensors, settings)).constant(name, true)
  t.strictSame(constant.shape, [7, 3])
  const turned = values.map((_, i) => values[(i % 3) * 7 + Math.floor(i / 3)]!)
  within(t, constant.data as Float32Array, turned, i => Math.abs(turned[i]!) * 2 ** -22, 'columns')
})

t.test('experts in matrices of their own become one tensor', async t => {
  for (const make of [
    () => layouts.fp8Rows(3, 16),
    () => layouts.fp8Blocks(4, 8, 4),
    () => layouts.fp8Blocks(5, 8, 4),
    () => layouts.nvfp4(3, 32, 'modelopt'),
    () => layouts.mxfp4(2, 32),
  ]) {
    const { tensors, settings, name, shape, values } = make()
    const all = new Map(
      [0, 1].flatMap(expert =>
        [...tensors].map(
          ([part, tensor]) => [part.replace('up_proj', `experts.${expert}.up_proj`), tensor] as const,
        ),
      ),
    )
    const names = [0, 1].map(expert => name.replace('up_proj', `experts.${expert}.up_proj`))
    const weights = await load(all, settings)
    const { weight, factors } = weights.stack(names)
    t.strictSame([weight.shape, factors], [[2, ...shape], undefined])
    const twice = [...values, ...values]
    within(t, weight.data as Float32Array, twice, i => Math.abs(twice[i]!) * 2 ** -22, 'stack')
    const second = weights.constant(names[1]!)
    t.strictSame(second.shape, shape)
    within(t, second.data as Float32Array, values, i => Math.abs(values[i]!) * 2 ** -22, 'a part of it')
  }
})

t.test('what activations of NVFP4 were calibrated for', async t => {
  const scaleIn = async (
    layout: 'modelopt' | 'compressed-tensors',
    value?: number,
    dtype: 'F32' | 'F16' = 'F32',
  ) => {
    const { tensors, settings, name } = layouts.nvfp4(3, 32, layout)
    const part = layout === 'modelopt' ? 'input_scale' : 'input_global_scale'
    const key = name.replace(/weight$/, part)
    const data = dtype === 'F32' ? Float32Array.of(value ?? 0) : Uint16Array.of(0x3c00)
    const all = new Map<string, SafetensorsTensor>([...tensors, [key, { dtype, shape: [], data }]])
    if (value === undefined) all.delete(key)
    return (await load(all, settings)).constant(name).weight!.inputScale
  }
  t.equal(await scaleIn('modelopt', 0.25), 0.25)
  t.equal(await scaleIn('compressed-tensors', 4), 0.25, 'the reciprocal')
  for (const layout of ['modelopt', 'compressed-tensors'] as const) {
    t.equal(await scaleIn(layout), undefined, 'none')
    for (const value of [0, -1, Number.NaN, layout === 'modelopt' ? 3e38 : 1e-38])
      t.equal(await scaleIn(layout, value), undefined, `${value}`)
  }
  t.equal(await scaleIn('modelopt', 1, 'F16'), undefined, 'a type that no file has it in')
})

t.test('experts of NVFP4 keep their own scales', async t => {
  const { tensors, settings, name, values } = layouts.nvfp4(3, 32, 'modelopt')
  const all = new Map<string, SafetensorsTensor>()
  const names = [0, 1].map(expert => name.replace('up_proj', `experts.${expert}.up_proj`))
  for (const expert of [0, 1])
    for (const [part, tensor] of tensors)
      all.set(part.replace('up_proj', `experts.${expert}.up_proj`), tensor)
  all.set(`${names[1]}_scale_2`, { dtype: 'F32', shape: [], data: Float32Array.of(3 * 2 ** -9) })
  const weights = await load(all, settings)
  const { weight, factors } = weights.stack(names)
  t.equal(weight.weight!.shared.format, 'nvfp4')
  t.strictSame(factors!.data, Float32Array.of(2 ** -9, 3 * 2 ** -9))
  const expected = [...values, ...values].map(value => value * 2 ** 9)
  within(t, weight.data as Float32Array, expected, i => Math.abs(expected[i]!) * 2 ** -22, 'without scales')
  const tripled = values.map(value => 3 * value)
  const second = weights.constant(names[1]!).data as Float32Array
  within(t, second, tripled, i => Math.abs(tripled[i]!) * 2 ** -22, 'one of them')
})

t.test('what is broken is named', async t => {
  const { tensors, settings } = layouts.nvfp4(3, 32, 'modelopt')
  const module = 'model.layers.0.mlp.up_proj'
  const broken = (name: string, tensor?: Partial<SafetensorsTensor>) => {
    const all = new Map(tensors)
    if (tensor) all.set(`${module}.${name}`, { ...all.get(`${module}.${name}`)!, ...tensor })
    else all.delete(`${module}.${name}`)
    return load(all, settings)
  }
  const refused = (promise: Promise<unknown>, message: RegExp) =>
    t.rejects(promise, { code: 'ERR_FORMAT', message })
  await refused(
    broken('weight_scale_2'),
    /up_proj\.weight_scale_2' is missing, without which '.*up_proj' cannot/,
  )
  await refused(broken('weight_scale'), /up_proj\.weight_scale' is missing/)
  await refused(broken('weight_scale', { shape: [2, 3] }), /has the shape \[2, 3\]; expected \[3, 2\]/)
  await refused(broken('weight_scale', { dtype: 'U8' }), /weight_scale' is U8; expected F8_E4M3/)
  const nan = Uint8Array.of(1, 1, 1, 0x7f, 1, 1)
  await refused(broken('weight_scale', { data: nan }), /has the scale NaN at element 3/)
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY])
    await refused(
      broken('weight_scale_2', { data: Float32Array.of(value) }),
      /has the scale (NaN|Infinity) at element 0/,
    )
  await refused(
    broken('weight_scale_2', { data: Float32Array.of(0) }),
    /has the scale 0; expected a positive/,
  )
  const odd = { shape: [3, 7], data: new Uint8Array(21) }
  await refused(broken('weight', odd), /has rows of 14 elements; expected a multiple of 16/)
  const blocks = layouts.fp8Blocks(5, 11, 4)
  const wrong = new Map(blocks.tensors).set(`${module}.weight_scale_inv`, {
    dtype: 'F32',
    shape: [2, 2],
    data: new Float32Array(4),
  })
  await refused(load(wrong, blocks.settings), /weight_scale_inv' has the shape \[2, 2\]; expected \[2, 3\]/)
  const twice = new Map(tensors).set(`${module}.weight_packed`, {
    dtype: 'U8',
    shape: [1, 16],
    data: new Uint8Array(16),
  })
  await refused(load(twice, settings), /there twice, once as/)
})

t.test('broken integers are named', async t => {
  const module = 'model.layers.0.mlp.up_proj'
  const broken = (
    { tensors, settings }: layouts.StoredMatrix,
    name: string,
    change?: Partial<SafetensorsTensor>,
  ) => {
    const all = new Map(tensors)
    if (change) all.set(`${module}.${name}`, { ...all.get(`${module}.${name}`)!, ...change })
    else all.delete(`${module}.${name}`)
    return load(all, settings)
  }
  const refused = (promise: Promise<unknown>, message: RegExp) =>
    t.rejects(promise, { code: 'ERR_FORMAT', message })
  const ordered = packed.gptq(8, 40, { bits: 4, group: 16, order: true })
  await refused(broken(ordered, 'qzeros'), /up_proj\.qzeros' is missing/)
  await refused(broken(ordered, 'scales'), /up_proj\.scales' is missing/)
  await refused(broken(ordered, 'g_idx'), /g_idx' is missing, without which 40 in features are no 3 groups/)
  const far = new Int32Array(40).fill(3)
  await refused(broken(ordered, 'g_idx', { data: far }), /has the group 3 at element 0; there are 3/)
  const wide = { shape: [3, 8], data: new Int32Array(24) }
  await refused(
    broken(ordered, 'qzeros', wide),
    /qzeros' has the shape \[3, 8\]; expected integers of 2, 3, 4, 8 bits/,
  )
  const infinite = new Uint16Array(24).fill(0x7c00)
  await refused(broken(ordered, 'scales', { data: infinite }), /has the scale Infinity at element 0/)
  const plain = packed.compressed(3, 64, { bits: 4, groups: 2 })
  await refused(broken(plain, 'weight_shape'), /weight_shape' is missing/)
  const shape = (...sizes: bigint[]) => ({ data: BigInt64Array.from(sizes) })
  await refused(broken(plain, 'weight_shape', shape(4n, 64n)), /weight_shape' has 4 rows; expected 3/)
  await refused(broken(plain, 'weight_shape', shape(3n, -64n)), /expected integers of 2, 4, 8 bits/)
  await refused(broken(packed.awq(16, 96, 32), 'qweight', { shape: [12, 16] }), /expected integers of 4 bits/)
})

t.test('what is not known is named', async t => {
  const refused = async (settings: object, message: RegExp) =>
    t.rejects(load(new Map(), settings), { code: 'ERR_UNSUPPORTED', message })
  await refused(
    { quant_method: 'bitsandbytes' },
    /quant_method of quantization_config of config\.json is 'bitsandbytes'; supported: fp8, /,
  )
  await refused({ quant_method: 'hqq' }, /'hqq'/)
  await refused({ group_size: 64, bits: 4 }, /MLX/)
  await refused({ quant_method: 'fp8', weight_block_size: [1, 128] }, /weight_block_size .* is \[1, 128\]/)
  await refused({ quant_method: 'modelopt', quant_algo: 'W4A16_AWQ' }, /quant_algo .* is 'W4A16_AWQ'/)
  const mixed = { lm_head: { quant_algo: 'NVFP4_SVD' } }
  await refused(
    { quant_method: 'modelopt', quant_algo: 'MIXED_PRECISION', quantized_layers: mixed },
    /quant_algo of lm_head of quantized_layers .* is 'NVFP4_SVD'/,
  )
  await refused({ quant_method: 'compressed-tensors', format: 'marlin-24' }, /format .* is 'marlin-24'/)
  await refused({ quant_method: 'awq', version: 'gemv' }, /version .* is 'gemv'/)
})

t.test('the experts of gpt-oss, in MXFP4 and in bf16', { skip: noLanguageData }, async t => {
  const [plain, packed] = await Promise.all(
    ['gpt-oss', 'gpt-oss-mxfp4'].map(name =>
      loadFolderWeights(dataPath('lm-golden', 'models', name), new Pacer()),
    ),
  )
  t.strictSame([...packed!.names].sort(), [...plain!.names].sort())
  for (const name of plain!.names) {
    const [a, b] = [plain!.constant(name), packed!.constant(name)]
    t.strictSame(b.shape, a.shape, name)
    // Blocks of MXFP4 have no negative zero.
    within(t, b.data as Float32Array, a.data as Float32Array, () => Number.MIN_VALUE, name)
  }
})
