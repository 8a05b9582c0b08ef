// What callers may hand in by mistake: nothing but a SparkError comes out, and the process lives. Detached, shared and
// resizable memory, disposal during a run, signals at any moment.
import { setImmediate as turn } from 'node:timers/promises'
import { inspect } from 'node:util'
import {
  ArrayDataset,
  cast,
  compare,
  createAdapter,
  DoRALinear,
  dequantizeFP8,
  dequantizeNVFP4,
  encode,
  Model,
  openData,
  parseSafetensors,
  quantizeFP8,
  quantizeNVFP4,
  readCheckpoint,
  readEvents,
  readPeftAdapter,
  readSafetensors,
  reportPage,
  SparkError,
  serializeSafetensors,
  Tensor,
  tensorFromRecord,
  UnifiedBuffer,
  writePeftAdapter,
  writeReport,
  writeSafetensors,
} from 'dgx-spark'
import { decodeWeight, holdWeight, storeWeight, weightBytes } from 'dgx-spark/kernels'
import t, { type Test } from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../fixtures/backends.js'
import { detached, oddValues, resizable, shared, takeAway, transfer } from '../fixtures/values/odd-values.js'
import { randomGenerator } from '../fixtures/values/random.js'

const sample = Float32Array.of(1, 2, 3)

/** y = relu(x · w), and x itself. */
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', ['N', 3]) }],
  outputs: [{ name: 'y' }],
  nodes: [makeNode('MatMul', ['x', 'w'], ['p']), makeNode('Relu', ['p'], ['y'])],
  initializers: new Map([['w', Constant.f32([1, 2, 3, 4, 5, 6], [3, 2])]]),
})
const bytes = serializeOnnx(graph)
const through = serializeOnnx({ ...graph, outputs: [...graph.outputs, { name: 'x' }] })

/** Calls with a place for an odd value. */
type Calls = Readonly<Record<string, (odd: never) => unknown>>

async function refuses(t: Test, calls: Calls): Promise<void> {
  for (const [name, call] of Object.entries(calls)) {
    for (const odd of oddValues(sample)) {
      try {
        await call(odd as never)
      } catch (error) {
        if (error instanceof SparkError) continue
        t.fail(`${name}, given ${inspect(odd, { depth: 0 })}: ${(error as Error).stack}`)
      }
    }
    t.pass(name)
  }
}

for (const backend of backends) {
  t.test(`models on ${backend}`, async t => {
    using model = await Model.load(through, { backend })
    using bindable = await Model.load(bytes, { backend })
    await refuses(t, {
      load: odd => Model.load(odd),
      'load, options': odd => Model.load(bytes, odd),
      'load, backend': odd => Model.load(bytes, { backend: odd }),
      'load, precision': odd => Model.load(bytes, { backend, precision: odd }),
      'load, batchSize': odd => Model.load(bytes, { backend, batchSize: odd }),
      'load, recipe': odd => Model.load(bytes, { backend, recipe: odd }),
      'load, device': odd => Model.load(bytes, { backend, device: odd }),
      fromGraph: odd => Model.fromGraph(odd),
      run: odd => model.run(odd),
      'run, x': odd => model.run({ x: odd }),
      'run, options': odd => model.run({ x: sample }, odd),
      'run, signal': odd => model.run({ x: sample }, { signal: odd }),
      profile: odd => model.profile(odd),
      'profile, runs': odd => model.profile({ x: sample }, { runs: odd }),
      bind: odd => bindable.bind(odd),
      'bind, x': async odd => {
        using bound = await bindable.bind({ x: odd })
        await bound.run()
      },
      'bind, y': async odd => {
        using bound = await bindable.bind({ x: sample, y: odd })
        await bound.run()
      },
      save: async odd => typeof odd === 'string' || model.save(odd),
      'compare, a': odd => compare(odd, model, [{ x: sample }]),
      'compare, b': odd => compare(model, odd, [{ x: sample }]),
      'compare, data': odd => compare(model, model, odd),
    })
  })

  t.test(`memory that goes away on ${backend}`, async t => {
    using model = await Model.load(through, { backend })
    using bindable = await Model.load(bytes, { backend })
    const gone = {
      code: 'ERR_DISPOSED',
      message: "feeds['x'] lies in memory that has been detached or disposed",
    }
    await t.rejects(model.run({ x: detached(sample) }), gone)
    const x = sample.slice()
    const runs = [model.run({ x: Tensor.from(x, { shape: [1, 3] }) }), model.run({ x })]
    transfer(x)
    for (const run of runs) t.same((await run).y!.toArray(), [[22, 28]], 'a run has its own copy')
    t.equal(x.length, 0, 'which the caller may hand on')
    const [inside, outside] = [shared(sample), shared(new Float32Array(2))]
    using bound = await bindable.bind({ x: inside, y: outside })
    await bound.run()
    t.same([...outside], [22, 28], 'memory that threads share')
    const input = sample.slice()
    using taken = await bindable.bind({ x: input })
    transfer(input)
    await taken.run()
    t.same(taken.outputs.y!.toArray(), [[22, 28]], 'memory that is bound cannot be transferred')
    if (takeAway(input)) await t.rejects(taken.run(), { code: 'ERR_DISPOSED' })
    if (backend === 'cpu') {
      await t.rejects(bindable.bind({ x: resizable(sample) }), {
        code: 'ERR_ARGUMENT',
        message: /lies in a resizable ArrayBuffer; copy it/,
      })
    }
    const { y } = await bindable.run({ x: resizable(sample) })
    t.same(y!.toArray(), [[22, 28]], 'a run copies')
  })

  t.test(`disposal and signals at any moment on ${backend}`, async t => {
    const random = randomGenerator(17)
    for (let round = 0; round < 40; round++) {
      const model = await Model.load(bytes, { backend })
      const controller = new AbortController()
      const rows = 1 + Math.floor(random() * 4000)
      const runs = Array.from({ length: 3 }, () =>
        model.run({ x: new Float32Array(3 * rows).fill(1) }, { signal: controller.signal }),
      )
      const settled = Promise.allSettled(runs)
      for (let i = Math.floor(random() * 4); i > 0; i--) await turn()
      if (random() < 0.5) controller.abort(new Error('enough'))
      if (random() < 0.7) model.dispose()
      for (const result of await settled) {
        if (result.status === 'fulfilled') t.equal(result.value.y!.data.at(-1), 12)
        else t.match(String(result.reason), /enough/)
      }
      model.dispose()
    }
  })
}

