// merge, quantize and adapter as a person calls them.
import { spawnSync } from 'node:child_process'
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Adapter, createAdapter, readCheckpoint, readPeftAdapter, Tensor, writePeftAdapter } from 'dgx-spark'
import t from 'tap'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { parseOnnx, readOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { adaptableGraph } from '../fixtures/models/adaptable-graph.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-cli-adapters-'))
t.teardown(() => rmSync(scratch, { recursive: true }))
const at = (name: string): string => path.join(scratch, name)

function cli(...args: string[]) {
  const env = { PATH: process.env.PATH!, HOME: process.env.HOME ?? '' }
  const result = spawnSync(process.execPath, ['--no-warnings', main, ...args], { encoding: 'utf8', env })
  return { ...result, json: () => JSON.parse(result.stdout) }
}

t.before(async () => {
  writeFileSync(at('model.onnx'), serializeOnnx(adaptableGraph()))
  const graph = canonicalise(parseOnnx(readFileSync(at('model.onnx'))))
  for (const [seed, name] of ['a', 'b'].entries()) {
    const adapter = await createAdapter(graph, { targetModules: ['fc1', 'c1'], rank: 2, init: false, seed })
    await adapter.save(at(name))
  }
  // As `a`, with biases of their own: of an adapted layer, and of another one.
  for (const [name, value] of [
    ['c', 1],
    ['d', 2],
  ] as const) {
    const { config, modules, extra, metadata } = await readPeftAdapter(at('a'))
    const bias = (count: number) => Tensor.from(Array(count).fill(value))
    const raw = { ...config.raw, bias: 'all', target_modules: ['fc1'] }
    await writePeftAdapter(at(name), {
      config: { ...config, raw },
      modules: new Map([['fc1', { ...modules.get('fc1')!, bias: bias(7) }]]),
      extra: new Map([...extra, ['c1.bias', bias(8)]]),
      metadata: metadata!,
    })
  }
})

t.test('adapter info and diff', async t => {
  const info = cli('adapter', 'info', at('a'), '--json').json()
  t.match(info, { kind: 'DoRA', parameters: 2 * (7 + 5) + 7 + 2 * (8 + 9) + 8 })
  t.match(info, { dropout: 0, modulesToSave: [], baseModel: null, task: null, peftVersion: '0.21.0' })
  t.strictSame(info.modules.map(({ name }: { name: string }) => name).sort(), ['c1', 'fc1'])
  const text = cli('adapter', 'info', at('a'), '--model', at('model.onnx'))
  t.equal(text.status, 0, text.stderr)
  t.match(text.stdout, /DoRA, scale alpha \/ rank.*fc1.*2 modules, .* % of the bytes/s)
  t.equal(cli('adapter', 'diff', at('a'), at('a')).status, 0)
  const diff = cli('adapter', 'diff', at('a'), at('b'), '--json')
  t.equal(diff.status, 1)
  const [row] = diff.json()
  t.equal(row.settings, 'equal')
  t.ok(row.a > 0.5 && row.b > 0.5 && row.update > 0.5)
  t.match(cli('adapter', 'diff', at('a'), at('b')).stdout, /B·A.*fc1.*equal.*\d\.\d\de.*rounding/s)
  const replaced = cli('adapter', 'diff', at('c'), at('d'), '--json')
  t.equal(replaced.status, 1)
  t.match(replaced.json(), [
    { name: 'fc1', a: 0, b: 0, magnitude: 0, replaced: 1 },
    { name: 'c1.bias', settings: 'equal', replaced: 1 },
  ])
  t.equal(cli('adapter', 'diff', at('c'), at('c')).status, 0)
  const missing = cli('adapter', 'info', at('nothing'))
  t.equal(missing.status, 1)
  t.match(missing.stderr, /adapter_config.json.*ERR_IO/)
})

