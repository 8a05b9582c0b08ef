// main.js: two nodes of a cluster in one process: the second joins with a code, they measure their link and tell each other their
// devices, and each has half of a model. Usage: node examples/cluster/main.js [port of the first node] [port of the second]
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import { Cluster, ClusterNode, modelCosts } from 'dgx-spark/cluster'

/** @import { ClusterState } from 'dgx-spark/cluster' */

// Nodes join the first one at the port behind its own.
const [firstPort, secondPort] = [process.argv[2] ?? 17433, process.argv[3] ?? 17443].map(Number)
const folder = await mkdtemp(path.join(tmpdir(), 'dgx-spark-cluster-'))

/** What both have in common: links on loopback only, no multicast, no page of the state. @param {string} name @param {number} port */
const options = (name, port) => ({
  ...{ home: path.join(folder, name), name, port, host: '127.0.0.1' },
  ...{ mdns: false, statePort: null },
})

/**
 * Resolves when the state of a node is as it should be.
 * @param {ClusterNode} node @param {(state: ClusterState) => boolean} isSo
 */
const until = (node, isSo) =>
  /** @type {Promise<void>} */ (
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('it takes longer than 30 s')), 30_000)
      const look = () => {
        if (!isSo(node.state)) return
        clearTimeout(timer)
        unlisten()
        resolve()
      }
      const unlisten = node.events.listen(look)
      look()
    })
  )

/** Writes a model of eight layers, and returns how many parts it can be cut into. @param {string} file */
async function writeModel(file) {
  const g = new GraphBuilder()
  let h = g.input('x', 'f32', ['n', 256])
  for (let i = 0; i < 8; i++) {
    const w = g.initializer(`w${i}`, Tensor.random([256, 256], { seed: i, distribution: 'normal' }))
    h = g.add('Tanh', [g.add('MatMul', [h, w])])
  }
  g.output(h, 'y')
  const graph = g.build()
  const model = await Model.fromGraph(graph)
  await model.save(file)
  model.dispose()
  return (await modelCosts(graph)).layers.length
}

/** @type {ClusterNode[]} */
const nodes = []
try {
  const first = await ClusterNode.start({ ...options('first', firstPort), create: 'example' })
  nodes.push(first)
  const { code, until: expires } = await first.invite(5)
  console.log(`a code for one node, until ${expires.toISOString()}`)

  const peers = [`${first.address.host}:${first.address.port}`]
  const second = await ClusterNode.start({ ...options('second', secondPort), code, at: first.address, peers })
  nodes.push(second)
  await until(first, ({ nodes }) => nodes.every(({ isOnline }) => isOnline) && nodes.length === 2)
  await until(first, ({ links }) => links.some(({ rtt, bandwidth }) => rtt && bandwidth))
  await until(first, ({ devices }) => new Set(devices.map(({ nodeId }) => nodeId)).size === 2)

  const { cluster, devices, links } = first.state
  const names = new Map(first.state.nodes.map(({ id, name }) => [id, name]))
  console.log(`${cluster.name}: ${[...names.values()].join(', ')}`)
  for (const {
    nodeId,
    transport,
    rtt,
    bandwidth,
    class: { kind },
  } of links) {
    const rate = bandwidth && `${((bandwidth.p50 * 8) / 1e9).toFixed(1)} Gb/s`
    console.log(`link to ${names.get(nodeId)}: ${transport}, ${kind}, ${rtt?.p50Ms.toFixed(2)} ms, ${rate}`)
  }
  for (const { nodeId, model, state } of devices) console.log(`${names.get(nodeId)}: ${model}, ${state}`)

  const file = path.join(folder, 'model.onnx')
  const layers = await writeModel(file)
  const half = layers >> 1
  const pins = [`0-${half - 1}=first`, `${half}-${layers - 1}=second`]
  const model = await new Cluster(first).load(file, { nodes: 2, pins })
  const x = Tensor.random([4, 256], { seed: 9 })
  const { y } = await model.run({ x })
  const alone = await Model.load(file, { precision: 'fp32' })
  const expected = await alone.run({ x })
  const isEqual = `${y.data}` === `${expected.y.data}`
  console.log(`${model.stages.map(({ nodeId }) => names.get(nodeId)).join(' → ')}: equal ${isEqual}`)
  alone.dispose()
  await model.dispose()
} finally {
  for (const node of nodes) await node.close()
  await rm(folder, { recursive: true })
}
