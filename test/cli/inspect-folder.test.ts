// inspect of folders with safetensors: tables, the JSON document, the memory of a context.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { writeSafetensors } from 'dgx-spark'
import t, { type Test } from 'tap'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { blockExport } from '../fixtures/text/block-export.js'
import { exportedDecoder } from '../fixtures/text/exported-decoder.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')

function inspect(...args: string[]) {
  const result = spawnSync(process.execPath, ['--no-warnings', main, 'inspect', ...args], {
    encoding: 'utf8',
  })
  return { ...result, json: () => JSON.parse(result.stdout) }
}

/** A folder with tensors of 3 layers, and a configuration. */
async function write(t: Test, config: object | undefined): Promise<string> {
  const folder = t.testdir({})
  const matrix = { dtype: 'F32', shape: [8, 6], data: new Float32Array(48) } as const
  const names = [0, 1, 2].map(i => `model.layers.${i}.mlp.up_proj.weight`)
  await writeSafetensors(path.join(folder, 'model.safetensors'), {
    ...Object.fromEntries(names.map(name => [name, matrix])),
    'model.norm.weight': { dtype: 'F16', shape: [6], data: new Uint16Array(6) },
  })
  if (config) writeFileSync(path.join(folder, 'config.json'), JSON.stringify(config))
  return folder
}

const llama = {
  ...{ model_type: 'llama', hidden_size: 64, intermediate_size: 128, vocab_size: 99, rms_norm_eps: 1e-5 },
  ...{ num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 512 },
}

t.test('a folder, its formats and the memory of a context', async t => {
  const folder = await write(t, llama)
  const { memory, ...rest } = inspect(folder, '--json', '--context', '100').json()
  const weightBytes = 3 * 48 * 4 + 12
  const cacheBytes = 3 * 2 * 2 * 16 * 100 * 2 // layers, keys and values, heads, their size, tokens, f16
  t.strictSame(memory, { context: 100, weightBytes, cacheBytes, totalBytes: weightBytes + cacheBytes })
  t.match(rest, { kind: 'safetensors', architecture: 'llama', quantization: null, parameters: 150 })
  t.strictSame(rest.formats.F16, { tensors: 1, parameters: 6, bytes: 12 })
  const { stdout, status } = inspect(folder)
  t.equal(status, 0)
  t.match(stdout, /cache of 512 tokens .* in f16/)
  t.match(stdout, /model\.layers\.\*\.mlp\.up_proj\.weight .*\[8, 6\] .* F32 .* 3 /)
})

t.test('folders of which less is known', async t => {
  for (const [config, note] of [
    [undefined, /unknown: there is no config\.json/],
    [{ model_type: 'nonsense' }, /unknown: .*nonsense/],
  ] as const)
    t.match(inspect(await write(t, config)), { status: 0, stdout: note })
  const packed = await write(t, { ...llama, quantization_config: { quant_method: 'gptq' } })
  t.match(inspect(packed).stdout, /quantization +gptq\n.*elements in the files/)
  t.match(inspect(packed, '--profile'), { status: 2, stderr: /--profile is for ONNX models; a folder takes/ })
  t.match(inspect(t.testdir({})), { status: 1, stderr: /model\.safetensors.*\[ERR_IO\]/ })
})

t.test('a folder of ONNX: its weights as they are held', async t => {
  const sizes = { vocabulary: 258, hidden: 64, heads: 4, kvHeads: 2, headSize: 16, context: 64 }
  const { quantized } = blockExport(exportedDecoder({ attention: 'softmax', sizes }), { bits: 4, block: 32 })
  const folder = t.testdir({})
  writeFileSync(path.join(folder, 'model_q4.onnx'), serializeOnnx(quantized))
  const config = { model_type: 'llama', max_position_embeddings: 64, num_attention_heads: 4, hidden_size: 64 }
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify({ ...config, num_key_value_heads: 2 }))
  const { memory, ...rest } = inspect(folder, '--json').json()
  const parameters = 64 * (258 + 64 + 64 + 32 + 32 + 64 + 258)
  const bytes = (parameters * 21) / 32
  t.strictSame(rest.formats.u4_32, { tensors: 7, parameters, bytes })
  t.match(rest, { kind: 'onnx', file: 'model_q4.onnx', architecture: 'llama' })
  t.equal(memory.cacheBytes, 2 * 2 * 16 * 64 * 2)
  t.ok(memory.weightBytes >= bytes && memory.weightBytes < 1.05 * bytes)
  t.match(inspect(folder).stdout, /weights .* in memory, 5\.\d+ bits a parameter/)
  writeFileSync(path.join(folder, 'model_q4.onnx'), 'nothing')
  t.match(inspect(folder), { status: 1, stderr: /model_q4\.onnx/ })
})
