// A GPU while it computes, as NVML measures it.
import { GpuMonitor, HardwareInfo } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import { gpuTests } from '../fixtures/gpu-suite/gpu.js'

await gpuTests({
  'a GPU record': async t => {
    const gpu = (await HardwareInfo.detect()).gpus.find(gpu => gpu.vendor === 'nvidia')
    t.ok(gpu && !gpu.problem, 'has no problem', gpu?.problem ?? 'no GPU')
    t.ok(/^\d+\.\d+$/.test(gpu?.computeCapability ?? ''), 'has a compute capability')
    t.ok((gpu?.memory.total ?? 0) > 2 ** 30, 'has memory')
  },
  'samples under load': async t => {
    const kernels = await openKernels({ backend: 'cuda' })
    const monitor = new GpuMonitor({ intervalMs: 100 })
    const size = 1024
    const [x, y] = [new Float32Array(size * size).fill(1), new Float32Array(size * size)]
    const weight = { format: /** @type {const} */ ('f32'), rows: size, cols: size, data: x }
    monitor.start()
    for (const end = performance.now() + 1500; performance.now() < end; ) {
      await Promise.all(
        Array.from({ length: 8 }, () => kernels.run('linear', { weight, tokens: size, x, y })),
      )
    }
    await monitor.stop()
    const { gpu, temperature, power, clocks, processes, utilization, memory } = await monitor.sample()
    const values = { temperature, power, sm: clocks.sm, utilization, used: memory.used }
    for (const [name, value] of Object.entries(values)) {
      if (value === null) t.skip(name, 'the driver does not tell')
      else t.ok(Number.isFinite(value) && value >= 0, `${name} is ${value}`)
    }
    t.ok(gpu.uuid, 'the GPU is named')
    t.ok(processes === null || Array.isArray(processes), 'processes are listed, or not told')
  },
})
