// What a whole process shows: idle exit, memory in loops, garbage collection, workers that are terminated at any moment.
import t from 'tap'
import { runScript, scriptResult } from '../fixtures/child.js'
import { machine } from '../fixtures/machine-log.js'
import { integrated } from '../fixtures/machines.js'
import { noCudaCalls, StandIn } from '../fixtures/stand-in/stand-in.js'

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
  const standIn = new StandIn(['cuda'])
  t.teardown(() => standIn.dispose())
  const job = `
    const start = () => addon.openDevice(0)
    const submit = async buffer => addon.runCuda(0, 'cast', { srcDtype: 'f32', dstDtype: 'f16', count: n,
      saturate: false, src: buffer.view(Float32Array), dst: new Uint16Array(n) })`
  const { env, lines } = machine(standIn, { ...integrated, stream: { delay: 0.2 } })
  t.equal(await scriptResult(workerLoop(60, job), env, ['--expose-gc']), 0)
  t.ok(lines('launch').length >= 60, 'kernels were in flight')
  t.strictSame(lines('free in use'), [])
  t.strictSame(lines('bad'), [])
})
