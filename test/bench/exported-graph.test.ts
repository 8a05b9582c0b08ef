// Models as files for peers: PyTorch makes of them what we make of the models, where a Python with torch is found
// (DGX_SPARK_PYTHON, or python3).
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { readSafetensors, Tensor } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { exportGraph } from '../../bench/exported-graph.js'
import { exportModel, modelSources, peeredModels } from '../../bench/model-sources.js'
import type { PeerRow } from '../../bench/torch-peers.js'

const python = process.env.DGX_SPARK_PYTHON ?? 'python3'
const hasTorch = spawnSync(python, ['-c', 'import torch, safetensors'], { stdio: 'ignore' }).status === 0
const hasPeft = spawnSync(python, ['-c', 'import peft'], { stdio: 'ignore' }).status === 0
const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-exported-'))
t.teardown(() => rmSync(scratch, { recursive: true }))

/** What a script of bench/peers answers for a row. */
function ask(script: string, about: object): PeerRow[] {
  const input = JSON.stringify({ device: 'cpu', threads: 1, cpuTime: true, cases: [about] })
  const { status, stdout, stderr } = spawnSync(python, [path.resolve('bench/peers', script)], {
    input,
    encoding: 'utf8',
    env: { ...process.env, OMP_NUM_THREADS: '1' },
  })
  if (status !== 0) throw new Error(stderr)
  return stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as PeerRow)
}

t.test('the files of a graph', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', 3, 5]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Shape', ['x'], ['sizes']),
      makeNode('Gather', ['sizes', 'first'], ['n']),
      makeNode('Concat', ['n', 'rest'], ['shape'], { attributes: { axis: int(0) } }),
      makeNode('Reshape', ['x', 'shape'], ['rows']),
      makeNode('Softmax', ['rows'], ['y'], { attributes: { axis: int(1) } }),
    ],
    initializers: new Map([
      ['first', Constant.i64([0])],
      ['rest', Constant.i64([15])],
    ]),
  })
  const x = Tensor.from(
    Float32Array.from({ length: 105 }, (_, i) => i),
    { shape: [7, 3, 5] },
  )
  await exportGraph(graph, { x }, { y: x.reshape([7, 15]) }, scratch)
  t.strictSame(JSON.parse(readFileSync(path.join(scratch, 'graph.json'), 'utf8')), {
    inputs: ['x'],
    outputs: ['y'],
    nodes: [
      { op: 'Reshape', inputs: ['x', 'shape'], outputs: ['rows'], attributes: {} },
      { op: 'Softmax', inputs: ['rows'], outputs: ['y'], attributes: { axis: 1 } },
    ],
  })
  const { tensors } = await readSafetensors(path.join(scratch, 'weights.safetensors'))
  t.strictSame([...tensors.keys()], ['shape'], 'arithmetic with shapes is done')
  t.strictSame([...tensors.get('shape')!.data], [7n, 15n])
  const feeds = await readSafetensors(path.join(scratch, 'feeds.safetensors'))
  t.strictSame(feeds.tensors.get('x')!.data, x.data)
  const ours = { ...graph, nodes: [makeNode('Odd', ['x'], ['y'], { domain: 'dgx.spark' })] }
  await t.rejects(exportGraph(ours, { x }, {}, scratch), /dgx\.spark::Odd is not an operator of ONNX/)
  await t.rejects(exportModel('nobody'), /no model 'nobody'/)
})

const noTorch = !hasTorch && 'no Python with torch and safetensors: set DGX_SPARK_PYTHON'
t.test('PyTorch agrees with our kernels', { skip: noTorch }, async t => {
  const names = modelSources().map(({ name }) => name)
  for (const name of peeredModels.filter(name => names.includes(name))) {
    const { folder, dispose } = await exportModel(name)
    const about = { name: 'models', shape: name, dtype: 'f32', folder, compiles: false }
    // Sums of f16 are rounded in another order.
    const tolerance = name === 'driving_policy' ? 1e-2 : 1e-4
    const [row] = ask('graph_peer.py', { ...about, tolerance })
    t.match(row, { shape: name, peer: 'PyTorch, eager', error: undefined, medianMs: Number }, name)
    await dispose()
    t.notOk(existsSync(folder))
  }
})

t.test('what is not interpreted or differs is named and not timed', { skip: noTorch }, async t => {
  const x = Tensor.from([1, 2, 3])
  const rowsOf = async (op: string, y: Tensor): Promise<PeerRow[]> => {
    const folder = mkdtempSync(path.join(scratch, 'one-node-'))
    const inputs = [{ name: 'x', type: tensorType('f32', [3]) }]
    const graph = makeGraph({ inputs, outputs: [{ name: 'y' }], nodes: [makeNode(op, ['x'], ['y'])] })
    await exportGraph(graph, { x }, { y }, folder)
    const about = { name: 'models', shape: op, dtype: 'f32', folder, compiles: false, tolerance: 1e-4 }
    return ask('graph_peer.py', about)
  }
  t.match(await rowsOf('Neg', Tensor.from([-1, -2, -3])), [{ peer: 'PyTorch, eager', error: undefined }])
  t.match(await rowsOf('Det', x), [{ shape: 'Det', error: 'NotImplementedError: the operator Det' }])
  t.match(await rowsOf('Neg', Tensor.from([-1, -2, -3.01])), [
    { error: /^AssertionError: output y: relative/ },
  ])
  t.match(await rowsOf('Neg', Tensor.from([-1, -2])), [{ error: /^AssertionError: output y: relative/ }])
})

const noPeft = !hasPeft && 'no Python with PEFT: set DGX_SPARK_PYTHON'
t.test('a training step in PEFT', { skip: noPeft }, t => {
  const about = { name: 'training step', shape: 'B3 r2', dtype: 'f32', tokens: 3, rank: 2, compiles: false }
  t.match(ask('peft_peer.py', about), [{ peer: 'PEFT, eager', error: undefined, medianMs: Number }])
  t.end()
})
