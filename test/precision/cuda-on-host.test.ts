// The CUDA casts and quantizers with their launchers, run on the host, give the bits of the CPU kernels.
import { rmSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { buildOnHost, noHostCompiler, notLaunched, runOnHost } from '../fixtures/cuda-on-host/cuda-on-host.js'

t.test('kernels and launchers', { skip: noHostCompiler }, async t => {
  const families = ['cast', 'amax', 'nvfp4', 'fp8', 'swizzle']
  const folders = ['cpu/quantize', 'cuda/quantize']
  const sources = folders.flatMap(folder => families.map(name => `backend/${folder}/${name}.cc`))
  const plain = ['backend/cpu/simd/isa_plain.cc', '../test/fixtures/cuda-on-host/plain-cpu.cc']
  const core = ['core/thread_pool.cc', 'backend/cpu/elements.cc', 'backend/cuda/ops/strided.cc']
  const { folder, programs, kernels } = buildOnHost(['precision.cc'], families, [
    ...sources,
    ...plain,
    ...core,
  ])
  t.teardown(() => rmSync(folder, { recursive: true }))
  const log = path.join(folder, 'launched')
  const { stdout, status } = runOnHost(programs[0]!, [], { LAUNCHED_KERNELS: log })
  t.match(stdout, /^\d{3} results agree\n$/)
  t.equal(status, 0)
  t.strictSame(notLaunched([...kernels.values()].flat(), log), [], 'kernels that are not launched')
})