t.test('adapter info names what PEFT saved beside the layers', async t => {
  const { config, modules, metadata } = await readPeftAdapter(at('a'))
  const named = {
    base_model_name_or_path: 'base/model',
    task_type: 'SEQ_CLS',
    lora_dropout: 0.25,
    modules_to_save: ['score'],
  }
  const extra = new Map([['score.weight', Tensor.zeros([3, 4])]])
  const training = JSON.stringify({ loss: 'mse', steps: 30, data: { samples: 64 } })
  const recorded = new Map([...metadata!, ['dgx_spark.training', training]])
  const whole = {
    config: { ...config, raw: { ...config.raw, ...named } },
    modules,
    extra,
    metadata: recorded,
  }
  await writePeftAdapter(at('saved'), whole)
  const { stdout, stderr } = cli('adapter', 'info', at('saved'))
  t.match(stdout, /parameters +85,.*dropout +0\.25.*to save +score.*base\/model.*SEQ_CLS.*0\.21\.0/s, stderr)
  t.match(stdout, /score\.weight.*replaced.*12/)
  t.match(stdout, /trained with\n +loss +mse\n +steps +30\n +data +\{"samples":64\}/)
  t.match(cli('adapter', 'info', at('saved'), '--json').json(), {
    parameters: 73 + 12,
    replaced: [{ name: 'score.weight', parameters: 12 }],
    modulesToSave: ['score'],
    training: { loss: 'mse', steps: 30 },
  })
})

t.test('adapter diff compares what adapters compute', async t => {
  const { config, modules, metadata } = await readPeftAdapter(at('a'))
  const { a, b, magnitude, ...rest } = modules.get('fc1')!
  const [rows, columns] = [a.toFloat32(), b.toFloat32()]
  // The same update in other factors: the two ranks swapped, and a third one that adds nothing.
  const swapped = [...rows.slice(5, 10), ...rows.slice(0, 5), ...rows.slice(0, 5)]
  const others = Array.from({ length: 7 }, (_, row) => [columns[2 * row + 1]!, columns[2 * row]!, 0]).flat()
  const write = (name: string, alpha: number) =>
    writePeftAdapter(at(name), {
      config: { ...config, raw: { ...config.raw, r: 3, lora_alpha: alpha, target_modules: ['fc1'] } },
      modules: new Map([
        [
          'fc1',
          {
            ...rest,
            magnitude: magnitude!,
            rank: 3,
            alpha,
            a: Tensor.from(Float32Array.from(swapped), { shape: [3, 5] }),
            b: Tensor.from(Float32Array.from(others), { shape: [7, 3] }),
          },
        ],
      ]),
      extra: new Map(),
      metadata: metadata!,
    })
  const scale = config.loraAlpha / config.r
  await write('same', 3 * scale)
  await write('double', 6 * scale)
  const rowOf = (run: ReturnType<typeof cli>) =>
    run.json().find(({ name }: { name: string }) => name === 'fc1')
  const same = rowOf(cli('adapter', 'diff', at('a'), at('same'), '--json'))
  t.match(same, { name: 'fc1', a: null, b: null, magnitude: 0 })
  t.ok(same.update < 1e-6, String(same.update))
  const double = cli('adapter', 'diff', at('same'), at('double'), '--json')
  t.ok(Math.abs(rowOf(double).update - 1) < 1e-6)
  t.equal(double.status, 1)
})

t.test('adapters that replace the same bias are not merged', async t => {
  const { status, stderr } = cli('merge', at('model.onnx'), at('c'), at('d'), '-o', at('none.onnx'))
  t.equal(status, 1)
  t.match(stderr, /'c' and 'd' both replace 'c1.bias': they cannot be combined \[ERR_UNSUPPORTED\]/)
  t.notOk(existsSync(at('none.onnx')))
  t.equal(cli('merge', at('model.onnx'), at('a'), at('d'), '-o', at('both.onnx')).status, 0)
})