t.test('tensors', async t => {
  const x = Tensor.from(
    [
      [1, 2, 3],
      [4, 5, 6],
    ],
    { backend: 'js' },
  )
  const methods = [
    'add',
    'sub',
    'mul',
    'div',
    'pow',
    'matmul',
    'softmax',
    'sum',
    'mean',
    'max',
    'transpose',
  ] as const
  const methodsOf = x as unknown as Record<string, (odd: never) => unknown>
  await refuses(t, {
    from: odd => Tensor.from(odd),
    'from, options': odd => Tensor.from([1], odd),
    'from, shape': odd => Tensor.from([1], { shape: odd }),
    'from, dtype': odd => Tensor.from([1], { dtype: odd }),
    ...Object.fromEntries(
      (['i64', 'bool', 'f16', 'f4'] as const).map(dtype => [
        dtype,
        (odd: never) => Tensor.from(odd, { dtype }),
      ]),
    ),
    zeros: odd => Tensor.zeros(odd),
    'zeros, dtype': odd => Tensor.zeros([1], odd),
    reshape: odd => x.reshape(odd),
    to: odd => x.to(odd),
    ...Object.fromEntries(methods.map(name => [name, (odd: never) => methodsOf[name]!(odd)])),
    'sum, axes': odd => x.sum({ axes: odd }),
    'sum, keepDims': odd => x.sum({ keepDims: odd }),
    'odd data': async odd => Tensor.from(odd).add(1),
  })
  const ends = Tensor.from([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN], { dtype: 'i64' })
  t.same(ends.data, BigInt64Array.of(2n ** 63n - 1n, -(2n ** 63n), 0n))
  await t.rejects(x.sum({ axis: [0] } as never), { code: 'ERR_ARGUMENT', message: /has no option 'axis'/ })
})

t.test('files, weights and memory', async t => {
  const path = (call: (file: never) => unknown) => async (odd: never) => typeof odd === 'string' || call(odd)
  await refuses(t, {
    readSafetensors: path(readSafetensors),
    writeSafetensors: path(file => writeSafetensors(file, {})),
    parseSafetensors,
    serializeSafetensors,
    tensorFromRecord: odd => tensorFromRecord('x', odd),
    readPeftAdapter: path(readPeftAdapter),
    writePeftAdapter: odd => writePeftAdapter(odd, odd),
    readCheckpoint: path(readCheckpoint),
    readEvents: path(readEvents),
    reportPage,
    writeReport: path(file => writeReport(file, [])),
    openData: path(openData),
    ArrayDataset: odd => new ArrayDataset(odd),
    'ArrayDataset, field': odd => new ArrayDataset({ x: odd }),
    cast: odd => cast(sample, 'f32', odd),
    encode: odd => encode(odd, 'f16'),
    quantizeFP8: odd => quantizeFP8(odd, [1, 3]),
    'quantizeFP8, shape': odd => quantizeFP8(sample, odd),
    dequantizeFP8,
    quantizeNVFP4: odd => quantizeNVFP4(odd, [1, 16]),
    dequantizeNVFP4,
    storeWeight: odd => storeWeight(odd, odd),
    decodeWeight,
    weightBytes,
    holdWeight: odd => holdWeight(odd, odd),
    createAdapter: odd => createAdapter(odd, { rank: 1, targetModules: ['w'] }),
    'createAdapter, options': odd => createAdapter(graph, odd),
    ...(backends.includes('cpu') && {
      view: (odd: never) => UnifiedBuffer.allocateSync(64).view(odd),
      'view, offset': (odd: never) => UnifiedBuffer.allocateSync(64).view(Float32Array, odd),
      read: (odd: never) => UnifiedBuffer.allocateSync(64).read(odd),
      write: (odd: never) => UnifiedBuffer.allocateSync(64).write(odd),
    }),
  })
})

t.test('layers', async t => {
  const weight = Tensor.from([
    [1, 2, 3],
    [4, 5, 6],
  ])
  const layer = await DoRALinear.fromLinear({ weight }, { rank: 2, backend: backends.at(-1)! })
  await refuses(t, {
    fromLinear: odd => DoRALinear.fromLinear(odd, { rank: 1 }),
    'fromLinear, weight': odd => DoRALinear.fromLinear({ weight: odd }, { rank: 1 }),
    'fromLinear, bias': odd => DoRALinear.fromLinear({ weight, bias: odd }, { rank: 1 }),
    'fromLinear, options': odd => DoRALinear.fromLinear({ weight }, odd),
    'fromLinear, rank': odd => DoRALinear.fromLinear({ weight }, { rank: odd }),
    forward: odd => layer.forward(odd),
    'forward, data': odd => layer.forward(Tensor.from(odd, { shape: [1, 3] })),
    'forward, options': odd => layer.forward(weight, odd),
    forwardSync: odd => layer.forwardSync(odd),
    backward: odd => layer.backward(odd),
    setActive: odd => layer.setActive(odd),
    removeAdapter: odd => layer.removeAdapter(odd),
  })
})
