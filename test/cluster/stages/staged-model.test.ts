// Files of stages on the node that has them already: as they were when they were offered, or fetched.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { join } from '#lib/cluster/communicators/join.js'
import { StageHost } from '#lib/cluster/stages/stage-host.js'
import { fetchStage, StagedModel } from '#lib/cluster/stages/staged-model.js'
import type { Grant } from '#lib/cluster/trust/token-gate.js'
import { fileSource } from '#lib/cluster/weights/sources.js'
import { WeightStore } from '#lib/cluster/weights/weight-store.js'
import type { Graph } from '#lib/graph/graph.js'
import { relativeDistance } from '../../fixtures/cluster/ranks.js'
import { writeRecurrent } from '../../fixtures/cluster/recurrent.js'

const width = 24
const signal = new AbortController().signal

/** A model with its weights in a file beside it, in a store. */
async function offered(t: Test) {
  const folder = t.testdir({ a: {}, b: {} })
  const file = path.join(folder, 'a', 'model.onnx')
  await writeRecurrent(file, { layers: 1, width, externalData: true })
  const store = await WeightStore.open(path.join(folder, 'weights'))
  t.teardown(() => store.close())
  const staged = await StagedModel.open(file, store)
  const parts = staged.partsOf([staged.graph], [], 0, new Map())
  const weights = path.join(folder, 'a', parts.files[1]!.manifest.name)
  const overwrite = (target: string): void => writeFileSync(target, readFileSync(weights).reverse())
  const fetched = (): ReturnType<typeof fetchStage> =>
    fetchStage(parts, [], store, path.join(folder, 'stage'), { signal })
  return { folder, file, store, staged, parts, weights, overwrite, fetched }
}

async function resultOf(graph: Graph): Promise<unknown> {
  using model = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32', threads: 1 })
  const { y } = await model.run({ x: Tensor.random([1, width], { seed: 3 }), s0: Tensor.zeros([1, width]) })
  return (y as Tensor).data
}

t.test('files that are there are used where they are', async t => {
  const { fetched, staged } = await offered(t)
  const { graph, fetched: bytes } = await fetched()
  t.equal(bytes, 0)
  t.strictSame(await resultOf(graph), await resultOf(staged.graph))
})

t.test('a file that was overwritten since is not used', async t => {
  const { fetched, weights, overwrite } = await offered(t)
  overwrite(weights)
  await t.rejects(fetched(), { code: 'ERR_IO' })
})

t.test('files of equal content in another folder do not bring other weights with them', async t => {
  const { folder, file, store, staged, weights, overwrite, fetched } = await offered(t)
  const copy = path.join(folder, 'b', 'model.onnx')
  writeFileSync(copy, readFileSync(file))
  overwrite(path.join(folder, 'b', path.basename(weights)))
  await store.addFile(copy)
  const { graph } = await fetched()
  t.strictSame(await resultOf(graph), await resultOf(staged.graph))
})

t.test('a rank fetches the chunks that hold its part of the weights', async t => {
  const [inner, world] = [16384, 2]
  const folder = t.testdir({})
  const g = new GraphBuilder()
  const x = g.input('x', 'f32', [2, 256])
  const weight = (name: string, seed: number): string =>
    g.initializer(name, Tensor.random([inner, 256], { seed }))
  const a = g.add('Gemm', [x, weight('up', 1)], { transB: 1 })
  g.output(g.add('MatMul', [a, weight('down', 2)]), 'y')
  using whole = await Model.fromGraph(g.build(), { backend: 'cpu', precision: 'fp32', threads: 1 })
  const file = path.join(folder, 'model.onnx')
  await whole.save(file, { externalData: true })
  const store = await WeightStore.open(path.join(folder, 'weights'))
  t.teardown(() => store.close())
  const staged = await StagedModel.open(file, store)
  const communicators = await Promise.all(
    [0, 1].map(rank => join({ kind: 'local', name: 'fetched', epoch: 1, rank, world })),
  )
  const results = await Promise.all(
    communicators.map(async (communicator, rank) => {
      const own = await WeightStore.open(path.join(folder, `weights-${rank}`))
      t.teardown(() => own.close())
      const parts = staged.partsOf([staged.graph], [], 0, new Map(), { rank, world })
      const sources = await Promise.all(
        parts.files.map(({ manifest }) => fileSource(path.join(folder, manifest.name), manifest)),
      )
      const stage = path.join(folder, `stage-${rank}`)
      const { graph, fetched, bytes } = await fetchStage(parts, sources, own, stage, { signal })
      const { bytes: total, chunkBytes } = parts.files[1]!.manifest
      t.equal(fetched, bytes)
      t.ok(fetched <= total / 2 + 2 * chunkBytes, `${fetched} of ${total} bytes`)
      using model = await Model.fromGraph(graph, { backend: 'cpu', threads: 1, communicator })
      const { y } = await model.run({ x: Tensor.random([2, 256], { seed: 3 }) })
      await communicator.leave()
      return y as Tensor<never>
    }),
  )
  const { y } = await whole.run<Tensor<never>>({ x: Tensor.random([2, 256], { seed: 3 }) })
  for (const result of results) t.ok(relativeDistance(result, y!) < 1e-5)
})

t.test('a token pays for the weights that a stage has, whatever bytes its asker names', async t => {
  const { folder, store, parts } = await offered(t)
  const options = { folder: path.join(folder, 'stages'), store, sources: () => [], ranks: () => undefined }
  const host = new StageHost(options)
  t.teardown(() => host.close())
  const files = parts.files.map(({ manifest }) => ({ manifest, ranges: [] }))
  const words = { op: 'load', stage: 's', parts: { ...parts, files }, options: { token: 'a' } }
  let paid = 0
  const allocate = (bytes: number) => {
    paid += bytes
    return () => {}
  }
  const grant = { signal, claims: {}, step() {}, allocate } as unknown as Grant
  await host.answer('x', { words, tensors: {} }, signal, { admit: async () => grant })
  t.ok(paid >= width * width * 4, `${paid}`)
})

t.test('a token is asked for the GPU that a stage is on', async t => {
  const { folder, store, parts } = await offered(t)
  const gpuOf = async () => 'GPU-2'
  const host = new StageHost({
    ...{ folder: path.join(folder, 'stages'), store, sources: () => [], ranks: () => undefined, gpuOf },
  })
  t.teardown(() => host.close())
  const asked: unknown[] = []
  const grant = {
    ...{ signal, claims: {} },
    step: (...step: unknown[]) => asked.push(step),
    allocate: (_: number, gpu: unknown) => {
      asked.push(['allocate', gpu])
      return () => {}
    },
  } as unknown as Grant
  const load = { op: 'load', stage: 's', parts, options: { token: 'a', backend: 'cpu' } }
  await host.answer('x', { words: load, tensors: {} }, signal, { admit: async () => grant })
  const run = { op: 'run', stage: 's', step: 0, quiet: false }
  const tensors = { x: Tensor.zeros([1, width]), s0: Tensor.zeros([1, width]) }
  await host.answer('x', { words: run, tensors }, signal, { admit: async () => grant })
  t.strictSame(asked, [['model:load'], ['allocate', 'GPU-2'], ['gpu:compute', 'GPU-2']])
})
