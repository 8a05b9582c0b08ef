// Checkpoints with quantized weights: ModelOpt's bytes, compressed-tensors' names, and reading both.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { readSafetensors, Tensor, tensorFromRecord, writeSafetensors } from 'dgx-spark'
import t from 'tap'
import { readCheckpoint, writeCheckpoint } from '#lib/io/checkpoints/checkpoint.js'
import { decodeWeight } from '#lib/weights/encode.js'
import type { Weight } from '#lib/weights/weight.js'
import { close } from '../fixtures/close.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const root = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'checkpoints')
const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-checkpoints-'))
t.teardown(() => rmSync(scratch, { recursive: true }))

async function baseWeights(): Promise<Map<string, Tensor>> {
  const { tensors } = await readSafetensors(path.join(root, 'base', 'model.safetensors'))
  return new Map([...tensors].map(([name, record]) => [name, tensorFromRecord(name, record)]))
}

const valuesOf = (weight: Tensor | Weight): Float32Array =>
  weight instanceof Tensor ? weight.toFloat32() : decodeWeight(weight)

t.test("ModelOpt's files, byte for byte", { skip: noGolden }, async t => {
  const weights = await baseWeights()
  for (const id of ['modelopt_nvfp4_w4a16', 'modelopt_nvfp4']) {
    const golden = path.join(root, id, 'model.safetensors')
    const { tensors } = await readSafetensors(golden)
    const scales = [...tensors].filter(([name]) => name.endsWith('.input_scale'))
    const inputAmax = Object.fromEntries(
      scales.map(([name, { data }]) => [name.replace('.input_scale', ''), Number(data[0]) * 2688]),
    )
    const config = JSON.parse(readFileSync(path.join(root, 'base', 'config.json'), 'utf8'))
    const folder = path.join(scratch, id)
    const { quantized, excluded } = await writeCheckpoint(folder, weights, { inputAmax, config })
    t.equal(quantized.length, 14)
    t.strictSame([...excluded].sort(), ['lm_head', 'model.embed_tokens'])
    t.ok(readFileSync(path.join(folder, 'model.safetensors')).equals(readFileSync(golden)), id)
    const read = (at: string) => JSON.parse(readFileSync(at, 'utf8'))
    const [ours, theirs] = [folder, path.join(root, id)].map(at => read(path.join(at, 'config.json')))
    delete ours.quantization_config.producer
    delete theirs.quantization_config.producer
    t.strictSame({ ...ours.quantization_config }, { ...theirs.quantization_config })
    const quant = read(path.join(folder, 'hf_quant_config.json')).quantization
    t.strictSame(quant, read(path.join(root, id, 'hf_quant_config.json')).quantization)
  }
})

t.test('compressed-tensors: our codes under its names', { skip: noGolden }, async t => {
  const weights = await baseWeights()
  const [first, second] = [path.join(scratch, 'mo'), path.join(scratch, 'ct')]
  await writeCheckpoint(first, weights)
  await writeCheckpoint(second, weights, { layout: 'compressed-tensors' })
  const [a, b] = [await readCheckpoint(first), await readCheckpoint(second)]
  t.strictSame([...b.keys()].sort(), [...weights.keys()].sort())
  for (const [name, weight] of a) close(t, valuesOf(b.get(name)!), valuesOf(weight), 2e-7, name)
  const shapes = async (at: string) =>
    [...(await readSafetensors(path.join(at, 'model.safetensors'))).tensors]
      .map(([name, { dtype, shape }]) => `${name} ${dtype} [${shape}]`)
      .sort()
  t.strictSame(await shapes(second), await shapes(path.join(root, 'ct_nvfp4a16')))
})

// The widest step of E2M1 is from 4 to 6: half of it is a sixth of the largest value of a block.
t.test('what others wrote is near the base', { skip: noGolden }, async t => {
  const weights = await baseWeights()
  for (const [id, limit] of [
    ...(['modelopt_nvfp4', 'modelopt_nvfp4_w4a16', 'ct_nvfp4', 'ct_nvfp4a16'] as const).map(
      id => [id, 1 / 6] as const,
    ),
    ['modelopt_fp8', 0.04],
    ['ct_fp8_dynamic', 0.04],
  ] as const) {
    const read = await readCheckpoint(path.join(root, id))
    t.strictSame([...read.keys()].sort(), [...weights.keys()].sort(), id)
    for (const [name, weight] of read) close(t, valuesOf(weight), weights.get(name)!.toFloat32(), limit, name)
  }
})

t.test('broken checkpoints and odd sizes', async t => {
  const values = (rows: number, cols: number) =>
    Tensor.from(uniform(randomGenerator(1), rows * cols), { shape: [rows, cols] })
  const folder = path.join(scratch, 'odd')
  const weights = new Map([
    ['a.weight', values(3, 32)],
    ['b.weight', values(3, 17)],
  ])
  const { quantized, excluded } = await writeCheckpoint(folder, weights)
  t.strictSame([quantized, excluded], [['a'], ['b']])
  const { tensors } = await readSafetensors(path.join(folder, 'model.safetensors'))
  const without = new Map([...tensors].filter(([name]) => !name.endsWith('scale_2')))
  await writeSafetensors(path.join(folder, 'model.safetensors'), without)
  await t.rejects(readCheckpoint(folder), { code: 'ERR_FORMAT', message: /a.weight_scale_2' is missing/ })
  writeFileSync(
    path.join(folder, 'model.safetensors.index.json'),
    '{"weight_map": {"a": "../b.safetensors"}}',
  )
  await t.rejects(readCheckpoint(folder), { code: 'ERR_FORMAT', message: /weight_map/ })
})
