// Many calls at once, from one thread and from two workers, and models side by side give what one call gives.
import { Worker } from 'node:worker_threads'
import { Model, Tensor } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import { gpuTests, uniform } from '../fixtures/gpu-suite/gpu.js'
import { transformer } from '../fixtures/models/transformer.js'

/** @param {number} index */
function product(index) {
  const [tokens, rows, cols] = [1 + (index % 7), 33 + index, 48 + (index % 5)]
  const weight = { format: /** @type {const} */ ('f32'), rows, cols, data: uniform(rows * cols, index + 1) }
  return { weight, tokens, x: uniform(tokens * cols, index + 100), y: new Float32Array(tokens * rows) }
}

/** Runs products on the GPU all at once; how many agree with the CPU. @param {number} count */
async function agreeing(count) {
  const cuda = await openKernels({ backend: 'cuda' })
  const cpu = await openKernels({ backend: 'cpu' })
  const calls = Array.from({ length: count }, (_, index) => product(index))
  await Promise.all(calls.map(call => cuda.run('linear', call)))
  const results = calls.map((call, index) => {
    const expected = product(index)
    cpu.runSync('linear', expected)
    return call.y.every((value, i) => Math.abs(value - (expected.y[i] ?? Number.NaN)) <= 1e-4)
  })
  return results.filter(Boolean).length
}

const worker = `
  const { parentPort, workerData } = await import('node:worker_threads')
  const { openKernels } = await import('dgx-spark/kernels')
  const { uniform } = await import(workerData)
  const product = ${product}
  const agreeing = ${agreeing}
  parentPort.postMessage(await agreeing(100))
`

/** @returns {Promise<number>} */
const inWorker = () =>
  new Promise((resolve, reject) => {
    const workerData = new URL('../fixtures/gpu-suite/gpu.js', import.meta.url).href
    const thread = new Worker(`(async () => { ${worker} })()`, { eval: true, workerData })
    thread.once('message', resolve)
    thread.once('error', reject)
  })

await gpuTests({
  '200 calls in flight': async t => t.same(await agreeing(200), 200, 'all agree with the CPU'),
  'two workers': async t =>
    t.same(await Promise.all([inWorker(), inWorker()]), [100, 100], 'all agree with the CPU'),
  'six models side by side, more than there are streams': async t => {
    const sizes = { layers: 2, width: 128, heads: 4, tokens: 33 }
    const hidden = Tensor.from(uniform(33 * 128, 5), { shape: [1, 33, 128] })
    const models = await Promise.all(
      Array.from({ length: 6 }, (_, seed) =>
        Model.fromGraph(transformer(sizes, seed + 1), { backend: 'cuda' }),
      ),
    )
    /** @param {Model} model */
    const outputOf = async model => (await model.run({ hidden })).output?.toFloat32()
    const alone = []
    for (const model of models) alone.push(await outputOf(model))
    // enqueued, captured and replayed
    for (let round = 0; round < 4; ++round)
      t.same(await Promise.all(models.map(outputOf)), alone, `round ${round}: what each gives alone`)
    for (const model of models) model.dispose()
  },
  'a worker that is terminated in the middle': async t => {
    const endless = `const { openKernels } = await import('dgx-spark/kernels')
      const kernels = await openKernels({ backend: 'cuda' })
      const data = new Float32Array(1 << 20)
      const weight = { format: 'f32', rows: 1024, cols: 1024, data }
      setInterval(() => { kernels.run('linear', { weight, tokens: 1024, x: data, y: new Float32Array(1 << 20) }) }, 0)
      require('node:worker_threads').parentPort.postMessage('working')`
    for (let round = 0; round < 5; ++round) {
      const thread = new Worker(`(async () => { ${endless} })()`, { eval: true })
      await new Promise(next => thread.once('message', next))
      await new Promise(next => setTimeout(next, 20 * round))
      await thread.terminate()
    }
    t.same(await agreeing(50), 50, 'and the next calls agree with the CPU')
  },
})
