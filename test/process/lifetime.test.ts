// What a whole process shows: idle exit, memory in loops, garbage collection, workers that are terminated at any moment.
import t from 'tap'
import { runScript, scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { integrated } from '../fixtures/machines.js'

const head = `
  import { UnifiedBuffer } from 'dgx-spark'
  import { requireAddon } from '#lib/native.js'
  const print = value => console.log(JSON.stringify(value))
  const turn = () => new Promise(next => setTimeout(next, 10))
  const settled = async () => {
    for (let i = 0; i < 500 && UnifiedBuffer.stats().blocks > 0; ++i) { globalThis.gc?.(); await turn() }
    return UnifiedBuffer.stats().blocks
  }
`

t.test('an idle import exits by itself', async t => {
  for (const script of [
    `import 'dgx-spark'`,
    `${head} requireAddon()`,
    `${head} globalThis.kept = UnifiedBuffer.allocateSync(1 << 20).view(Uint8Array)`,
    `${head} UnifiedBuffer.allocate(1 << 20)`,
  ]) {
    t.match(await runScript(script), { code: 0, signal: null, stderr: '' }, script)
  }
})

t.test('a loop that never yields stays flat with dispose', async t => {
  const script = `${head}
    for (let i = 0; i < 200; ++i) {
      const buffer = UnifiedBuffer.allocateSync(64 << 20)
      buffer.view(Float32Array).fill(i, 0, 99991)
      buffer.view(Uint8Array, 1000, 7)
      buffer.dispose()
    }
    print(UnifiedBuffer.stats())`
  t.match(await scriptResult(script), { blocks: 0, bytes: { host: 0 }, peakBytes: 64 << 20 })
})

t.test('without dispose the garbage collector frees what nobody can reach', async t => {
  const script = `${head}
    let view = (() => UnifiedBuffer.allocateSync(4099).view(Uint8Array, 3))()
    for (let i = 0; i < 50; ++i) UnifiedBuffer.allocateSync(1 << 16).view(Float32Array)
    for (let i = 0; i < 50; ++i) { gc(); await turn() }
    view[4095] = 5
    const held = UnifiedBuffer.stats()
    view = undefined
    print({ held, after: await settled() })`
  t.match(await scriptResult(script, {}, ['--expose-gc']), {
    held: { blocks: 1, bytes: { host: 4099 } },
    after: 0,
  })
})

t.test('V8 hears of memory that has no view', async t => {
  const script = `${head}
    // Nothing but the size told to V8 makes it collect here.
    for (let i = 0; i < 150; ++i) { UnifiedBuffer.allocateSync(32 << 20); await turn() }
    print(UnifiedBuffer.stats().peakBytes < 150 * (32 << 20))`
  t.equal(await scriptResult(script), true)
})

t.test('indices that another thread changes after their check', async t => {
  const script = `${head}
    import { Worker } from 'node:worker_threads'
    const addon = requireAddon()
    const [count, classes] = [4096, 16]
    const shared = (type, length) => new type(new SharedArrayBuffer(length * type.BYTES_PER_ELEMENT))
    const [indices, labels, taps] = [shared(BigInt64Array, count), shared(Int32Array, count), shared(Int32Array, count)]
    const flip = ([indices, labels, taps]) => {
      for (let bad = false, at = labels.length - 1; ; bad = !bad) {
        indices[at] = bad ? 2n ** 40n : 0n
        labels[at] = taps[at] = bad ? 2 ** 30 : 0
        for (let i = 0; i < 300; ++i) Math.random()
      }
    }
    const worker = new Worker('import { workerData } from "node:worker_threads";(' + flip + ')(workerData)',
      { eval: true, workerData: [indices, labels, taps] })
    const floats = length => new Float32Array(length)
    const places = { dtype: 'f32', shape: [count], strides: [0], indices, indexStrides: [1], steps: [1], limits: [classes] }
    const [x, y, updates, loss] = [floats(classes), floats(count), floats(count), floats(1)]
    const sampled = { outer: 1, size: classes, inner: 1, out: count, count: 1, weights: floats(count), taps, x, y }
    const crossEntropy = { tokens: count, classes, logits: floats(count * classes), labels, loss, dlogits: floats(count * classes) }
    const tally = { done: 0, refused: 0 }
    for (const end = performance.now() + 3000; performance.now() < end; ) {
      for (const [op, args] of [
        ['gather', { ...places, x, y }],
        ['scatter', { ...places, fn: 'assign', updates, y: x }],
        ['resample', sampled],
        ['softmaxCrossEntropy', crossEntropy],
      ]) {
        try { addon.run(op, args); tally.done++ }
        catch (error) { if (error.code !== 'ERR_ARGUMENT') throw error; tally.refused++ }
      }
    }
    await worker.terminate()
    print(tally.done > 0 && tally.refused > 0)`
  t.equal(await scriptResult(script), true)
})

/** Takes the memory of an array away, as far as Node does it, so that a collection frees it at once. */
const loss = `
  import { Worker } from 'node:worker_threads'
  const attempt = (array, hand) => {
    try { hand(array.buffer) } catch (error) { if (error.name !== 'DataCloneError') throw error }
  }
  const drop = array => attempt(array, buffer => structuredClone(buffer, { transfer: [buffer] }))
  const hand = array => attempt(array, buffer => {
    new Worker('process.exit()', { eval: true, workerData: buffer, transferList: [buffer] })
  })
  const collect = async () => { for (let i = 0; i < 5; ++i) { gc(); await turn() } }`

t.test('operands that are handed on under a CPU job', async t => {
  const script = `${head} ${loss}
    const addon = requireAddon()
    const [size, tokens] = [2048, 512]
    const sums = []
    for (const lose of [drop, hand]) {
      for (const name of ['x', 'y', 'data']) {
        const args = { x: new Float32Array(tokens * size).fill(1), y: new Float32Array(tokens * size) }
        const weight = { format: 'f32', rows: size, cols: size, data: new Float32Array(size * size).fill(1) }
        const job = addon.runAsync('linear', { ...args, weight, tokens }).then(() => args.y[7], error => error.code)
        lose(args[name] ?? weight[name])
        await collect()
        sums.push(await job)
      }
    }
    print(sums)`
  t.strictSame(await scriptResult(script, {}, ['--expose-gc']), [
    2048,
    'ERR_DISPOSED',
    2048,
    2048,
    'ERR_DISPOSED',
    2048,
  ])
})

t.test('bound memory that is handed on under a run', async t => {
  const script = `${head} ${loss}
    import { Model } from 'dgx-spark'
    import { Constant } from '#lib/graph/constant.js'
    import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
    const [size, tokens] = [1024, 4096]
    const w = new Float32Array(size * size).fill(1)
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', ['N', size]) }],
      outputs: [{ name: 'y' }],
      nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
      initializers: new Map([['w', Constant.from('f32', [size, size], w)]]),
    })
    const model = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32' })
    const sums = []
    for (const lose of [drop, hand]) {
      for (const name of ['y', 'x', 'w']) {
        const arrays = { x: new Float32Array(tokens * size).fill(1), y: new Float32Array(tokens * size) }
        const bound = await model.bind(arrays)
        const run = bound.run()
        lose({ ...arrays, w }[name])
        await collect()
        await run
        sums.push(arrays.y[7])
      }
    }
    print(sums)`
  t.strictSame(await scriptResult(script, {}, ['--expose-gc']), Array(6).fill(1024))
})

const workerLoop = (rounds: number, job: string): string => `
  import { Worker } from 'node:worker_threads'
  ${head}
  const source = \`
    const { UnifiedBuffer } = await import('dgx-spark')
    const { requireAddon } = await import('#lib/native.js')
    const addon = requireAddon()
    const n = 10007
    const kept = []
    ${job}
    await start()
    const { parentPort } = await import('node:worker_threads')
    setTimeout(() => parentPort.postMessage('working'), 5)
    setInterval(() => {
      const buffer = UnifiedBuffer.allocateSync(1 << 16)
      kept.push(buffer, buffer.view(Float32Array))
      UnifiedBuffer.allocate(1 << 12).then(made => kept.push(made.view(Uint8Array)), () => {})
      for (let i = 0; i < 5; ++i) submit(buffer).catch(() => {})
      if (Math.random() < 0.3) buffer.dispose()
    }, 0)
  \`
  for (let round = 0; round < ${rounds}; ++round) {
    const worker = new Worker(\`(async () => { \${source} })()\`, { eval: true })
    await new Promise(next => worker.once('message', next))
    await new Promise(next => setTimeout(next, Math.random() * 25))
    await worker.terminate()
  }
  print(await settled())`

t.test('workers terminated with CPU jobs in flight', async t => {
  const job = `
    const start = async () => {}
    const submit = buffer => addon.supports('cpu', 'cast')
      ? addon.runAsync('cast', { srcDtype: 'f32', dstDtype: 'f16', count: n, saturate: false,
          src: buffer.view(Float32Array), dst: new Uint16Array(n) })
      : Promise.resolve()`
  t.equal(await scriptResult(workerLoop(60, job), {}, ['--expose-gc']), 0)
})

t.test('workers terminated with CUDA calls in flight', { skip: noCudaCalls }, async t => {
  const fakeDriver = new FakeDriver(['cuda'])
  t.teardown(() => fakeDriver.dispose())
  const job = `
    const start = () => addon.openDevice(0)
    const submit = async buffer => addon.runCuda(0, 'cast', { srcDtype: 'f32', dstDtype: 'f16', count: n,
      saturate: false, src: buffer.view(Float32Array), dst: new Uint16Array(n) })`
  const { env, lines } = machine(fakeDriver, { ...integrated, stream: { delay: 0.2 } })
  t.equal(await scriptResult(workerLoop(60, job), env, ['--expose-gc']), 0)
  t.ok(lines('launch').length >= 60, 'kernels were in flight')
  t.strictSame(lines('free in use'), [])
  t.strictSame(lines('bad'), [])
})
