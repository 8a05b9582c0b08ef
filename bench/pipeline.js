// pipeline.js: a model on two nodes of one thread each, two processes whose link is TLS over loopback, beside one node.
// latency: a run through both, beside the same stages in one process (goal: 1.05 times); throughput: runs that are asked for
// four at a time, beside one node (goal: 1.6 times, and 1.3 times where the second node computes with the slower instruction
// set `isa`, avx2 by default; the planner divides the layers then). In turns; medians, and the middle half of the ratios.
//   node bench/pipeline.js [rounds] [isa]
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import { Cluster, ClusterNode, modelCosts } from 'dgx-spark/cluster'
import { cutGraph } from '#lib/graph/rewrites/cut.js'

const [rows, width, layers] = [64, 2048, 8]
const script = fileURLToPath(import.meta.url)
const options = /** @type {const} */ ({ backend: 'cpu', precision: 'fp32', threads: 1 })

/** @param {string} home @param {string} name @param {number} port */
const nodeOptions = (home, name, port) => ({
  ...{
    home: path.join(home, name),
    name,
    port,
    host: '127.0.0.1',
    mdns: false,
    statePort: null,
    pressure: null,
  },
})

/** Layers of 0.5 GFLOP, 512 KiB between them. */
function graphOfLayers() {
  const g = new GraphBuilder()
  let h = g.input('x', 'f32', [rows, width])
  for (let i = 0; i < layers; i++) {
    const w = g.initializer(`w${i}`, Tensor.random([width, width], { seed: i, distribution: 'normal' }))
    h = g.add('Tanh', [g.add('MatMul', [h, w])])
  }
  g.output(h, 'y')
  return g.build()
}

/** @param {number[]} values @param {number} part */
const quantile = (values, part) => [...values].sort((a, b) => a - b)[Math.floor(part * (values.length - 1))]

/** Runs both in turns. @param {string} name @param {number} rounds @param {() => Promise<unknown>} one @param {() => Promise<unknown>} two */
async function compare(name, rounds, one, two) {
  /** @type {number[][]} */
  const times = [[], []]
  for (let i = 0; i < rounds + 2; i++) {
    for (const [side, work] of (i % 2 ? [one, two] : [two, one]).entries()) {
      const start = performance.now()
      await work()
      if (i >= 2) times[i % 2 ? side : 1 - side]?.push(performance.now() - start)
    }
  }
  const [a, b] = /** @type {[number[], number[]]} */ (times)
  const ratios = a.map((time, i) => /** @type {number} */ (b[i]) / time)
  const [low, middle, high] = [0.25, 0.5, 0.75].map(part => quantile(ratios, part)?.toFixed(3))
  console.log(
    `${name}: ${quantile(a, 0.5)?.toFixed(1)} ms, ${quantile(b, 0.5)?.toFixed(1)} ms; ratio ${middle} (${low} to ${high})`,
  )
}

/** @param {string} home @param {Record<string, string>} env of the second node @param {(node: ClusterNode) => Promise<void>} act */
async function onTwoNodes(home, env, act) {
  const node = await ClusterNode.start({ ...nodeOptions(home, 'first', 18433), create: 'bench' })
  const { code } = await node.invite(5)
  const second = fork(script, ['--node', home, code], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, ...env },
  })
  await once(second, 'message')
  try {
    await act(node)
  } finally {
    second.kill()
    await node.close()
  }
}

/** Eight runs, four at a time. @param {() => Promise<unknown>} run */
const eight = run => async () => {
  for (let i = 0; i < 2; i++) await Promise.all([run(), run(), run(), run()])
}

/** Two nodes that are alike. @param {ClusterNode} node @param {string} file @param {Model} whole @param {number} rounds */
async function measureHalves(node, file, whole, rounds) {
  const count = (await modelCosts(whole.graph)).layers.length
  const half = count >> 1
  const pins = [`0-${half - 1}=first`, `${half}-${count - 1}=second`]
  const model = await new Cluster(node).load(file, { ...options, nodes: 2, pins })
  const parts = await Promise.all(
    cutGraph(whole.graph, [model.stages[0].end]).map(stage => Model.fromGraph(stage, options)),
  )
  const x = Tensor.random([rows, width], { seed: 9 })
  const inOneProcess = async () => {
    let feeds = { x }
    for (const part of parts) {
      const results = await part.run(feeds)
      feeds = /** @type {any} */ (Object.fromEntries(part.outputs.map(({ name }) => [name, results[name]])))
    }
  }
  await compare('latency: stages in one process, on two nodes', rounds, inOneProcess, () => model.run({ x }))
  await compare(
    '8 runs: one node, two nodes',
    rounds,
    eight(() => whole.run({ x })),
    eight(() => model.run({ x })),
  )
  await model.dispose()
}

/** A second node that is slower. @param {ClusterNode} node @param {string} file @param {Model} whole @param {number} rounds */
async function measureUnlike(node, file, whole, rounds) {
  const model = await new Cluster(node).load(file, { ...options, nodes: 2, strategy: 'pipeline' })
  const parts = model.stages.map(({ from, end }) => end - from).join(' + ')
  const x = Tensor.random([rows, width], { seed: 9 })
  await compare(
    `8 runs: one node, with a slower one (${parts} nodes of the graph)`,
    rounds,
    eight(() => whole.run({ x })),
    eight(() => model.run({ x })),
  )
  await model.dispose()
}

const [flag, home, code] = process.argv.slice(2)
if (flag === '--node') {
  const at = { host: '127.0.0.1', port: 18433 }
  await ClusterNode.start({ ...nodeOptions(/** @type {string} */ (home), 'second', 18443), code, at })
  process.send?.('ready')
} else {
  const [rounds, isa] = [Number(flag ?? 20), home ?? 'avx2']
  const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-pipeline-'))
  const file = path.join(folder, 'model.onnx')
  const whole = await Model.fromGraph(graphOfLayers(), options)
  try {
    await whole.save(file, { externalData: true })
    console.log(`${cpus()[0]?.model}, ${cpus().length} cores, Node.js ${process.version}`)
    await onTwoNodes(path.join(folder, 'alike'), {}, node => measureHalves(node, file, whole, rounds))
    await onTwoNodes(path.join(folder, 'unlike'), { DGX_SPARK_CPU_ISA: isa }, node =>
      measureUnlike(node, file, whole, rounds),
    )
  } finally {
    whole.dispose()
    rmSync(folder, { recursive: true, force: true })
  }
}
