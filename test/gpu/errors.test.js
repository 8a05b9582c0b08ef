// A kernel that touches memory it does not own ruins the context: every call says so until the device is opened anew.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { gpuTests } from '../fixtures/gpu-suite/gpu.js'

// In a process of its own. The labels pass the check of the call and change before their kernel, which waits behind
// the products, reads them: what the documentation forbids.
const script = `
  import { UnifiedBuffer } from 'dgx-spark'
  import { openKernels } from 'dgx-spark/kernels'
  const attempt = async call => { try { await call() } catch (error) { return [error.code, error.message] } }
  const kernels = await openKernels({ backend: 'cuda' })
  const size = 2048
  const data = await UnifiedBuffer.allocate(8 * size * size)
  const x = data.view(Float32Array, 0, size * size), y = data.view(Float32Array, 4 * size * size)
  const buffer = await UnifiedBuffer.allocate(4)
  const labels = buffer.view(Int32Array)
  const loss = new Float32Array(1)
  const logits = new Float32Array(3)
  const product = () => kernels.run('linear', { weight: { format: 'f32', rows: size, cols: size, data: x }, tokens: size, x, y })
  const entropy = () => kernels.run('softmaxCrossEntropy', { tokens: 1, classes: 3, logits, labels, loss })
  await product()
  const before = Array.from({ length: 50 }, () => attempt(product))
  const faulty = attempt(entropy)
  labels[0] = 2 ** 31 - 1
  const first = await faulty
  await Promise.all(before)
  const later = await attempt(() => kernels.run('softmaxCrossEntropy', { tokens: 1, classes: 3, logits, labels: new Int32Array(1), loss }))
  data.dispose()
  buffer.dispose()
  const again = await openKernels({ backend: 'cuda' })
  const fresh = await attempt(() => again.run('softmaxCrossEntropy', { tokens: 1, classes: 3, logits, labels: new Int32Array(1), loss }))
  console.log(JSON.stringify({ first, later, fresh: fresh ?? 'works', loss: loss[0] }))
`

await gpuTests({
  'a sticky error': t => {
    const cwd = path.resolve(import.meta.dirname, '../..')
    const { stdout, stderr, signal } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      cwd,
      encoding: 'utf8',
      timeout: 120_000,
    })
    t.same(signal, null, 'does not end the process')
    const { first, later, fresh, loss } = JSON.parse(stdout.trim().split('\n').at(-1) || 'null') ?? {}
    t.ok(first?.[0] === 'ERR_CUDA' && /CUDA_ERROR_/.test(first[1]), 'rejects the call', first?.[1] ?? stderr)
    t.ok(later?.[0] === 'ERR_CUDA', 'rejects every later call', later?.[1] ?? stderr)
    t.same(fresh, 'works', 'is over when the device is opened again')
    t.close([loss], [Math.log(3)], 1e-6, 'and results are right again')
  },
})
