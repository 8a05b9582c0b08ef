// Adapters of whole models: which layers, first values, files, merging, several at once.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { AdaptedModel, Adapter, createAdapter, readSafetensors, Tensor, writeSafetensors } from 'dgx-spark'
import t, { type Test } from 'tap'
import { resetWarnings } from '#lib/core/log.js'
import { findModules } from '#lib/dora/model/find-modules.js'
import { ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { quantizeWeights } from '#lib/graph/rewrites/quantize-weights.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../../fixtures/backends.js'
import { close, identical, maxAbs } from '../../fixtures/close.js'
import { adaptableGraph, inputsOf } from '../../fixtures/models/adaptable-graph.js'
import { runOnnxRuntime } from '../../fixtures/onnx-runtime.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

interface Refusal {
  code: string
  message: RegExp
}

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-adapter-'))
t.teardown(() => rmSync(scratch, { recursive: true }))
const graph = adaptableGraph()
const everything = { targetModules: '.*', rank: 4 } as const

/** An adapter with values that matter. */
async function trained(seed: number, base: Graph = graph): Promise<Adapter> {
  const adapter = await createAdapter(base, { ...everything, init: false, seed })
  const random = randomGenerator(seed + 7)
  for (const name of adapter.parameters.filter(name => name.endsWith('magnitude_vector'))) {
    const lengths = adapter.read(name)
    const factors = uniform(random, lengths.length)
    adapter.write(
      name,
      lengths.map((length, i) => length * (1 + 0.5 * factors[i]!)),
    )
  }
  return adapter
}

const arrays = async (model: AdaptedModel, rows: number, options = {}) => {
  const outputs = await model.run(inputsOf(rows), options)
  return Object.entries(outputs).map(([name, { data }]) => [name, data as Float32Array] as const)
}

t.test('layers and their names', async t => {
  const modules = findModules(graph).map(({ name, kind, rows, cols }) => [name, kind, rows, cols])
  t.strictSame(modules, [
    ['emb', 'embedding', 6, 11],
    ['c1', 'conv', 8, 9],
    ['c2', 'conv', 5, 18],
    ['fc1', 'linear', 7, 5],
    ['h.0.fc2', 'linear', 9, 5],
    ['h.1.fc3', 'linear', 3, 5],
    ['tied', 'linear', 5, 5],
  ])
  const adapter = await createAdapter(graph, everything)
  const counts = modules.map(([, , rows, cols]) => 4 * (Number(rows) + Number(cols)) + Number(rows))
  t.equal(
    adapter.parameterCount,
    counts.reduce((a, b) => a + b),
  )
  t.match(String(adapter), /7 modules/)
  t.equal(adapter.parameters.length, 21)
})

for (const backend of backends) {
  t.test(`${backend}: a new adapter changes nothing, a trained one equals its merge`, async t => {
    using model = new AdaptedModel(graph, { backend })
    const base = await arrays(model, 3)
    for (const init of [true, 'gaussian'] as const) {
      model.add(`new ${init}`, await createAdapter(graph, { ...everything, init, backend }))
      const adapted = await arrays(model, 3, { adapters: `new ${init}` })
      for (const [i, [name, y]] of adapted.entries()) close(t, y, base[i]![1], 2e-6, `${init} ${name}`)
    }
    const adapter = await trained(3)
    model.add('trained', adapter)
    const { graph: merged, losses } = await adapter.merge({ backend })
    t.ok([...losses.values()].every(loss => loss === 0))
    using plain = new AdaptedModel(merged, { backend })
    const expected = await arrays(plain, 3)
    for (const [i, [name, y]] of (await arrays(model, 3, { adapters: 'trained' })).entries()) {
      close(t, y, expected[i]![1], 2e-6, name)
      t.ok(maxAbs(y.map((value, at) => value - base[i]![1][at]!)) > 0.05, `${name} is another`)
    }
  })

  t.test(`${backend}: adapters combined, switched, mixed, disabled, unloaded`, async t => {
    using model = new AdaptedModel(graph, { backend })
    model.add('a', await trained(3))
    model.add('b', await trained(4))
    const rows = ['a', null, 'b', ['a', 'b'], 'a'] as const
    const mixed = await arrays(model, 5, { rows })
    for (const [row, adapters] of rows.entries()) {
      const alone = await arrays(model, 5, { adapters })
      for (const [i, [name, y]] of alone.entries()) {
        const width = y.length / 5
        const part = (values: Float32Array) => values.subarray(row * width, (row + 1) * width)
        identical(t, part(mixed[i]![1]), part(y), `row ${row} of ${name}`)
      }
    }
    const backwards = await arrays(model, 5, { adapters: ['b', 'a'] })
    const forwards = await arrays(model, 5, { adapters: ['a', 'b'] })
    t.ok(
      forwards.some(([, y], i) => y.some((value, at) => value !== backwards[i]![1][at])),
      'order counts',
    )
    model.setActive('a')
    t.throws(() => model.unload('a'), { code: 'ERR_ARGUMENT', message: /'a' is active/ })
    const active = await arrays(model, 5)
    const named = await arrays(model, 5, { adapters: 'a' })
    for (const [i, [name, y]] of active.entries()) identical(t, y, named[i]![1], name)
    model.setActive(null)
    model.unload('a')
    t.strictSame(model.names, ['b'])
    await t.rejects(model.run(inputsOf(5), { adapters: 'a' }), { message: /no adapter 'a'; it has: b/ })
    const unknown = { rows: [null, 'b', 'b', 'b', undefined as never] }
    await t.rejects(model.run(inputsOf(5), unknown), {
      code: 'ERR_ARGUMENT',
      message: /adapters must be a name/,
    })
    await t.rejects(model.run(inputsOf(5), { rows: ['b'] }), { code: 'ERR_SHAPE', message: /1 entries/ })
    const [first, second] = await Promise.all([arrays(model, 5), arrays(model, 5, { adapters: 'b' })])
    t.notSame(first, second, 'runs at once wait for each other')
  })
}

t.test('the merged model in ONNX Runtime', async t => {
  const adapter = await trained(5)
  const { graph: merged } = await adapter.merge()
  const inputs = inputsOf(3)
  const feeds = new Map(
    Object.entries(inputs).map(([name, { shape, data }]) => {
      return [name, Constant.from(name === 'ids' ? 'i64' : 'f32', shape, data)]
    }),
  )
  const expected = await runOnnxRuntime(serializeOnnx(merged), feeds)
  using model = new AdaptedModel(graph)
  model.add('adapter', adapter)
  for (const [name, y] of await arrays(model, 3, { adapters: 'adapter' })) {
    close(t, y, expected[name]!.data as Float32Array, 1e-5, name)
  }
})

t.test('files', async t => {
  const adapter = await trained(6)
  for (const [dtype, tolerance] of [
    ['f32', 0],
    ['bf16', 2 ** -8],
    ['f16', 2 ** -11],
  ] as const) {
    const folder = path.join(scratch, dtype)
    await adapter.save(folder, { dtype, baseModel: 'digits' })
    const again = await Adapter.load(graph, folder)
    t.strictSame(again.parameters, adapter.parameters)
    t.equal(again.name, dtype)
    for (const name of adapter.parameters) {
      const limit = name.endsWith('vector') ? 0 : tolerance
      close(t, again.read(name), adapter.read(name), limit, `${dtype} ${name}`)
    }
    const config = JSON.parse(readFileSync(path.join(folder, 'adapter_config.json'), 'utf8'))
    t.match(config, {
      r: 4,
      use_dora: true,
      base_model_name_or_path: 'digits',
      target_modules: [...adapter.modules].map(({ name }) => name),
    })
  }
  const { metadata, tensors } = await readSafetensors(path.join(scratch, 'f32', 'adapter_model.safetensors'))
  t.match(metadata.get('dgx_spark.base.fc1'), /^[0-9a-f]{64}$/)
  t.equal(metadata.get('format'), 'pt')
  await t.rejects(Adapter.load(adaptableGraph(2), path.join(scratch, 'f32')), {
    code: 'ERR_FORMAT',
    message: /made for another base: the weight of '\w+' has a different sha256/,
  })
  await Adapter.load(adaptableGraph(2), path.join(scratch, 'f32'), { checkBase: false })

  const damaged = async (t: Test, key: string, changed: object | undefined, expected: Refusal) => {
    const file = path.join(scratch, 'f16', 'adapter_model.safetensors')
    const copy = new Map(tensors)
    const name = `base_model.model.${key}`
    if (changed) copy.set(name, { ...copy.get(name)!, ...changed })
    else copy.delete(name)
    await writeSafetensors(file, copy)
    await t.rejects(Adapter.load(graph, path.dirname(file)), expected)
  }
  const doubled = new Map(tensors)
  for (const [key, value] of tensors) doubled.set(key.replace('.fc1.', '.model.fc1.'), value)
  await writeSafetensors(path.join(scratch, 'f16', 'adapter_model.safetensors'), doubled)
  await t.rejects(Adapter.load(graph, path.join(scratch, 'f16')), {
    code: 'ERR_FORMAT',
    message: /'fc1' and 'model.fc1' are the same layer/,
  })
  await damaged(t, 'fc1.lora_magnitude_vector', undefined, { code: 'ERR_FORMAT', message: /fc1.*is missing/ })
  await damaged(
    t,
    'fc1.lora_A.weight',
    { shape: [4, 6], data: new Float32Array(24) },
    { code: 'ERR_SHAPE', message: /A and B of 'fc1' are \[4, 6\].*needs \[4, 5\]/ },
  )
  await damaged(
    t,
    'c1.lora_A.weight',
    { shape: [4, 6, 3], data: new Float32Array(72) },
    { code: 'ERR_SHAPE', message: /A and B of 'c1'/ },
  )
})

t.test('ranks, scales and layers', async t => {
  const adapter = await createAdapter(graph, {
    targetModules: ['fc1', 'fc2', 'fc3'],
    rank: 4,
    alpha: 8,
    rslora: true,
    rankPattern: { 'h\\.\\d+\\.fc2': 2 },
    alphaPattern: { fc3: 3 },
  })
  const scales = adapter.modules.map(({ name, rank, scale }) => [name, rank, scale])
  t.strictSame(scales, [
    ['fc1', 4, 4],
    ['h.0.fc2', 2, Math.fround(8 / Math.SQRT2)],
    ['h.1.fc3', 4, 1.5],
  ])
  const linear = await createAdapter(graph, { targetModules: 'all-linear' })
  t.strictSame(
    linear.modules.map(({ name }) => name),
    ['fc1', 'h.0.fc2', 'h.1.fc3', 'tied'],
  )
  const parts = await createAdapter(graph, { targetModules: ['h.'], match: 'substring', rank: 2 })
  t.strictSame(
    parts.modules.map(({ name }) => name),
    ['h.0.fc2', 'h.1.fc3'],
  )
  await parts.save(path.join(scratch, 'parts'))
  t.equal((await Adapter.load(graph, path.join(scratch, 'parts'))).modules.length, 2)
})

t.test('what cannot be', async t => {
  resetWarnings()
  const warnings: string[] = []
  const listen = (warning: Error) => warnings.push(`${warning.name}: ${warning.message}`)
  process.on('warning', listen)
  await createAdapter(graph, { targetModules: ['fc1', 'fc9'], rankPattern: { nothing: 3 } })
  await new Promise(resolve => setImmediate(resolve))
  process.off('warning', listen)
  t.match(warnings, [/DgxSparkWarning: rankPattern 'nothing' matches no module/, /targetModules 'fc9'/])

  const fails = (options: object, message: RegExp) =>
    t.rejects(createAdapter(graph, { targetModules: ['fc1'], ...options }), { code: 'ERR_ARGUMENT', message })
  await fails({ targetModules: ['fc_1'] }, /matches none of the 7 layers.*similar names: fc1/)
  await fails({ targetModules: 3 }, /targetModules must be a string or a list/)
  await fails({ targetModules: '(' }, /targetModules: Invalid regular expression/)
  await fails({ ranks: 3 }, /no option 'ranks'/)
  await fails({ rank: 0 }, /rank/)
  await fails({ rankPattern: { fc1: 0.5 } }, /rankPattern\['fc1'\]/)
  const adapter = await createAdapter(graph, everything)
  t.throws(() => adapter.read('fc1'), { code: 'ERR_ARGUMENT', message: /no parameter 'fc1'; it has: emb/ })
  t.throws(() => adapter.write('fc1.lora_A', new Float32Array(3)), {
    code: 'ERR_SHAPE',
    message: /20 values, got 3/,
  })
  adapter.write('fc1.lora_B', new Float32Array(28).fill(Number.NaN))
  await t.rejects(adapter.merge(), { code: 'ERR_NOT_FINITE', message: /'fc1' is NaN in row 0, column 0/ })
  using model = new AdaptedModel(adaptableGraph())
  t.throws(() => model.add('other', adapter), { code: 'ERR_ARGUMENT', message: /another model/ })
  model.dispose()
  await t.rejects(model.run(inputsOf(1)), { code: 'ERR_DISPOSED' })
})

for (const format of ['nvfp4', 'fp8'] as const) {
  t.test(`a base in ${format}`, async t => {
    const random = randomGenerator(9)
    const wide = (shape: readonly number[]) =>
      Constant.from('f32', shape, uniform(random, shape[0]! * shape[1]!))
    const weights = new Map([
      ['fc1.weight', wide([7, 48])],
      ['onnx::MatMul_7', wide([48, 9])],
    ])
    const nodes = graph.nodes
      .filter(({ inputs }) => weights.has(inputs[1]!))
      .map(node => ({ ...node, inputs: ['x', node.inputs[1]!] }))
    const [outputs] = [nodes.map(node => ({ name: node.outputs[0]! }))]
    const inputs = [{ name: 'x', type: { kind: 'tensor', dtype: 'f32', shape: ['N', 48] } as const }]
    const base = quantizeWeights({ ...graph, nodes, outputs, inputs, initializers: weights }, { format })
    const adapter = await trained(8, base)
    t.strictSame(
      adapter.modules.map(({ name }) => name),
      ['fc1', 'h.0.fc2'],
    )
    await adapter.save(path.join(scratch, format))
    const again = await Adapter.load(base, path.join(scratch, format))
    const { graph: merged, losses, unmerge } = await again.merge()
    const x = { x: Tensor.from(uniform(random, 5 * 48), { shape: [5, 48] }) }
    using model = new AdaptedModel(base, { backend: 'js' })
    model.add('adapter', adapter)
    const plain = await model.run(x)
    const exact = await model.run(x, { adapters: 'adapter' })
    model.add('new', await createAdapter(base, { ...everything, backend: 'js' }))
    for (const adapters of [
      ['adapter', 'new'],
      ['new', 'adapter'],
    ]) {
      for (const [name, { data }] of Object.entries(await model.run(x, { adapters }))) {
        close(
          t,
          data as Float32Array,
          exact[name]!.data as Float32Array,
          2e-6,
          `${adapters}: nothing is rounded`,
        )
      }
    }
    using rounded = new AdaptedModel(merged, { backend: 'js' })
    const limit = format === 'fp8' ? 0.05 : 0.2
    for (const [name, { data }] of Object.entries(await rounded.run(x))) {
      close(t, data as Float32Array, exact[name]!.data as Float32Array, limit, name)
      t.notSame(data, plain[name]!.data, 'the adapter is not lost')
    }
    for (const loss of losses.values()) t.ok(loss > 0.001 && loss < limit, `loss ${loss}`)
    t.equal(unmerge(), base)
    t.strictSame(merged.nodes, base.nodes, 'the format stays')
  })
}

t.test('a table whose transpose is the last layer has one adapter for both', async t => {
  resetWarnings()
  const random = randomGenerator(11)
  const nodes = [
    makeNode('Gather', ['wte.weight', 'ids'], ['h']),
    makeNode('Transpose', ['wte.weight'], ['head'], { attributes: { perm: ints([1, 0]) } }),
    makeNode('MatMul', ['h', 'head'], ['y'], { name: '/lm_head/MatMul' }),
  ]
  const ids = tensorType('i64', ['n', 3])
  const table = Constant.from('f32', [7, 4], uniform(random, 28))
  const base = makeGraph({
    nodes,
    inputs: [{ name: 'ids', type: ids }],
    outputs: [{ name: 'y' }],
    initializers: new Map([['wte.weight', table]]),
  })
  const warnings: string[] = []
  const listen = (warning: Error) => warnings.push(warning.message)
  process.on('warning', listen)
  const adapter = await trained(3, base)
  await new Promise(resolve => setImmediate(resolve))
  process.off('warning', listen)
  t.strictSame(warnings, [])
  t.strictSame(
    adapter.modules.map(({ name, kind }) => [name, kind]),
    [['wte', 'embedding']],
  )
  const { graph: merged } = await adapter.merge()
  const rows = merged.initializers.get('wte.weight')!.data as Float32Array
  const expected = [2, 0, 6].flatMap(id =>
    Array.from({ length: 7 }, (_, other) =>
      [0, 1, 2, 3].reduce((sum, i) => sum + rows[id * 4 + i]! * rows[other * 4 + i]!, 0),
    ),
  )
  using model = new AdaptedModel(base, { backend: 'js' })
  model.add('adapter', adapter)
  const feeds = { ids: Tensor.of(BigInt64Array.of(2n, 0n, 6n), [1, 3], 'i64') }
  const { y } = await model.run(feeds, { adapters: 'adapter' })
  close(t, y!.data as Float32Array, expected, 2e-6, 'both read the adapted table')
})

t.test('an adapter of rank 4 is below 1 % of matrices of 1024', async t => {
  const weight = uniform(randomGenerator(1), 1024 * 1024)
  const [node] = graph.nodes.slice(3)
  const base: Graph = {
    ...graph,
    nodes: [node!],
    initializers: new Map([['fc1.weight', Constant.from('f32', [1024, 1024], weight)]]),
  }
  const adapter = await createAdapter(base, { targetModules: ['fc1'], rank: 4 })
  t.ok(adapter.shareOfBase < 0.01, `${adapter.shareOfBase}`)
  await adapter.save(path.join(scratch, 'large'))
  const bytes = readFileSync(path.join(scratch, 'large', 'adapter_model.safetensors')).byteLength
  t.ok(bytes < 0.01 * 4 * 1024 * 1024, `${bytes} bytes`)
})
