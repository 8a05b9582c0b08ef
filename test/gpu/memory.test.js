// Memory on a real GPU: every kind of UnifiedBuffer under a kernel, hints, nothing left behind after 1,000 rounds.
import { DoRALinear, GpuMonitor, Tensor, UnifiedBuffer } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import { eventually, gpuTests, uniform } from '../fixtures/gpu-suite/gpu.js'

/** @import { MemoryKind } from 'dgx-spark' */
/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

const count = 100_003

/** Memory in use on the GPU in bytes, or null where the driver does not tell. */
const used = async () => (await new GpuMonitor().sample()).memory.used

/** A kernel that reads and writes memory of one kind. @param {Claims} t @param {MemoryKind} kind */
async function kernelOver(t, kind) {
  const kernels = await openKernels({ backend: 'cuda' })
  const source = await UnifiedBuffer.allocate(4 * count, { kind })
  const target = await UnifiedBuffer.allocate(4 * count + 4, { kind })
  t.same([source.kind, target.kind], [kind, kind], 'is of the kind that was asked for')
  const src = source.view(Float32Array)
  src.set(uniform(count, 1))
  const dst = target.view(Float32Array).subarray(1)
  await kernels.run('cast', { srcDtype: 'f32', dstDtype: 'f32', count, saturate: false, src, dst })
  t.close(dst, src, 0, 'a kernel reads and writes it')
  t.same(target.view(Float32Array)[0], 0, 'and nothing beside it')
  source.copyTo(target, { targetOffset: 4 })
  t.close(target.view(Float32Array, 4), src, 0, 'a copy arrives')
  source.dispose()
  target.dispose()
}

/** One round of everything that allocates. */
async function round() {
  const buffer = await UnifiedBuffer.allocate(1 << 20)
  const layer = await DoRALinear.fromLinear(
    { weight: Tensor.from(buffer.view(Float32Array, 0, 33 * 48), { shape: [33, 48] }) },
    { backend: 'cuda', rank: 2 },
  )
  await layer.forward(Tensor.zeros([3, 48]), { training: true })
  await layer.backward(Tensor.zeros([3, 33]))
  layer.dispose()
  buffer.dispose()
}

await gpuTests({
  'managed memory': async t => {
    const auto = await UnifiedBuffer.allocate(16)
    auto.dispose()
    if (auto.kind !== 'managed') return t.skip('under a kernel', `this device has ${auto.kind} memory only`)
    await kernelOver(t, 'managed')
  },
  'pinned memory': t => kernelOver(t, 'pinned'),
  'host memory': t => kernelOver(t, 'host'),
  hints: async t => {
    const buffer = await UnifiedBuffer.allocate(4 * count)
    const view = buffer.view(Float32Array)
    view.set(uniform(count, 2))
    for (const place of /** @type {const} */ (['gpu', 'cpu'])) {
      t.ok(buffer.prefetch(place) === (buffer.kind === 'managed'), `prefetch to the ${place}`)
      buffer.advise('preferredLocation', place)
    }
    t.close(view, uniform(count, 2), 0, 'change no value')
    buffer.dispose()
  },
  '1,000 rounds leave nothing behind': async t => {
    for (let i = 0; i < 50; ++i) await round()
    await eventually(() => UnifiedBuffer.stats().blocks === 0)
    const before = await used()
    for (let i = 0; i < 1000; ++i) await round()
    t.ok(await eventually(() => UnifiedBuffer.stats().blocks === 0), 'every block is freed')
    const after = await used()
    if (before === null || after === null) return t.skip('memory of the GPU', 'the driver does not tell')
    t.ok(after - before <= 16 << 20, 'memory of the GPU is what it was', `${before} before, ${after} after`)
  },
})