t.test('merge', async t => {
  const { status, stdout, stderr } = cli('merge', at('model.onnx'), at('a'), at('b'), '-o', at('merged.onnx'))
  t.equal(status, 0, stderr)
  t.match(stdout, /a: .* parameters in 2 modules.*b: .*weights +.* -> .* \(100 %\).*read by.*wrote /s)
  const base = canonicalise(await readOnnx(at('model.onnx')))
  const [a, b] = [await Adapter.load(base, at('a')), await Adapter.load(base, at('b'))]
  const { mergeAdapters } = await import('#lib/dora/model/merge.js')
  const expected = (await mergeAdapters(base, [a, b])).graph.initializers.get('fc1.weight')!.bytes
  const merged = await readOnnx(at('merged.onnx'))
  t.strictSame(merged.initializers.get('fc1.weight')!.bytes, expected)
  t.equal(cli('merge', at('model.onnx'), at('a')).status, 2, 'an output is required')
})

t.test('the model itself is not written over unless asked for', async t => {
  copyFileSync(at('model.onnx'), at('copy.onnx'))
  symlinkSync(at('copy.onnx'), at('link.onnx'))
  const before = readFileSync(at('copy.onnx'))
  for (const args of [
    ['merge', at('copy.onnx'), at('a'), '-o', at('copy.onnx')],
    ['quantize', at('copy.onnx'), '--format', 'fp8', '-o', at('link.onnx')],
  ]) {
    t.match(cli(...args), { status: 2, stderr: /is the model itself: give another name, or --overwrite/ })
  }
  t.strictSame(readFileSync(at('copy.onnx')), before)
  t.equal(cli('merge', at('copy.onnx'), at('a'), '-o', at('copy.onnx'), '--overwrite').status, 0)
  t.notSame(readFileSync(at('copy.onnx')), before)
})

t.test('quantize', async t => {
  const onnx = cli('quantize', at('model.onnx'), '--format', 'fp8', '-o', at('fp8.onnx'), '--json')
  t.equal(onnx.status, 0, onnx.stderr)
  const { quantized, losses, before, bytes, fileBytes } = onnx.json()
  t.strictSame(quantized, ['fc1.weight', 'onnx::MatMul_7', 'onnx::Gemm_9', 'tied.weight'])
  t.equal(statSync(at('fp8.onnx')).size, fileBytes)
  t.ok(bytes < before)
  // Three bits of mantissa: the relative error of a rounded number is at most 1/16.
  for (const name of quantized) t.ok(losses[name] > 0.001 && losses[name] < 1 / 16, `${name} ${losses[name]}`)
  const text = cli(
    'quantize',
    at('model.onnx'),
    '--format',
    'fp8',
    '-o',
    at('fp8.onnx'),
    '--keep',
    'fc1.weight',
  )
  t.match(
    text.stdout,
    /onnx::Gemm_9 .*\d %.*weights +.* -> .*read by +dgx-spark, ONNX Runtime.*3 matrices in fp8/s,
  )
  t.notMatch(text.stdout, 'fc1.weight')
  t.equal((await readOnnx(at('fp8.onnx'))).initializers.get('fc1.weight')!.dtype, 'f32')
  const unknown = cli('quantize', at('model.onnx'), '-o', at('x.onnx'), '--keep', 'fc1.wieght')
  t.match(unknown, {
    status: 2,
    stderr: /--keep fc1\.wieght: the model has no such weight \(did you mean 'fc1\.weight'\?\)/,
  })
  const folder = cli('quantize', at('model.onnx'), '--layout', 'modelopt', '-o', at('checkpoint'), '--json')
  t.equal(folder.status, 0, folder.stderr)
  t.ok(existsSync(at('checkpoint/hf_quant_config.json')))
  t.ok((await readCheckpoint(at('checkpoint'))).has('h.0.fc2.weight'))
  for (const loss of Object.values<number>(folder.json().losses))
    t.ok(loss > 0.01 && loss < 0.3, String(loss))
  t.equal(
    cli('quantize', at('model.onnx'), '--layout', 'modelopt', '--format', 'fp8', '-o', at('x')).status,
    2,
  )
})
